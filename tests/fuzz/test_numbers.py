"""A short stretch of the numerical campaign, what it has found before, and that it finds things."""

import random
from pathlib import Path

import mpmath
import numpy as np
import pytest
import torch

import nclab
from nclab.metrics import nc3_alignment
from nclab.statistics import blocks, nearest
from tests.fuzz import numbers
from tests.reference import digits, slow


def test_extreme_numbers_are_right_or_spoken_of(tmp_path: Path) -> None:
    threads = torch.get_num_threads()
    attack = numbers.campaign(tmp_path)
    for number in range(30):
        attack(random.Random(f"numbers {number}"))
    torch.set_num_threads(threads)


def test_both_kinds_of_digits_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    """gmpy2 is the faster one; where it is not installed, mpmath is compared with itself."""
    for number in range(4):
        given = numbers.drawn(random.Random(f"numbers {number}"))
        parts = given.features, given.labels, given.weight, given.bias
        told = []
        for kind in (digits.fast() or mpmath.mp, mpmath.mp):
            monkeypatch.setattr(slow, "mp", kind)
            monkeypatch.setattr(slow, "mpf", kind.mpf)
            monkeypatch.setattr(slow, "ZERO", kind.mpf(0))
            with kind.workprec(slow.precision(given.features, given.weight, given.bias)):
                values = slow.exact_metrics(slow.ExactData.of(*parts))
                told.append({name: kind.nstr(value, 30) for name, value in values.items()})
        for name, text in told[0].items():
            one, other = mpmath.mpf(text), mpmath.mpf(told[1][name])
            gap = abs(one - other)
            alike = mpmath.isnan(one) and mpmath.isnan(other)
            assert alike or one == other or gap < 1e-14 * abs(other) + 1e-60, name


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("scale", [1e-165, 1e-200, 1e-310])
def test_a_class_of_tiny_features_has_directions(
    compiled: bool, scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Squares of its features vanish; its directions do not."""
    if compiled:
        monkeypatch.setattr(blocks, "COMPILED_SIZE", 0)
    rows = np.random.default_rng(0).normal(size=(12, 5)).round(2)
    labels = np.arange(12) % 3
    plain = nclab.measure_features(rows, labels)
    tiny = rows.copy()
    tiny[labels == 1] *= scale
    found = nclab.measure_features(tiny, labels)
    assert found.zero_features == 0
    assert found.intra_cosine.tolist() == pytest.approx(plain.intra_cosine.tolist(), rel=1e-8)
    assert found.max_inter == pytest.approx(plain.max_inter, rel=1e-8)
    assert found.nc4_cosine_accuracy == plain.nc4_cosine_accuracy


@pytest.mark.parametrize("scale", [1e-290, 1e-160, 1e149])
def test_the_size_of_a_classifier_changes_nothing_but_its_norm(scale: float) -> None:
    draw = np.random.default_rng(1)
    rows, labels, weight = draw.normal(size=(12, 5)), np.arange(12) % 3, draw.normal(size=(3, 5))
    plain = nclab.measure_features(rows, labels, weight, metrics="all")
    other = nclab.measure_features(rows, labels, weight * scale, metrics="all")
    for name, value in plain.values.items():
        if value is not None and not any(word in name for word in ("loss", "margin", "beta")):
            assert other.values[name] == pytest.approx(value, rel=1e-9), name
    assert other.beta == pytest.approx(float(plain.beta or 0) * scale, rel=1e-12)
    assert torch.isfinite(nc3_alignment(other.moments, torch.as_tensor(weight * scale))).all()


@pytest.mark.parametrize("scale", [1e-158, 1e-161, 1e-162, 1e-170])
def test_a_spread_whose_squares_vanish_is_told_of(scale: float) -> None:
    """Input 3219 of the campaign: a bare ZeroDivisionError."""
    draw = np.random.default_rng(0)
    rows, labels = draw.normal(size=(6, 5)), np.array([1, 1, 1, 1, 1, 0])
    rows[labels == 1] *= scale
    found = nclab.measure_features(rows, labels, draw.normal(size=(2, 5)), metrics="all")
    assert numbers.said(found, "lidar")


def test_a_spread_at_right_angles_to_the_means_is_told_of() -> None:
    """Input 4156 of the campaign: 0 for 3e-73, without a word; where it is exact there is none."""
    rows, labels = np.array([[1.6e-18, 0.0], [-8e-19, 1.6], [0.0, 0.0]]), [1, 0, 1]
    found = nclab.measure_features(rows, labels)
    assert numbers.warned(found, "nc1_trace_pinv")
    exact_rows = np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    plain = nclab.measure_features(exact_rows, [0, 0, 1, 1])
    assert plain.values["nc1_trace_pinv"] == 0
    assert not numbers.warned(plain, "nc1_trace_pinv")


@pytest.mark.parametrize("mean", [1e-160, 0.0])
def test_a_spread_within_the_smallest_class_alone_is_told_of(mean: float) -> None:
    """Input 9016: NC1 0 for 3e-180, as squares of the one class that varies vanish."""
    rows, labels = np.array([[1.0, 2.0], [-2.0, 1.0], [0.0, 0.0], [0.0, 0.0]]), [0, 1, 2, 2]
    rows *= 1e-80
    rows[2:, 0] = mean + 3e-161, mean - 3e-161
    found = nclab.measure_features(rows, labels)
    assert numbers.warned(found, "nc1_trace_pinv")
    rows[2:, 0] = 1e-100, 1.5e-100
    assert not numbers.warned(nclab.measure_features(rows, labels), "nc1_trace_pinv")
    rows[2:] = 0.0
    assert not numbers.warned(nclab.measure_features(rows, labels), "nc1_trace_pinv")


def test_decisions_by_logits_that_vanish_are_told_of() -> None:
    """Input 6544: products of 1e-20 and 1e-321 are 0, and ties went to the first class."""
    rows, labels = np.array([[1e-21], [-2e-20], [-2e-20]]), [0, 1, 0]
    weight = np.array([[-1.9e-321], [1.4e-321]])
    found = nclab.measure_features(rows, labels, weight)
    assert all(numbers.warned(found, name) for name in ("accuracy", "margin", "nc4_agreement"))
    by_bias = nclab.measure_features(rows, labels, weight, np.array([1.0, 0.0]))
    assert not numbers.warned(by_bias, "accuracy")
    untrained = nclab.measure_features(rows, labels, 0.0 * weight)
    assert not numbers.warned(untrained, "accuracy")


def test_no_margin_of_zero_features_is_a_margin_of_nothing() -> None:
    """Input 6912: the squares of a tiny classifier vanish; its norm does not."""
    found = nclab.measure_features(np.zeros((3, 1)), [0, 1, 0], np.array([[-4e-321], [1e-321]]))
    assert found.normalised_margin == 0


def test_directions_of_the_smallest_numbers_are_compared_with_all_their_digits() -> None:
    """Input 11078: they differ by one percent, of numbers with three digits."""
    rows = np.array([[-2.751946e-321, 3.601739e-321], [-1.307651, 1.695343]])
    assert nclab.measure_features(rows, [1, 0]).nc4_cosine_accuracy == 1


@pytest.mark.parametrize("scale", [1e-39, 1e-46])
def test_directions_of_small_classes_survive_the_float32_screen(
    scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inputs 42524 and 47142: the inverse length of a mean is infinite in float32."""
    draw = np.random.default_rng(4)
    labels = np.arange(30) % 3
    rows = draw.normal(size=(30, 2)) * np.where(labels == 1, 1e-20, scale)[:, None]
    plain = nclab.measure_features(rows, labels)
    monkeypatch.setattr(nearest, "SCREENED_SIZE", 0)
    monkeypatch.setattr(blocks, "COMPILED_SIZE", 0)
    assert nclab.measure_features(rows, labels).nc4_cosine_accuracy == plain.nc4_cosine_accuracy


@pytest.mark.parametrize("classes", [2, 4])
def test_a_spread_in_coordinates_without_means_is_not_seen(classes: int) -> None:
    """Input 44456: 6e-34 for 0, as the basis of the class means had rounding there."""
    means = np.array([[0.0, 1.0, 1.0], [0.0, 0.0, 0.0], [0.0, 2.0, -1.0], [0.0, 3.0, 1.0]])
    rows = np.concatenate([means[:classes], means[:classes]])
    rows[0, 0], rows[classes, 0] = -1.0, 1.0
    found = nclab.measure_features(rows, [*range(classes)] * 2)
    assert found.nc1_trace_pinv == 0


def test_rows_that_nearly_coincide_are_told_of_beside_one_that_does() -> None:
    """Input 6413: the centred row of the large class is 0, those of the small ones rounding."""
    weight = np.array([[3.0, 4.0], [3.0, 4.0 + 1e-12], [3.0, 4.0 - 1e-12]])
    rows = np.random.default_rng(0).normal(size=(8, 2))
    found = nclab.measure_features(rows, [0, 0, 0, 0, 0, 0, 1, 2], weight, metrics="all")
    assert found.minority_cosine is not None
    assert numbers.warned(found, "minority_cosine")


@pytest.mark.parametrize(
    "rows",
    [[[-1e150, 3e-222], [1e150, 1e-222], [1.0, 0.0]], [[1e-322, 2e-322], [1e-322, 1e-322], [1, 0]]],
)
def test_means_that_have_no_digits_left_are_told_of(rows: list[list[float]]) -> None:
    """Inputs 6395 and 12592: means far below their features, and means of the smallest numbers."""
    found = nclab.measure_features(np.array(rows), [0, 0, 1], np.array([[1.0, 2.0], [-1.0, 0.0]]))
    assert numbers.warned(found, "nc3_alignment_min")


def test_means_that_rounding_reaches_are_told_of() -> None:
    rows = np.random.default_rng(2).normal(size=(12, 5))
    found = nclab.measure_features(rows + 1e12, np.arange(12) % 3, rows[:3], metrics="all")
    for name in ("nc1_trace_ratio", "cdnv", "nc2_equiangularity_means", "nc3_self_duality"):
        assert numbers.warned(found, name), name
    quiet = nclab.measure_features(rows + 100.0, np.arange(12) % 3, rows[:3], metrics="all")
    assert not any("to about" in line for line in quiet.warnings)


def test_the_campaign_notices_a_wrong_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """One part in a million is seen, and so is a warning that is not given."""
    given = numbers.measured

    def spoiled(*args: object, **options: object) -> nclab.Collapse:
        found = given(*args, **options)  # type: ignore[arg-type]
        values = {**found.values, "cdnv": (found.values["cdnv"] or 0.0) * (1 + 1e-7)}
        return nclab.Collapse(**{**vars(found), "values": values})

    monkeypatch.setattr(numbers, "measured", spoiled)
    with pytest.raises(AssertionError, match="cdnv"):
        numbers.attack(random.Random("numbers 2"))
