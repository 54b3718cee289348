"""A measurement that cannot fit into memory raises before it allocates anything."""

import pytest
import torch

import nclab
from nclab.errors import DataError
from nclab.measurement import options as module
from nclab.measurement.options import MeasureOptions
from tests.clouds import cloud

DATA = cloud()


def test_labels_that_are_ids_raise_before_memory_is_taken() -> None:
    labels = torch.tensor([0, 1, 10**12])
    for measure in (
        lambda: nclab.measure_features(torch.ones(3, 4), labels),
        lambda: nclab.measure_features([(torch.ones(3, 4), labels)]),
    ):
        with pytest.raises(DataError, match=r"1000000000001 classes in dimension 4 take .* GB"):
            measure()


def test_the_plan_grows_with_the_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "machine_memory", lambda: 1e9)
    one_pass = MeasureOptions(second_pass=False)
    one_pass.check_memory(10_000, 1000)
    with pytest.raises(DataError, match=r"the 1 GB of this machine, but 10000 classes"):
        MeasureOptions(groups=10).check_memory(10_000, 1000)


def test_closest_pairs_are_named() -> None:
    data = cloud(num_classes=120, dim=6, per_class=2)
    names = [f"class {number}" for number in range(120)]
    measured = nclab.measure_features(data.features, data.labels, class_names=names)
    cosines = measured.inter_cosine.clone().fill_diagonal_(-2).triu(1)
    expected = cosines.flatten().topk(10).values
    assert [pair.cosine for pair in measured.closest_pairs] == pytest.approx(expected.tolist())
    first = measured.to_dict()["closest_pairs"][0]
    assert first["classes"] == list(measured.max_inter_pair)
    assert first["names"] == [names[number] for number in measured.max_inter_pair]
    line = next(line for line in measured.summary() if line.startswith("closest classes: "))
    assert line.count(" – ") == 5
    assert " – ".join(first["names"]) in line
