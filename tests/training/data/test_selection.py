"""Selection of samples: class imbalance, label noise and test samples."""

from typing import Any

import pytest
import torch

from nclab.errors import DataError
from nclab.training.data.samples import Samples
from nclab.training.data.selection import SampleSelection


def samples(classes: int = 4, each: int = 100) -> Samples:
    """Return samples whose input is their row number."""
    count = classes * each
    return Samples.checked(torch.arange(float(count))[:, None], torch.arange(count) % classes)


def test_the_default_keeps_all_samples() -> None:
    all_samples = samples()
    train, test = SampleSelection().split(all_samples)
    assert train is all_samples
    assert test is None


@pytest.mark.parametrize(
    ("options", "counts"),
    [
        ({"imbalance": 10}, [100, 100, 10, 10]),
        ({"imbalance": 10, "tail": "exponential"}, [100, 46, 21, 10]),
        ({"imbalance": 100, "tail": "exponential"}, [100, 21, 4, 1]),
        ({"imbalance": 4, "test_share": 0.2}, [80, 80, 20, 20]),
    ],
)
def test_counts_of_long_tails(options: dict[str, Any], counts: list[int]) -> None:
    assert SampleSelection(**options).split(samples()).train.counts == counts


def test_an_odd_number_of_classes_has_one_more_large_one() -> None:
    assert SampleSelection(imbalance=2).split(samples(classes=5)).train.counts == [
        100,
        100,
        100,
        50,
        50,
    ]


def test_small_classes_limit_the_others() -> None:
    """With ten samples in a large class and imbalance 5, a small class has two samples."""
    labels = torch.cat([torch.full((10,), 0), torch.full((300,), 1), torch.full((50,), 2)])
    all_samples = Samples.checked(torch.rand(360, 2), labels)
    assert SampleSelection(imbalance=5).split(all_samples).train.counts == [10, 10, 2]


def test_test_samples_do_not_depend_on_imbalance_and_noise() -> None:
    all_samples = samples()
    plain = SampleSelection(test_share=0.25).split(all_samples)
    other = SampleSelection(test_share=0.25, imbalance=10, label_noise=0.3).split(all_samples)
    assert plain.test is not None
    assert other.test is not None
    assert torch.equal(plain.test.inputs, other.test.inputs)
    assert plain.test.counts == [25] * 4
    assert torch.equal(other.test.labels, other.test.inputs[:, 0].long() % 4), "clean labels"
    for split in (plain, other):
        assert split.test is not None
        assert not set(split.train.inputs[:, 0].tolist()) & set(split.test.inputs[:, 0].tolist())
    assert len(plain.train) == 300


def test_noise_spreads_labels_evenly_over_the_other_classes() -> None:
    all_samples = samples(classes=3, each=2000)
    train = SampleSelection(label_noise=0.3).split(all_samples).train
    clean = train.inputs[:, 0].long() % 3
    wrong = train.labels != clean
    assert int(wrong.sum()) == 1800
    moved = ((train.labels - clean) % 3)[wrong].bincount(minlength=3).tolist()
    assert moved[0] == 0
    assert abs(moved[1] - 900) < 100  # nearly five standard deviations


def test_the_seed_alone_determines_the_selection() -> None:
    chosen = SampleSelection(imbalance=3, label_noise=0.2, test_share=0.1, selection_seed=7)
    first, second = chosen.split(samples()), chosen.split(samples())
    assert first.train.digest() == second.train.digest()
    other = SampleSelection(imbalance=3, label_noise=0.2, test_share=0.1, selection_seed=8)
    assert first.train.digest() != other.split(samples()).train.digest()
    assert first.train.digest().startswith("be408f00ba3abcb1"), "as on every machine"


@pytest.mark.parametrize(
    ("options", "pattern"),
    [
        ({"imbalance": 0.5}, "1 or more, got 0.5"),
        ({"imbalance": float("nan")}, "1 or more, got nan"),
        ({"tail": "linear"}, "'step' or 'exponential', got 'linear'"),
        ({"label_noise": 1.0}, "0 <= label_noise < 1, got 1"),
        ({"test_share": -0.1}, "0 <= test_share < 1, got -0.1"),
        ({"selection_seed": -1}, "0 or more, got -1"),
    ],
)
def test_bad_selections_raise(options: dict[str, Any], pattern: str) -> None:
    with pytest.raises(DataError, match=pattern):
        SampleSelection(**options)


def test_selections_with_an_empty_class_raise() -> None:
    with pytest.raises(DataError, match="largest class has 100 samples and the smallest none"):
        SampleSelection(imbalance=1000).split(samples())
    few = samples(classes=4, each=1)
    with pytest.raises(DataError, match="got 1 of class 0"):
        SampleSelection(test_share=0.5).split(few)
    pair = samples(classes=2, each=1)
    with pytest.raises(DataError, match=r"noise of 0\.5 leaves none of class"):
        SampleSelection(label_noise=0.5).split(pair)
