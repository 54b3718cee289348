"""Groups of classes by frequency: values and display."""

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor

import nclab
from nclab.text import as_text


def long_tail(classes: int = 30, dim: int = 5) -> tuple[Tensor, Tensor, Tensor]:
    """Return data with about 60 / (c + 1) samples of class c around its mean."""
    generator = torch.Generator().manual_seed(0)
    counts = torch.tensor([max(1, 60 // (c + 1)) for c in range(classes)])
    labels = torch.arange(classes).repeat_interleave(counts)
    means = 3 * torch.randn(classes, dim, generator=generator).double()
    features = means[labels] + torch.randn(len(labels), dim, generator=generator).double()
    weight = torch.randn(classes, dim, generator=generator).double()
    return features, labels, weight


@pytest.mark.parametrize("groups", [1, 3, 10])
def test_strata_equal_a_slow_loop(groups: int) -> None:
    x, y, weight = long_tail()
    measured = nclab.measure_features(x, y, weight).strata(groups)
    counts = {c: int((y == c).sum()) for c in range(30)}
    sizes = sorted(set(counts.values()), reverse=True)
    part = {n: [c for c in counts if counts[c] == n] for n in sizes}
    share = {n: n * len(part[n]) for n in sizes}
    done, places = 0.0, dict[int, list[int]]()
    for n in sizes:
        middle = (done + share[n] / 2) / sum(share.values())
        places.setdefault(min(groups - 1, int(middle * groups)), []).extend(part[n])
        done += share[n]
    assert [group.classes for group in measured] == [len(classes) for classes in places.values()]
    means = torch.stack([x[y == c].mean(0) for c in range(30)])
    between = float((means - means.mean(0)).square().sum(1).mean())
    logits = x @ weight.T
    centred = weight - weight.mean(0)
    for group, classes in zip(measured, places.values(), strict=True):
        rows = [i for i in range(len(y)) if int(y[i]) in classes]
        assert group.samples == len(rows)
        assert (group.least, group.most) == (
            min(counts[c] for c in classes),
            max(counts[c] for c in classes),
        )
        spare = len(rows) - len(classes)
        spread = sum(float((x[i] - means[y[i]]).square().sum()) for i in rows)
        if spare:
            assert group.within == pytest.approx(spread / spare / between, rel=1e-10)
        else:
            assert group.within is None
        near = [int((x[i] - means).square().sum(1).argmin()) == int(y[i]) for i in rows]
        right = [int(logits[i].argmax()) == int(y[i]) for i in rows]
        losses = [-float(logits[i].log_softmax(0)[y[i]]) for i in rows]
        norm = sum(float(x[i].square().sum()) for i in rows) / len(rows)
        rows_of_weight = sum(float(centred[c].square().sum()) for c in classes) / len(classes)
        assert group.ncc_accuracy == pytest.approx(sum(near) / len(rows), rel=1e-10)
        assert group.accuracy == pytest.approx(sum(right) / len(rows), rel=1e-10)
        assert group.loss == pytest.approx(sum(losses) / len(rows), rel=1e-10)
        assert group.alpha == pytest.approx(norm**0.5, rel=1e-10)
        assert group.beta == pytest.approx(rows_of_weight**0.5, rel=1e-10)


def test_one_group_has_the_values_of_all_classes() -> None:
    x, y, weight = long_tail()
    collapse = nclab.measure_features(x, y, weight)
    (group,) = collapse.strata(1)
    assert group.loss == pytest.approx(collapse.loss, rel=1e-12)
    assert group.accuracy == pytest.approx(collapse.accuracy, rel=1e-12)
    assert group.ncc_accuracy == pytest.approx(collapse.nc4_ncc_accuracy, rel=1e-12)
    assert collapse.nc1_trace_ratio is not None
    spare = collapse.samples / (collapse.samples - 30)
    assert group.within == pytest.approx(collapse.nc1_trace_ratio * spare, rel=1e-12)


def test_the_spread_does_not_shrink_with_the_class() -> None:
    """10,000 classes have two samples and ten classes 2,000, with equal noise."""
    torch.manual_seed(0)
    labels = torch.cat([torch.arange(10_000).repeat(2), 10_000 + torch.arange(10).repeat(2000)])
    x = torch.randn(10_010, 8).double()[labels] + torch.randn(len(labels), 8).double()
    head, tail = nclab.measure_features(x, labels, second_pass=False).strata(2)
    assert (head.classes, tail.classes) == (10, 10_000)
    assert head.within == pytest.approx(tail.within, rel=0.03)


def test_tables_pages_and_json_show_strata_of_uneven_classes(tmp_path: Path) -> None:
    x, y, weight = long_tail()
    collapse = nclab.measure_features(x, y, weight)
    shown = collapse.strata().to_dicts()
    assert json.loads(json.dumps(collapse.to_dict()))["strata"] == shown
    assert "classes by frequency" in as_text(collapse)
    titles = [panel.title for panel in collapse._picture().panels]
    assert titles[-2:] == ["accuracy by class frequency", "spread and loss by class frequency"]
    collapse.to_html(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "classes by frequency" in page
    even = nclab.measure_features(x[:0].new_tensor([[0.0], [1.0]]), [0, 1])
    assert "strata" not in even.to_dict()
    assert "by frequency" not in as_text(even)
    assert len(even.strata(5)) == 1


def test_pictures_of_many_classes_show_groups_only() -> None:
    torch.manual_seed(0)
    labels = torch.cat([torch.arange(2100), torch.zeros(50, dtype=torch.int64)])
    collapse = nclab.measure_features(torch.randn(len(labels), 3), labels, second_pass=False)
    assert [panel.title for panel in collapse._picture().panels] == [
        "spread and loss by class frequency"
    ]


@pytest.mark.parametrize("groups", [0, 2.5])
def test_wrong_groups_raise(groups: int) -> None:
    collapse = nclab.measure_features([[0.0], [1.0]], [0, 1])
    with pytest.raises(nclab.DataError, match="Expected groups="):
        collapse.strata(groups)
