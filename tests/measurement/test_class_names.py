"""Class names as labels, and in tables, pictures and pages."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import nclab
from nclab.figures.picture import HeatMap, Panel
from tests.contract import assert_same

NAMES = ["zebra", "ant", "<cow>"]
GENERATOR = torch.Generator().manual_seed(0)
Y = torch.arange(45) % 3
X = torch.randn(3, 5, generator=GENERATOR).double()[Y]
X = X + 0.4 * torch.randn(45, 5, generator=GENERATOR).double()
WORDS = [NAMES[number] for number in Y]
PLAIN = nclab.measure_features(X, Y)


@pytest.mark.parametrize("labels", [WORDS, np.array(WORDS), tuple(WORDS), Y])
def test_labels_may_be_names(labels: Any) -> None:
    measured = nclab.measure_features(X, labels, class_names=NAMES)
    assert measured.class_names == tuple(NAMES)
    assert_same(measured.scalars(), PLAIN.scalars(), relative=0, absolute=0)


def test_names_in_batches_and_in_a_model() -> None:
    batches = [(X[:20], WORDS[:20]), (X[20:], WORDS[20:])]
    measured = nclab.measure_features(batches, class_names=NAMES)
    assert_same(measured.scalars(), PLAIN.scalars(), relative=1e-10)
    net = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3)).double()
    report = nclab.measure(net, batches, class_names=NAMES)
    assert_same(report.last.scalars(), nclab.measure(net, [(X, Y)]).last.scalars(), relative=1e-10)
    with nclab.Monitor(net, class_names=NAMES) as monitor:
        for x, _ in monitor.watch(batches):
            net(x).sum().backward()
    assert monitor.last is not None
    assert monitor.last.report.last.class_names == tuple(NAMES)


def test_without_a_classifier_names_are_sorted() -> None:
    measured = nclab.measure_features(X, WORDS)
    assert measured.class_names == tuple(sorted(NAMES))
    assert measured.cdnv == pytest.approx(PLAIN.cdnv, rel=1e-12)


def test_with_a_classifier_the_order_of_names_is_required() -> None:
    with pytest.raises(nclab.DataError, match="Pass class_names= all names, in the order"):
        nclab.measure_features(X, WORDS, weight=torch.randn(3, 5))


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["a", "b", "a"], "'a' twice"),
        ("abc", "a list with one name per class, got a str"),
        ({0: "a", 2: "b"}, "numbers 0 to 1, got 0, 2"),
        (["zebra", "ant", "horse"], "among class_names zebra, ant, horse; got '<cow>'"),
    ],
)
def test_wrong_names_raise(names: Any, message: str) -> None:
    with pytest.raises(nclab.DataError, match=message):
        nclab.measure_features(X, WORDS, class_names=names)


def test_a_model_with_another_number_of_outputs() -> None:
    net = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 4)).double()
    with pytest.raises(nclab.DataError, match="each of the 4 outputs of 2, got 3 class_names"):
        nclab.measure(net, [(X, Y)], class_names=NAMES)


def test_shown_in_table_picture_and_page(tmp_path: Path) -> None:
    measured = nclab.measure_features(X, Y, class_names={2: "<cow>", 0: "zebra", 1: "ant"})
    worst = NAMES[int(measured.intra_cosine.argmin())]
    pair = [NAMES[number] for number in measured.max_inter_pair]
    line = (
        f"the features of {worst} vary most; the most similar classes are {pair[0]} and {pair[1]}"
    )
    assert line in " ".join(str(measured).split())
    heat, every = measured._picture().panels[:2]
    assert isinstance(heat, HeatMap)
    assert isinstance(every, Panel)
    assert heat.x_names == tuple(NAMES)
    assert (every.x_ticks, every.x_names) == ((0, 1, 2), tuple(NAMES))
    measured.to_html(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "<cow>" not in page
    assert "&lt;cow&gt;" in page
    assert "&lt;cow&gt;" in measured._repr_html_()
    assert measured.to_dict()["class_names"] == NAMES
    assert "class_names" not in PLAIN.to_dict()


def test_classes_without_samples_are_named() -> None:
    keep = Y != 1
    measured = nclab.measure_features(X[keep], Y[keep], class_names=NAMES, min_count=1)
    assert measured.class_names == ("zebra", "<cow>")
    assert measured.warnings[0] == "Left out 1 class without samples: ant."


def test_names_by_number_as_text() -> None:
    """JSON files hold `id2label` with numbers as text."""
    measured = nclab.measure_features(X, Y, class_names={"1": "ant", "0": "zebra", "2": "<cow>"})
    assert measured.class_names == tuple(NAMES)
    wrongs: list[Any] = [{"zebra": 0, "ant": 1, "<cow>": 2}, {0: "zebra", "one": "ant"}]
    for wrong in wrongs:
        with pytest.raises(nclab.DataError, match=r"numbers 0 to \d, got .*Pass {number: name}"):
            nclab.measure_features(X, Y, class_names=wrong)


def test_errors_about_too_few_names_name_them() -> None:
    weight = torch.eye(3, 5)
    with pytest.raises(nclab.DataError, match="each of the 3 rows of weight, got 2 class_names"):
        nclab.measure_features(X, Y, weight, class_names=["a", "b"])
    with pytest.raises(nclab.DataError, match="got 2 class_names and the label 2"):
        nclab.measure_features(X, Y, class_names=["a", "b"])
    with pytest.raises(nclab.DataError, match="3 classes of num_classes, got 2 class_names"):
        nclab.measure_features(X, Y, class_names=["a", "b"], num_classes=3)


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 0, 1], [1, 0, 2]])
def test_a_reference_is_compared_by_name(order: list[int]) -> None:
    test = X + 0.1
    weight = torch.randn(3, 5, generator=GENERATOR).double()
    plain = nclab.measure_features(test, Y, weight, reference=PLAIN)
    numbers = torch.tensor([order.index(number) for number in range(3)])
    train = nclab.measure_features(X, numbers[Y], class_names=[NAMES[n] for n in order])
    measured = nclab.measure_features(test, Y, weight, class_names=NAMES, reference=train)
    assert_same(measured.scalars(), plain.scalars(), relative=1e-12)
    with pytest.raises(nclab.DataError, match=r"got one with .*, which is not in class_names"):
        nclab.measure_features(test, Y, class_names=["x", "y", "z"], reference=train)


def test_a_report_is_compared_by_name() -> None:
    net = nn.Sequential(nn.Linear(5, 6), nn.Tanh()).double()
    permuted = [NAMES[2], NAMES[0], NAMES[1]]
    batches = [(X, WORDS)]
    train = nclab.measure(net, batches, classifier=None, class_names=permuted)
    measured = nclab.measure(net, batches, classifier=None, class_names=NAMES, reference=train)
    assert measured.last.reference_mean_shift == pytest.approx(0, abs=1e-12)


def test_labels_may_lack_names_of_the_reference() -> None:
    train = nclab.measure_features(X, WORDS)
    some = Y != 1
    words = [word for word, kept in zip(WORDS, some.tolist(), strict=True) if kept]
    measured = nclab.measure_features(X[some], words, reference=train)
    assert measured.class_names == ("<cow>", "zebra")
    assert measured.reference_mean_shift == pytest.approx(0, abs=1e-12)
