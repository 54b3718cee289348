"""The checked arguments of `nclab.target`, and the solution of the optimisation problem."""

import math
from dataclasses import dataclass
from numbers import Real
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nclab.errors import DataError
from nclab.theory.certificates.norms_and_loss import as_number

LOSSES = ("cross_entropy", "label_smoothing", "focal", "mse")
FEATURES = ("free", "relu")
AVERAGES = ("samples", "classes")
LOSS_OPTIONS = {"smoothing": ("label_smoothing", 0.1, 1.0), "focal_gamma": ("focal", 2.0, 100.0)}
"""Name of an option -> the loss that has this option, its default and its upper limit."""
MOST_CLASSES = 5000
"""Largest number of classes; an optimum needs memory for several C x C matrices."""
SMALLEST, LARGEST = 1e-100, 1e100
"""Range of weight decays, norms and counts whose products are finite floats."""
SMALLEST_PENALTY, LARGEST_PENALTY = 1e-12, 1e9
"""Range of bias penalties. Below it, the bias is that without penalty up to rounding; above it,
the bias is zero up to rounding."""


@dataclass(frozen=True, eq=False)
class Setting:
    """Checked arguments of `nclab.target`, which explains the fields."""

    counts: Tensor
    """(C,) number of samples of each class, float64."""
    dim: int | None
    loss: str
    smoothing: float
    focal_gamma: float
    """Exponent of the focal loss; 0 for other losses."""
    targets: Tensor | None
    """(C, C) soft labels, one column per class; None for hard or smoothed labels."""
    weight_decay: tuple[float, float] | None
    norms: tuple[float, float] | None
    bias: float | None
    features: str
    depth: int
    average: str

    @property
    def num_classes(self) -> int:
        return len(self.counts)

    @property
    def samples(self) -> float:
        return float(self.counts.sum())

    @property
    def metric(self) -> Tensor:
        """(C,) weight of each class in |H|^2, the diagonal of D: its count, or 1.

        |H|^2 is the sum over classes of this weight times the squared norm of the class mean.
        """
        return self.counts if self.average == "samples" else torch.ones_like(self.counts)

    @property
    def balanced(self) -> bool:
        """Whether all classes have the same count and hard or smoothed targets."""
        return self.targets is None and bool((self.counts == self.counts[0]).all())

    @property
    def factors(self) -> int:
        """Number F of matrices whose product is the logits: the linear maps and the features."""
        return self.depth + 1

    @property
    def weight(self) -> float:
        """Geometric mean t of the weight decays of all factors."""
        assert self.weight_decay is not None
        on_weights, on_features = self.weight_decay
        product = on_weights**self.depth * on_features
        if product > 0 or not min(on_weights, on_features):
            return product ** (1 / self.factors)
        log_mean = self.depth * math.log(on_weights) + math.log(on_features)
        return math.exp(log_mean / self.factors)

    @property
    def norm(self) -> float:
        """Product |W|_F |H|_F that follows from the given norms; `metric` defines |H|."""
        assert self.norms is not None
        alpha, beta = self.norms
        return math.sqrt(self.num_classes * float(self.metric.sum())) * alpha * beta

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values, without the counts."""
        names = ["dim", "loss", "features", "depth", "bias", "average", "weight_decay", "norms"]
        names += [name for name, (loss, *_) in LOSS_OPTIONS.items() if loss == self.loss]
        values = {name: getattr(self, name) for name in names}
        if self.targets is not None:
            values["targets"] = "given"
        return {name: list(v) if isinstance(v, tuple) else v for name, v in values.items()}


def check_setting(
    num_classes: int | None,
    counts: Any,
    *,
    dim: int | None = None,
    loss: str = "cross_entropy",
    weight_decay: Any = None,
    norms: Any = None,
    bias: float | None = None,
    features: str = "free",
    depth: int = 1,
    smoothing: float | None = None,
    focal_gamma: float | None = None,
    targets: Any = None,
    average: str = "samples",
) -> Setting:
    """Return the checked setting; raise if an argument is wrong."""
    _check_choice("loss", loss, LOSSES)
    _check_choice("features", features, FEATURES)
    _check_choice("average", average, AVERAGES)
    sizes = _counts(num_classes, counts)
    C = len(sizes)
    least = 1 if loss == "mse" else min(2, C - 1)
    if dim is not None and (not _is_integer(dim) or dim < least):
        raise DataError(
            f"Expected dim of at least {least} for {C} classes and loss {loss}, got {dim!r}."
        )
    if not _is_integer(depth) or depth < 1:
        raise DataError(f"Expected depth as a number of linear maps, at least 1, got {depth!r}.")
    if (weight_decay is None) == (norms is None):
        got = "neither" if norms is None else "both"
        raise DataError(f"Expected weight_decay=(weights, features) or norms=(α, β), got {got}.")
    if bias is not None:
        _check_bias(bias, norms)
    if weight_decay is not None:
        weight_decay = _decays(weight_decay, float(sizes.sum()) if average == "samples" else C)
    if norms is not None:
        norms = _pair("norms", norms)
        if min(norms) <= 0:
            raise DataError(f"Expected norms=(α, β) above 0, got {norms}.")
        _check_size("norms", *norms)
        if depth > 1:
            raise DataError(f"Expected weight_decay= with depth={int(depth)}, got norms=.")
    return Setting(
        counts=sizes,
        dim=None if dim is None else int(dim),
        loss=loss,
        smoothing=_loss_option("smoothing", smoothing, loss),
        focal_gamma=_loss_option("focal_gamma", focal_gamma, loss),
        targets=_targets(targets, C, loss),
        weight_decay=weight_decay,
        norms=norms,
        bias=None if bias is None else float(bias),
        features=features,
        depth=int(depth),
        average=average,
    )


def _check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in choices:
        raise DataError(f"Expected {name} {' or '.join(choices)}, got {value!r}.")


def _check_bias(bias: Any, norms: Any) -> None:
    """Raise if the bias penalty is negative, out of range, or combined with norms."""
    penalty = as_number("bias", bias)
    if penalty < 0:
        raise DataError(f"Expected bias as a penalty >= 0, or bias=None for no bias, got {bias}.")
    if penalty and norms is not None:
        raise DataError(
            f"Expected bias=0 (free bias) or bias=None (no bias) with norms=, got bias={bias}."
        )
    if penalty and not SMALLEST_PENALTY <= penalty <= LARGEST_PENALTY:
        raise DataError(
            f"Expected bias as a penalty from {SMALLEST_PENALTY:g} to {LARGEST_PENALTY:g}, bias=0 "
            f"for a free bias or bias=None for no bias, got {bias}."
        )


def _check_size(name: str, *values: float) -> None:
    """Raise if positive values are so small or large that floats cannot hold their products."""
    for value in values:
        if not SMALLEST <= value <= LARGEST:
            raise DataError(f"Expected {name} from {SMALLEST:g} to {LARGEST:g}, got {value:g}.")


def _counts(num_classes: int | None, counts: Any) -> Tensor:
    """Return the counts as a float64 vector, or raise."""
    if counts is None:
        if num_classes is None:
            raise DataError("Expected num_classes= or counts=, got neither.")
        number = as_number("a number of classes", num_classes)
        if number < 2:
            raise DataError(f"Expected at least 2 classes, got {number:g}.")
        if number % 1 or number > MOST_CLASSES:
            raise DataError(
                f"Expected a whole number of classes from 2 to {MOST_CLASSES}, got {number:g}."
            )
        counts = [1.0] * int(number)
    sizes = _as_tensor(counts, "counts as numbers")
    if sizes.ndim != 1 or not 2 <= len(sizes) <= MOST_CLASSES:
        got = len(sizes) if sizes.ndim == 1 else f"shape {tuple(sizes.shape)}"
        raise DataError(f"Expected counts of 2 to {MOST_CLASSES} classes, got {got}.")
    if num_classes is not None and num_classes != len(sizes):
        raise DataError(f"Expected counts of {num_classes} classes, got {len(sizes)}.")
    valid = torch.isfinite(sizes) & (sizes > 0)
    if not bool(valid.all()):
        bad = int(valid.long().argmin())
        raise DataError(f"Expected counts above 0, got {float(sizes[bad]):g} for class {bad}.")
    _check_size("counts", float(sizes.min()), float(sizes.max()))
    return sizes


def _as_tensor(values: Any, description: str) -> Tensor:
    """Return the values as float64 on the CPU, or raise."""
    try:
        return torch.as_tensor(values, dtype=torch.float64).detach().cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        raise DataError(f"Expected {description}, got {values!r}.") from error


def _is_integer(value: Any) -> bool:
    """Whether the value is a finite integer."""
    return isinstance(value, Real) and math.isfinite(value) and float(value) % 1 == 0


def _decays(weight_decay: Any, features: float) -> tuple[float, float]:
    """Return the weight decays of weights and features.

    One number λ becomes (λ, λ/`features`), because it penalises the mean squared feature.
    `features` is the number of samples or, with `average="classes"`, of classes.
    """
    single = isinstance(weight_decay, Real)
    if single:
        value = as_number("weight_decay", weight_decay)
        pair = (value, value / features)
    else:
        pair = _pair("weight_decay", weight_decay)
    if min(pair) < 0 or (min(pair) == 0) != (max(pair) == 0):
        got = weight_decay if single else pair
        raise DataError(
            f"Expected weight_decay above 0, or 0 for the limit without weight decay, got {got}."
        )
    if max(pair) > 0:
        _check_size("weight_decay", *pair)
    return pair


def _pair(name: str, values: Any) -> tuple[float, float]:
    try:
        first, second = values
    except (TypeError, ValueError) as error:
        raise DataError(f"Expected {name} as two numbers, got {values!r}.") from error
    return as_number(name, first), as_number(name, second)


def _loss_option(name: str, value: float | None, loss: str) -> float:
    """Return the value of an option or its default; 0 if the loss does not have this option."""
    owner, default, limit = LOSS_OPTIONS[name]
    if loss != owner:
        if value is not None:
            raise DataError(
                f"Expected {name} only with loss {owner}, got {name}={value} with loss {loss}."
            )
        return 0.0
    number = default if value is None else as_number(name, value)
    if not 0 <= number < limit:
        raise DataError(f"Expected {name} in [0, {limit:g}), got {value}.")
    return number


def _targets(values: Any, num_classes: int, loss: str) -> Tensor | None:
    """Return the soft targets, or None if there are none; raise if they are not probabilities."""
    if values is None:
        return None
    if loss != "cross_entropy":
        raise DataError(f"Expected loss cross_entropy for soft targets, got {loss}.")
    targets = _as_tensor(values, "targets as a matrix of numbers")
    if targets.shape != (num_classes, num_classes):
        raise DataError(
            f"Expected targets of shape ({num_classes}, {num_classes}), one column per class, "
            f"got {tuple(targets.shape)}."
        )
    if not bool((targets >= 0).all()) or float((targets.sum(0) - 1).abs().max()) > 1e-6:
        raise DataError(
            "Expected targets whose columns are probabilities that sum to 1, got a negative entry "
            "or another sum."
        )
    return targets / targets.sum(0)


CLOSED = "closed form"
ROUNDED = 1e-12
"""Singular values below this size, relative to the largest one, count as zero."""


class Solution(NamedTuple):
    """Logits of an optimum with its loss, Gram matrices and proof."""

    logits: Tensor
    """(C, C) logits without bias; column c holds those of class c."""
    bias: Tensor
    """(C,) bias; zeros if there is none."""
    loss: float
    penalty: float
    """Penalty of weights, features and bias together."""
    left: Tensor
    """(C, C) Gram matrix of the classifier, up to a factor; exact for equal weight decays."""
    right: Tensor
    """(C, C) Gram matrix of the class means, up to a factor; exact for equal weight decays."""
    geometry: str
    source: str
    norm: float
    """Product |W| |H|; `Setting.metric` defines |H|."""
    weight: float = 0.0
    """Geometric mean t of the weight decays."""
    lower: float | None = None
    """Proved lower bound on the objective; None without a proof."""
    proof: str = ""
    notes: tuple[str, ...] = ()


def factor_grams(logits: Tensor, metric: Tensor, factors: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    r"""Return the Gram matrices of classifier and class means at the optimum with given logits.

    The third result holds the singular values of $M D^{1/2} = U\Sigma V^\top$, with M the logits
    and D the metric. At the optimum, each of the F factors of M has the singular values
    $\Sigma^{1/F}$. The classifier is the last factor, and the means are the product of the others.
    Singular values that are rounding errors are set to 0, because for three or more factors
    $\Sigma^{1/F}$ would be large.
    """
    roots = metric.sqrt()
    left, values, right = torch.linalg.svd(logits * roots)
    if factors > 2:
        values = torch.where(values > ROUNDED * values.max(), values, 0.0)
    outer = values ** (2 / factors)
    inner = values ** (2 - 2 / factors)
    grams = (left * outer) @ left.T, (right.T * inner) @ right / torch.outer(roots, roots)
    return *grams, values
