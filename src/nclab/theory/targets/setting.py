"""A checked setting, and the solution of its optimisation problem."""

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
FOCUS = 2.0
SMOOTHING = 0.1
MOST_CLASSES = 5000
"""An optimum is some C x C matrices; beyond this they fill a memory."""
SMALLEST, LARGEST = 1e-100, 1e100
"""Weight decays, norms and counts beyond these have products that are no numbers."""
CHEAPEST, DEAREST = 1e-12, 1e9
"""A bias with a smaller penalty is free, one with a larger none, but for rounding."""


@dataclass(frozen=True, eq=False)
class Setting:
    """A checked setting; `target` says what the words mean."""

    counts: Tensor
    """(C,) samples of each class, float64."""
    dim: int | None
    loss: str
    smoothing: float
    focal_gamma: float
    """The exponent of the focal loss, else 0."""
    targets: Tensor | None
    """(C, C) columns of soft targets, if they are not hard or smoothed."""
    weight_decay: tuple[float, float] | None
    norms: tuple[float, float] | None
    bias: float | None
    features: str
    depth: int
    average: str

    @property
    def num_classes(self) -> int:
        """C."""
        return len(self.counts)

    @property
    def samples(self) -> float:
        """n."""
        return float(self.counts.sum())

    @property
    def metric(self) -> Tensor:
        """(C,) D, the weight of each class in the norm of the features."""
        return self.counts if self.average == "samples" else torch.ones_like(self.counts)

    @property
    def balanced(self) -> bool:
        """Whether classes differ in nothing."""
        return self.targets is None and bool((self.counts == self.counts[0]).all())

    @property
    def factors(self) -> int:
        """F, linear maps and features."""
        return self.depth + 1

    @property
    def weight(self) -> float:
        """The geometric mean of the weight decays of all factors; t for one linear map."""
        assert self.weight_decay is not None
        on_weights, on_features = self.weight_decay
        product = on_weights**self.depth * on_features
        if product > 0 or not min(on_weights, on_features):
            return product ** (1 / self.factors)
        each = self.depth * math.log(on_weights) + math.log(on_features)
        return math.exp(each / self.factors)

    @property
    def norm(self) -> float:
        """|W|_F |H|_F of given norms, H weighted by D."""
        assert self.norms is not None
        alpha, beta = self.norms
        return math.sqrt(self.num_classes * float(self.metric.sum())) * alpha * beta

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values, without the counts."""
        words = {"dim": self.dim, "loss": self.loss, "features": self.features}
        numbers = {"depth": self.depth, "bias": self.bias, "average": self.average}
        extra: dict[str, Any] = {"weight_decay": self.weight_decay, "norms": self.norms}
        if self.loss == "label_smoothing":
            extra["smoothing"] = self.smoothing
        if self.loss == "focal":
            extra["focal_gamma"] = self.focal_gamma
        if self.targets is not None:
            extra["targets"] = "given"
        plain = {name: list(v) if isinstance(v, tuple) else v for name, v in extra.items()}
        return {**words, **numbers, **plain}


def check_setting(
    num_classes: int | None,
    counts: Any,
    *,
    dim: int | None,
    loss: str,
    weight_decay: Any,
    norms: Any,
    bias: float | None,
    **rest: Any,
) -> Setting:
    """The setting, or one line that says what is wrong with it."""
    for name, value, known in (
        ("loss", loss, LOSSES),
        ("features", rest["features"], FEATURES),
        ("average", rest["average"], AVERAGES),
    ):
        if not isinstance(value, str) or value not in known:
            raise DataError(f"Expected {name} {' or '.join(known)}, got {value!r}.")
    many = _counts(num_classes, counts)
    C = len(many)
    least = 1 if loss == "mse" else min(2, C - 1)
    if dim is not None and (not _whole(dim) or dim < least):
        raise DataError(
            f"Expected dim of at least {least} for {C} classes and loss {loss}, got {dim!r}."
        )
    depth = rest["depth"]
    if not _whole(depth) or depth < 1:
        raise DataError(f"Expected depth as a number of linear maps, at least 1, got {depth!r}.")
    if (weight_decay is None) == (norms is None):
        got = "neither" if norms is None else "both"
        raise DataError(f"Expected weight_decay=(weights, features) or norms=(α, β), got {got}.")
    if bias is not None:
        _check_bias(bias, norms)
    if weight_decay is not None:
        features = float(many.sum()) if rest["average"] == "samples" else float(C)
        weight_decay = _decays(weight_decay, features)
    if norms is not None:
        norms = _pair("norms", norms)
        if min(norms) <= 0:
            raise DataError(f"Expected norms=(α, β) above 0, got {norms}.")
        _check_size("norms", *norms)
        if depth > 1:
            raise DataError(f"Expected weight_decay= beside depth={int(depth)}, got norms=.")
    smoothing = _between("smoothing", rest["smoothing"], SMOOTHING, loss == "label_smoothing", 1.0)
    focal_gamma = _between("focal_gamma", rest["focal_gamma"], FOCUS, loss == "focal", 100.0)
    targets = _targets(rest["targets"], C, loss)
    return Setting(
        many,
        None if dim is None else int(dim),
        loss,
        smoothing,
        focal_gamma,
        targets,
        weight_decay,
        norms,
        None if bias is None else float(bias),
        rest["features"],
        int(depth),
        rest["average"],
    )


def _check_bias(bias: Any, norms: Any) -> None:
    penalty = as_number("bias", bias)
    if penalty < 0:
        raise DataError(f"Expected bias as its penalty >= 0, or bias=None without one, got {bias}.")
    if penalty and norms is not None:
        raise DataError(f"Expected bias=0 or bias=None beside norms=, got its penalty {bias}.")
    if penalty and not CHEAPEST <= penalty <= DEAREST:
        raise DataError(
            f"Expected bias as its penalty from {CHEAPEST:g} to {DEAREST:g}, bias=0 for a free one "
            f"or bias=None without one, got {bias}."
        )


def _check_size(name: str, *values: float) -> None:
    """Refuse what is positive, but so small or large that its products are not numbers."""
    for value in values:
        if not SMALLEST <= value <= LARGEST:
            raise DataError(f"Expected {name} from {SMALLEST:g} to {LARGEST:g}, got {value:g}.")


def _counts(num_classes: int | None, counts: Any) -> Tensor:
    if counts is None:
        if num_classes is None:
            raise DataError("Expected num_classes= or counts=, got neither.")
        number = as_number("a number of classes", num_classes)
        if number < 2:
            raise DataError(f"Expected at least 2 classes, got {number:g}.")
        if number % 1 or number > MOST_CLASSES:
            raise DataError(_too_many(f"{number:g}"))
        counts = [1.0] * int(number)
    try:
        many = _exact(counts)
    except (TypeError, ValueError, RuntimeError) as error:
        raise DataError(f"Expected counts as numbers, got {counts!r}.") from error
    if many.ndim != 1 or len(many) < 2:
        got = len(many) if many.ndim == 1 else f"shape {tuple(many.shape)}"
        raise DataError(f"Expected counts of at least 2 classes, got {got}.")
    if len(many) > MOST_CLASSES:
        raise DataError(_too_many(str(len(many))))
    if num_classes is not None and num_classes != len(many):
        raise DataError(f"Expected counts of {num_classes} classes, got {len(many)}.")
    if not bool((torch.isfinite(many) & (many > 0)).all()):
        bad = int((torch.isfinite(many) & (many > 0)).long().argmin())
        raise DataError(f"Expected counts above 0, got {float(many[bad]):g} for class {bad}.")
    _check_size("counts", float(many.min()), float(many.max()))
    return many


def _exact(given: Any) -> Tensor:
    """float64, which plain lists of numbers would lose on the way through a tensor of them."""
    return torch.as_tensor(given, dtype=torch.float64).detach().cpu()


def _too_many(got: str) -> str:
    return f"Expected a whole number of classes from 2 to {MOST_CLASSES}, got {got}."


def _whole(value: Any) -> bool:
    return isinstance(value, Real) and math.isfinite(value) and float(value) % 1 == 0


def _decays(given: Any, features: float) -> tuple[float, float]:
    """Two weight decays; one of nclab's kind, on mean squared features, is λ and λ/`features`.

    The mean is over n samples or, where every class counts once, over C classes.
    """
    one = isinstance(given, Real)
    if one:
        value = as_number("weight_decay", given)
        pair = (value, value / features)
    else:
        pair = _pair("weight_decay", given)
    if min(pair) < 0 or (min(pair) == 0) != (max(pair) == 0):
        got = given if one else pair
        raise DataError(f"Expected weight_decay above 0, or 0 for the limit of none, got {got}.")
    if max(pair) > 0:
        _check_size("weight_decay", *pair)
    return pair


def _pair(name: str, given: Any) -> tuple[float, float]:
    try:
        first, second = given
    except (TypeError, ValueError) as error:
        raise DataError(f"Expected {name} as two numbers, got {given!r}.") from error
    return as_number(name, first), as_number(name, second)


def _between(name: str, value: float | None, usual: float, used: bool, most: float) -> float:
    if not used:
        if value is not None:
            raise DataError(f"Expected {name} only with the loss that has it, got {value}.")
        return 0.0
    number = usual if value is None else as_number(name, value)
    if not 0 <= number < most:
        raise DataError(f"Expected {name} in [0, {most:g}), got {value}.")
    return number


def _targets(given: Any, num_classes: int, loss: str) -> Tensor | None:
    if given is None:
        return None
    if loss != "cross_entropy":
        raise DataError(f"Expected soft targets with loss cross_entropy, got {loss}.")
    try:
        targets = _exact(given)
    except (TypeError, ValueError, RuntimeError) as error:
        raise DataError(f"Expected targets as a matrix of numbers, got {given!r}.") from error
    if targets.shape != (num_classes, num_classes):
        raise DataError(
            f"Expected targets of shape ({num_classes}, {num_classes}), a column for each class, "
            f"got {tuple(targets.shape)}."
        )
    if not bool((targets >= 0).all()) or float((targets.sum(0) - 1).abs().max()) > 1e-6:
        raise DataError("Expected targets whose columns are distributions, got others.")
    return targets / targets.sum(0)


CLOSED = "closed form"


class Solution(NamedTuple):
    """Logits of an optimum with its loss, Grams and proof."""

    logits: Tensor
    """(C, C) without bias; columns are classes."""
    bias: Tensor
    """(C,)."""
    loss: float
    penalty: float
    """Of weights, features and bias together."""
    left: Tensor
    """(C, C) Gram of the classifier when both weight decays are equal."""
    right: Tensor
    """(C, C) Gram of the features that it reads, likewise."""
    lower: float | None
    """Proved of the objective; None without a proof."""
    proof: str
    geometry: str
    source: str
    norm: float
    """|W| |H|, H weighted by D."""
    weight: float
    """t."""
    notes: tuple[str, ...] = ()


def factor_grams(logits: Tensor, metric: Tensor, factors: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    r"""Grams of the last factor and of the product of the others, and singular values.

    With $M D^{1/2} = U\Sigma V^\top$ all factors have singular values $\Sigma^{1/F}$.
    """
    roots = metric.sqrt()
    left, values, right = torch.linalg.svd(logits * roots)
    outer = values ** (2 / factors)
    inner = values ** (2 - 2 / factors)
    grams = (left * outer) @ left.T, (right.T * inner) @ right / torch.outer(roots, roots)
    return *grams, values
