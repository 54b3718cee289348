"""Tests of the numerical campaign: a short run, errors it has found, and that it finds errors."""

import random
from pathlib import Path

import mpmath
import numpy as np
import pytest
import torch

import nclab
from nclab.metrics import nc3_alignment
from nclab.statistics import blocks
from tests.fuzz import numbers
from tests.reference import digits, slow


def test_extreme_numbers_are_correct_or_warned_about(tmp_path: Path) -> None:
    threads = torch.get_num_threads()
    attack = numbers.campaign(tmp_path)
    for number in range(30):
        attack(random.Random(f"numbers {number}"))
    torch.set_num_threads(threads)


def test_gmpy2_and_mpmath_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    """gmpy2 is faster; if it is not installed, mpmath is compared with itself."""
    for number in range(4):
        case = numbers.drawn(random.Random(f"numbers {number}"))
        parts = case.features, case.labels, case.weight, case.bias
        texts = []
        for kind in (digits.fast() or mpmath.mp, mpmath.mp):
            monkeypatch.setattr(slow, "mp", kind)
            monkeypatch.setattr(slow, "mpf", kind.mpf)
            monkeypatch.setattr(slow, "ZERO", kind.mpf(0))
            with kind.workprec(slow.precision(case.features, case.weight, case.bias)):
                values = slow.exact_metrics(slow.ExactData.of(*parts))
                texts.append({name: kind.nstr(value, 30) for name, value in values.items()})
        for name, text in texts[0].items():
            first, other = mpmath.mpf(text), mpmath.mpf(texts[1][name])
            gap = abs(first - other)
            alike = mpmath.isnan(first) and mpmath.isnan(other)
            assert alike or first == other or gap < 1e-14 * abs(other) + 1e-60, name


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("scale", [1e-165, 1e-200, 1e-310])
def test_a_class_of_tiny_features_has_directions(
    compiled: bool, scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The squares of the features vanish, but their directions are accurate."""
    if compiled:
        monkeypatch.setattr(blocks, "COMPILED_SIZE", 0)
    rows = np.random.default_rng(0).normal(size=(12, 5)).round(2)
    labels = np.arange(12) % 3
    plain = nclab.measure_features(rows, labels)
    tiny = rows.copy()
    tiny[labels == 1] *= scale
    collapse = nclab.measure_features(tiny, labels)
    assert collapse.zero_features == 0
    assert collapse.intra_cosine.tolist() == pytest.approx(plain.intra_cosine.tolist(), rel=1e-8)
    assert collapse.max_inter == pytest.approx(plain.max_inter, rel=1e-8)
    assert collapse.nc4_cosine_accuracy == plain.nc4_cosine_accuracy


@pytest.mark.parametrize("scale", [1e-290, 1e-160, 1e149])
def test_the_scale_of_a_classifier_changes_only_norms_and_losses(scale: float) -> None:
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
def test_a_spread_whose_squares_vanish_gives_a_warning(scale: float) -> None:
    """Input 3219 of the campaign raised ZeroDivisionError."""
    draw = np.random.default_rng(0)
    rows, labels = draw.normal(size=(6, 5)), np.array([1, 1, 1, 1, 1, 0])
    rows[labels == 1] *= scale
    collapse = nclab.measure_features(rows, labels, draw.normal(size=(2, 5)), metrics="all")
    assert numbers.mentioned(collapse, "rankme")


def test_a_spread_orthogonal_to_the_means_gives_a_warning() -> None:
    """Input 4156 gave 0 instead of 3e-73 without a warning. An exact 0 needs no warning."""
    rows, labels = np.array([[1.6e-18, 0.0], [-8e-19, 1.6], [0.0, 0.0]]), [1, 0, 1]
    collapse = nclab.measure_features(rows, labels)
    assert numbers.warned(collapse, "nc1_trace_pinv")
    exact_rows = np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    plain = nclab.measure_features(exact_rows, [0, 0, 1, 1])
    assert plain.values["nc1_trace_pinv"] == 0
    assert not numbers.warned(plain, "nc1_trace_pinv")


@pytest.mark.parametrize("mean", [1e-160, 0.0])
def test_a_spread_of_only_the_smallest_class_gives_a_warning(mean: float) -> None:
    """Input 9016 gave NC1 = 0 instead of 3e-180: squares of the only class with spread vanish."""
    rows, labels = np.array([[1.0, 2.0], [-2.0, 1.0], [0.0, 0.0], [0.0, 0.0]]), [0, 1, 2, 2]
    rows *= 1e-80
    rows[2:, 0] = mean + 3e-161, mean - 3e-161
    collapse = nclab.measure_features(rows, labels)
    assert numbers.warned(collapse, "nc1_trace_pinv")
    rows[2:, 0] = 1e-100, 1.5e-100
    assert not numbers.warned(nclab.measure_features(rows, labels), "nc1_trace_pinv")
    rows[2:] = 0.0
    assert not numbers.warned(nclab.measure_features(rows, labels), "nc1_trace_pinv")


def test_predictions_by_vanishing_logits_give_a_warning() -> None:
    """In input 6544, products of 1e-20 and 1e-321 are 0, and ties go to the first class."""
    rows, labels = np.array([[1e-21], [-2e-20], [-2e-20]]), [0, 1, 0]
    weight = np.array([[-1.9e-321], [1.4e-321]])
    collapse = nclab.measure_features(rows, labels, weight)
    assert all(numbers.warned(collapse, name) for name in ("accuracy", "margin", "nc4_agreement"))
    by_bias = nclab.measure_features(rows, labels, weight, np.array([1.0, 0.0]))
    assert not numbers.warned(by_bias, "accuracy")
    untrained = nclab.measure_features(rows, labels, 0.0 * weight)
    assert not numbers.warned(untrained, "accuracy")


def test_zero_features_have_the_margin_zero() -> None:
    """In input 6912, the squares of a tiny classifier vanish, but its norm does not."""
    collapse = nclab.measure_features(np.zeros((3, 1)), [0, 1, 0], np.array([[-4e-321], [1e-321]]))
    assert collapse.normalised_margin == 0


def test_directions_of_the_smallest_numbers_keep_their_digits() -> None:
    """In input 11078, directions of numbers with three digits differ by one per cent."""
    rows = np.array([[-2.751946e-321, 3.601739e-321], [-1.307651, 1.695343]])
    assert nclab.measure_features(rows, [1, 0]).nc4_cosine_accuracy == 1


@pytest.mark.parametrize("scale", [1e-39, 1e-46])
def test_directions_of_small_classes_survive_the_float32_screen(
    scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In inputs 42524 and 47142, the inverse norm of a mean is infinite in float32."""
    draw = np.random.default_rng(4)
    labels = np.arange(30) % 3
    rows = draw.normal(size=(30, 2)) * np.where(labels == 1, 1e-20, scale)[:, None]
    plain = nclab.measure_features(rows, labels)
    monkeypatch.setattr(blocks, "COMPILED_SIZE", 0)
    assert nclab.measure_features(rows, labels).nc4_cosine_accuracy == plain.nc4_cosine_accuracy


@pytest.mark.parametrize("classes", [2, 4])
def test_a_spread_in_coordinates_where_means_agree_is_ignored(classes: int) -> None:
    """Input 44456 gave 6e-34 instead of 0, from rounding in the basis of the class means."""
    means = np.array([[0.0, 1.0, 1.0], [0.0, 0.0, 0.0], [0.0, 2.0, -1.0], [0.0, 3.0, 1.0]])
    rows = np.concatenate([means[:classes], means[:classes]])
    rows[0, 0], rows[classes, 0] = -1.0, 1.0
    collapse = nclab.measure_features(rows, [*range(classes)] * 2)
    assert collapse.nc1_trace_pinv == 0


def test_nearly_equal_rows_give_a_warning() -> None:
    """In input 6413, one centred row is 0 and the others are mere rounding."""
    weight = np.array([[3.0, 4.0], [3.0, 4.0 + 1e-12], [3.0, 4.0 - 1e-12]])
    rows = np.random.default_rng(0).normal(size=(8, 2))
    collapse = nclab.measure_features(rows, [0, 0, 0, 0, 0, 0, 1, 2], weight, metrics="all")
    assert collapse.minority_cosine is not None
    assert numbers.warned(collapse, "minority_cosine")


@pytest.mark.parametrize(
    "rows",
    [[[-1e150, 3e-222], [1e150, 1e-222], [1.0, 0.0]], [[1e-322, 2e-322], [1e-322, 1e-322], [1, 0]]],
)
def test_means_without_correct_digits_give_a_warning(rows: list[list[float]]) -> None:
    """In inputs 6395 and 12592, means are far smaller than features, or the smallest numbers."""
    collapse = nclab.measure_features(
        np.array(rows), [0, 0, 1], np.array([[1.0, 2.0], [-1.0, 0.0]])
    )
    assert numbers.warned(collapse, "nc3_alignment_min")


def test_means_with_large_rounding_errors_give_warnings() -> None:
    rows = np.random.default_rng(2).normal(size=(12, 5))
    collapse = nclab.measure_features(rows + 1e12, np.arange(12) % 3, rows[:3], metrics="all")
    for name in ("nc1_trace_ratio", "cdnv", "nc2_equiangularity_means", "nc3_self_duality"):
        assert numbers.warned(collapse, name), name
    quiet = nclab.measure_features(rows + 100.0, np.arange(12) % 3, rows[:3], metrics="all")
    assert not any("error of about" in line for line in quiet.warnings)


def test_the_campaign_notices_a_wrong_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """The campaign notices an error of one part in a million, and a missing warning."""
    case = numbers.measured

    def spoiled(*args: object, **options: object) -> nclab.Collapse:
        collapse = case(*args, **options)  # type: ignore[arg-type]
        values = {**collapse.values, "cdnv": (collapse.values["cdnv"] or 0.0) * (1 + 1e-7)}
        return nclab.Collapse(**{**vars(collapse), "values": values})

    monkeypatch.setattr(numbers, "measured", spoiled)
    with pytest.raises(AssertionError, match="cdnv"):
        numbers.attack(random.Random("numbers 2"))
