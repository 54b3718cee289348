"""target: where a network of a given setting should end."""

import json
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from nclab.frame import as_frame
from nclab.text import Printed
from nclab.theory.targets.routes import solve_setting
from nclab.theory.targets.setting import Setting, checked
from nclab.theory.targets.solved import Solved

if TYPE_CHECKING:
    from pandas import DataFrame

    from nclab.figures.drawing import Drawing

SHOWN = 100
"""Up to this many classes `to_dict` has the C x C arrays."""
NOTHING = 1e-6
"""Norms and distances this small, relatively, are zero."""


class CountGroup(NamedTuple):
    """Classes of one count at the optimum."""

    samples: float
    """Of each class."""
    classes: tuple[int, ...]
    logit_gap: float
    """The own logit minus the largest other, with bias."""
    probability: float
    """Of the own class; of a squared error its logit."""
    classifier_norm: float
    mean_norm: float
    classifier_cosine: float | None
    """Between two classes of the group."""
    mean_cosine: float | None
    state: str
    """merged, lost or empty."""


@dataclass(frozen=True, eq=False, repr=False)
class Target(Printed):
    """The optimum of a setting: what a network of it should reach, and how sure that is.

    >>> found = target(counts=[10, 10, 10, 1, 1, 1], weight_decay=(0.02, 0.02))
    >>> round(found.objective, 6), found.geometry, found.relative_gap < 1e-9
    (0.829753, 'between simplex ETF and SELI', True)
    """

    setting: Setting
    logits: Tensor
    """(C, C) without bias; column c holds the logits of class c."""
    bias: Tensor
    """(C,) zeros where there is none."""
    classifier_gram: Tensor
    """(C, C) W W^T."""
    mean_gram: Tensor
    """(C, C) inner products of the class means that the classifier reads."""
    loss: float
    """Mean over samples."""
    objective: float | None
    """With penalties; None for given norms."""
    lower_bound: float | None
    """Proved of the objective, or of the loss for given norms; None without a proof."""
    proof: str
    geometry: str
    source: str
    weight: float
    """t, the geometric mean of the weight decays; for given norms that with the same optimum."""
    notes: tuple[str, ...] = field(default=())

    @property
    def num_classes(self) -> int:
        """C."""
        return self.setting.num_classes

    @property
    def counts(self) -> Tensor:
        """(C,) samples of each class."""
        return self.setting.counts

    @property
    def value(self) -> float:
        """What the proof is about: the objective, or the loss for given norms."""
        return self.loss if self.objective is None else self.objective

    @property
    def relative_gap(self) -> float | None:
        """How far the value can be from the optimum, relatively; None without a proof."""
        if self.lower_bound is None:
            return None
        return max(0.0, self.value - self.lower_bound) / max(self.value, 1e-300)

    @property
    def is_zero(self) -> bool:
        """Whether all logits but the bias are zero: the penalty is too strong."""
        return _is_zero(self.setting, self.logits)

    @property
    def classifier_norms(self) -> Tensor:
        """(C,)."""
        return self.classifier_gram.diagonal().clamp(min=0).sqrt()

    @property
    def mean_norms(self) -> Tensor:
        """(C,)."""
        return self.mean_gram.diagonal().clamp(min=0).sqrt()

    @property
    def classifier_cosines(self) -> Tensor:
        """(C, C); 0 beside a row that is zero."""
        return cosines(self.classifier_gram)

    @property
    def mean_cosines(self) -> Tensor:
        """(C, C); 0 beside a mean that is zero."""
        return cosines(self.mean_gram)

    @property
    def groups(self) -> list[CountGroup]:
        """The classes by count, largest first; those of a group that differ are averaged."""
        distinct, place = (-self.counts).unique(return_inverse=True)
        rows, means = self.classifier_cosines, self.mean_cosines
        full = self.logits + self.bias[:, None]
        own = full.diagonal()
        others = full.clone()
        others.diagonal().fill_(-math.inf)
        gaps = own - others.amax(0)
        sure = own if self.setting.loss == "mse" else torch.softmax(full, 0).diagonal()
        found = []
        for number, count in enumerate((-distinct).tolist()):
            inside = (place == number).nonzero().flatten()
            found.append(
                CountGroup(
                    samples=count,
                    classes=tuple(inside.tolist()),
                    logit_gap=float(gaps[inside].mean()),
                    probability=float(sure[inside].mean()),
                    classifier_norm=float(self.classifier_norms[inside].mean()),
                    mean_norm=float(self.mean_norms[inside].mean()),
                    classifier_cosine=_off_diagonal(rows, inside),
                    mean_cosine=_off_diagonal(means, inside),
                    state=self._state(inside),
                )
            )
        return found

    @property
    def merged(self) -> tuple[tuple[int, ...], ...]:
        """Classes that share one mean although they differ, in groups."""
        return tuple(group.classes for group in self.groups if group.state == "merged")

    @property
    def lost(self) -> tuple[int, ...]:
        """Classes whose mean is zero."""
        return tuple(c for group in self.groups if group.state == "lost" for c in group.classes)

    def _state(self, inside: Tensor) -> str:
        size = float(self.mean_norms.max())
        if self.is_zero or float(self.mean_norms[inside].max()) <= NOTHING * size:
            return "lost"
        if len(inside) < 2:
            return ""
        a, b = int(inside[0]), int(inside[1])
        gram = self.mean_gram
        apart = float(gram[a, a] + gram[b, b] - 2 * gram[a, b])
        return "merged" if apart <= NOTHING**2 * float(gram[a, a] + gram[b, b]) else ""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; the C x C arrays up to 100 classes."""
        arrays = ("logits", "classifier_gram", "mean_gram", "classifier_cosines", "mean_cosines")
        small = self.num_classes <= SHOWN
        return {
            "num_classes": self.num_classes,
            "counts": self.counts.tolist(),
            **self.setting.to_dict(),
            "loss_function": self.setting.loss,
            "weight": self.weight,
            "geometry": self.geometry,
            "is_zero": self.is_zero,
            "loss": self.loss,
            "objective": self.objective,
            "lower_bound": self.lower_bound,
            "relative_gap": self.relative_gap,
            "proof": self.proof,
            "source": self.source,
            "groups": [group._asdict() for group in self.groups],
            "merged": [list(classes) for classes in self.merged],
            "lost": list(self.lost),
            "bias_values": self.bias.tolist(),
            "classifier_norms": self.classifier_norms.tolist(),
            "mean_norms": self.mean_norms.tolist(),
            **{name: getattr(self, name).tolist() if small else None for name in arrays},
            "notes": list(self.notes),
        }

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(self.to_dict(), allow_nan=False)

    def plot(self, dark: bool = False) -> "Drawing":
        """A matplotlib figure and its panels: cosines of classifier and means, norms by class."""
        from nclab.figures.drawing import drawn
        from nclab.figures.targets import target_picture

        return drawn(target_picture(self.to_dict()), dark)

    def __rich__(self) -> Any:
        from nclab.theory.targets.target_table import target_table

        return target_table(self)

    def to_frame(self) -> "DataFrame":
        """A pandas table of the classes by count: `groups`.

        >>> target(counts=[9, 9, 1], weight_decay=0.01).to_frame()["samples"].tolist()
        [9.0, 1.0]
        """
        return as_frame(group._asdict() for group in self.groups)


def target(
    num_classes: int | None = None,
    *,
    counts: Any = None,
    dim: int | None = None,
    loss: str = "cross_entropy",
    weight_decay: float | tuple[float, float] | None = None,
    norms: tuple[float, float] | None = None,
    bias: float | None = None,
    features: str = "free",
    depth: int = 1,
    smoothing: float | None = None,
    focus: float | None = None,
    targets: Any = None,
    average: str = "samples",
) -> Target:
    r"""The optimum of a network whose features are free, and the proof of it.

    $$\min_{W,H,b}\; \tfrac1n\sum_i \ell(Wh_i+b, y_i) + \tfrac{\lambda_W}2\|W\|^2
    + \tfrac{\lambda_H}2\|H\|^2 + \tfrac{\lambda_b}2\|b\|^2$$

    docs/targets.md has every formula. For balanced classes and cross-entropy it is the simplex ETF.

    Args:
        num_classes: C with one sample each; or `counts`, the samples of every class.
        dim: dimension of the features; None for as many as the optimum wants.
        loss: cross_entropy, label_smoothing, focal or mse (half the squared error).
        weight_decay: (λ_W, λ_H); one number λ is a penalty of the mean squared feature, that is
            (λ, λ/n), or (λ, λ/C) where classes count once; 0 is the limit.
        norms: (α, β) instead: root mean square norm of all features, and of the classifier's rows.
        bias: penalty of the bias, 0 for a free one, None for no bias.
        features: free, or relu for features that are not negative.
        depth: linear maps behind the features; with relu features and mse, ReLU between them, and
            the features before the first map are free.
        smoothing: of label_smoothing, 0.1 unless given.
        focus: the exponent of focal, 2 unless given.
        targets: (C, C) soft targets of cross_entropy, a column for each class.
        average: norms of features by samples, or by classes (a class counts once).

    >>> found = target(10, weight_decay=5e-4)
    >>> found.geometry, round(found.loss, 9)
    ('simplex ETF', 0.001424038)
    """
    setting = checked(
        num_classes,
        counts,
        dim=dim,
        loss=loss,
        weight_decay=weight_decay,
        norms=norms,
        bias=bias,
        features=features,
        depth=depth,
        smoothing=smoothing,
        focus=focus,
        targets=targets,
        average=average,
    )
    return target_of(setting, solve_setting(setting))


def target_of(setting: Setting, found: Solved) -> Target:
    """A solved setting, with the norms shared out between classifier and features."""
    share = _share(setting, found)
    penalised = setting.weight_decay is not None
    return Target(
        setting=setting,
        logits=found.logits,
        bias=found.bias,
        classifier_gram=found.left * share,
        mean_gram=found.right / share,
        loss=found.loss,
        objective=found.loss + found.penalty if penalised else None,
        lower_bound=found.lower,
        proof=found.proof,
        geometry="zero" if _is_zero(setting, found.logits) else found.geometry,
        source=found.source,
        weight=found.weight,
        notes=found.notes,
    )


def _is_zero(setting: Setting, logits: Tensor) -> bool:
    """Of given norms, which may be tiny, relatively to what they allow."""
    allowed = 1.0 if setting.norms is None else min(1.0, setting.norms[0] * setting.norms[1])
    return float(logits.abs().max()) < 1e-9 * allowed


def _share(setting: Setting, found: Solved) -> float:
    """How much of the norm is the classifier's: |W|^2 = share |W||H|."""
    if setting.norms is not None:
        alpha, beta = setting.norms
        share = beta / alpha * math.sqrt(setting.num_classes / float(setting.metric.sum()))
        weights = float(found.left.diagonal().sum())  # a search may end with unequal halves
        features = float((setting.metric * found.right.diagonal()).sum())
        return share * (math.sqrt(features / weights) if weights > 0 else 1.0)
    assert setting.weight_decay is not None
    return setting.weight / setting.weight_decay[0] if setting.weight_decay[0] else 1.0


def cosines(gram: Tensor) -> Tensor:
    """(C, C) cosines of a Gram matrix; 0 beside what has no direction."""
    norms = gram.diagonal().clamp(min=0).sqrt()
    real = norms > NOTHING * norms.max()
    turned = torch.where(real, 1 / norms.clamp(min=1e-300), 0.0)
    return gram * torch.outer(turned, turned)


def _off_diagonal(values: Tensor, inside: Tensor) -> float | None:
    many = len(inside)
    if many < 2:
        return None
    block = values[inside][:, inside]
    return float((block.sum() - block.diagonal().sum()) / (many * (many - 1)))
