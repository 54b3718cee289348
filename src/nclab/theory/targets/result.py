"""`Target`, the result of `nclab.target`: numbers by class, a table and a figure."""

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from rich.console import Group as Lines
from rich.table import Table
from rich.text import Text
from torch import Tensor

from nclab.text import Printed, as_frame, number
from nclab.theory.targets.setting import Setting

if TYPE_CHECKING:
    from pandas import DataFrame

    from nclab.figures.matplotlib_renderer import Drawing

SHOWN = 100
"""Largest number of classes for which `to_dict` includes the C x C arrays."""
NOTHING = 1e-6
"""Norms and distances count as zero below this size, relative to the largest one."""


class CountGroup(NamedTuple):
    """Classes with the same count, and their values at the optimum."""

    samples: float
    """Number of samples of each class."""
    classes: tuple[int, ...]
    logit_gap: float
    """Correct logit minus the largest other logit, both with bias."""
    probability: float
    """Probability of the correct class; for the squared error, the logit of the correct class."""
    classifier_norm: float
    mean_norm: float
    classifier_cosine: float | None
    """Cosine between the classifier rows of two classes of the group."""
    mean_cosine: float | None
    state: str
    """"merged" if the classes share one mean, "lost" if their mean is zero, otherwise empty."""


@dataclass(frozen=True, eq=False, repr=False)
class Target(Printed):
    """Optimum of a setting: the geometry that a network should reach, with its proof.

    >>> import nclab
    >>> result = nclab.target(counts=[10, 10, 10, 1, 1, 1], weight_decay=(0.02, 0.02))
    >>> round(result.objective, 6), result.geometry, result.relative_gap < 1e-9
    (0.829753, 'between simplex ETF and SELI', True)
    """

    setting: Setting
    logits: Tensor
    """(C, C) logits without bias; column c holds the logits of class c."""
    bias: Tensor
    """(C,) bias; zeros if there is none."""
    classifier_gram: Tensor
    """(C, C) Gram matrix W W^T."""
    mean_gram: Tensor
    """(C, C) inner products of the class means of the classifier's inputs."""
    loss: float
    """Mean loss over samples."""
    objective: float | None
    """Loss with penalties; None for given norms."""
    lower_bound: float | None
    """Proved lower bound on the objective, or on the loss for given norms; None without a proof."""
    proof: str
    geometry: str
    source: str
    weight: float
    """Geometric mean t of the weight decays; for given norms, the t that has the same optimum."""
    notes: tuple[str, ...] = field(default=())

    @property
    def num_classes(self) -> int:
        return self.setting.num_classes

    @property
    def counts(self) -> Tensor:
        return self.setting.counts

    @property
    def value(self) -> float:
        """Number that the proof bounds: the objective, or the loss for given norms."""
        return self.loss if self.objective is None else self.objective

    @property
    def relative_gap(self) -> float | None:
        """Largest possible relative distance of the value to the optimum; None without a proof."""
        if self.lower_bound is None:
            return None
        return max(0.0, self.value - self.lower_bound) / max(self.value, 1e-300)

    @property
    def is_zero(self) -> bool:
        """Whether all logits except the bias are zero, because the penalty is too strong."""
        return logits_are_zero(self.setting, self.logits)

    @property
    def classifier_norms(self) -> Tensor:
        return self.classifier_gram.diagonal().clamp(min=0).sqrt()

    @property
    def mean_norms(self) -> Tensor:
        return self.mean_gram.diagonal().clamp(min=0).sqrt()

    @property
    def classifier_cosines(self) -> Tensor:
        """(C, C) cosines of classifier rows; 0 for rows that are zero."""
        return cosines(self.classifier_gram)

    @property
    def mean_cosines(self) -> Tensor:
        """(C, C) cosines of class means; 0 for means that are zero."""
        return cosines(self.mean_gram)

    @property
    def groups(self) -> list[CountGroup]:
        """Groups of classes with equal counts, largest count first; values are group averages."""
        distinct, group_index = (-self.counts).unique(return_inverse=True)
        rows, means = self.classifier_cosines, self.mean_cosines
        full = self.logits + self.bias[:, None]
        correct = full.diagonal()
        others = full.clone()
        others.diagonal().fill_(-math.inf)
        gaps = correct - others.amax(0)
        probabilities = correct if self.setting.loss == "mse" else torch.softmax(full, 0).diagonal()
        groups = []
        for index, count in enumerate((-distinct).tolist()):
            inside = (group_index == index).nonzero().flatten()
            groups.append(
                CountGroup(
                    samples=count,
                    classes=tuple(inside.tolist()),
                    logit_gap=float(gaps[inside].mean()),
                    probability=float(probabilities[inside].mean()),
                    classifier_norm=float(self.classifier_norms[inside].mean()),
                    mean_norm=float(self.mean_norms[inside].mean()),
                    classifier_cosine=_off_diagonal(rows, inside),
                    mean_cosine=_off_diagonal(means, inside),
                    state=self._state(inside),
                )
            )
        return groups

    @property
    def merged(self) -> tuple[tuple[int, ...], ...]:
        """Groups in which all classes have the same mean, each as a tuple of classes."""
        return tuple(group.classes for group in self.groups if group.state == "merged")

    @property
    def lost(self) -> tuple[int, ...]:
        """Classes whose mean is zero."""
        return tuple(c for group in self.groups if group.state == "lost" for c in group.classes)

    def _state(self, inside: Tensor) -> str:
        """Return "lost", "merged" or an empty string for the classes of one group."""
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
        """Return plain JSON values, with the C x C arrays up to 100 classes."""
        names = ["weight", "geometry", "is_zero", "loss", "objective", "lower_bound"]
        names += ["relative_gap", "proof", "source"]
        arrays = ("logits", "classifier_gram", "mean_gram", "classifier_cosines", "mean_cosines")
        small = self.num_classes <= SHOWN
        return {
            "num_classes": self.num_classes,
            "counts": self.counts.tolist(),
            **self.setting.to_dict(),
            "loss_function": self.setting.loss,
            **{name: getattr(self, name) for name in names},
            "groups": [group._asdict() for group in self.groups],
            "merged": [list(classes) for classes in self.merged],
            "lost": list(self.lost),
            "bias_values": self.bias.tolist(),
            "classifier_norms": self.classifier_norms.tolist(),
            "mean_norms": self.mean_norms.tolist(),
            **{name: getattr(self, name).tolist() if small else None for name in arrays},
            "notes": list(self.notes),
        }

    def plot(self, dark: bool = False) -> "Drawing":
        """Return a matplotlib figure and its panels: cosines, and norms by class."""
        from nclab.figures.matplotlib_renderer import plot
        from nclab.figures.measured import target_picture

        return plot(target_picture(self.to_dict()), dark)

    def __rich__(self) -> Any:
        return target_table(self)

    def to_frame(self) -> "DataFrame":
        """Return `groups` as a pandas table, one row per class count (samples of a class)."""
        return as_frame(group._asdict() for group in self.groups)


def cosines(gram: Tensor) -> Tensor:
    """Return (C, C) cosines of a Gram matrix; 0 for vectors without direction."""
    norms = gram.diagonal().clamp(min=0).sqrt()
    nonzero = norms > NOTHING * norms.max()
    inverse = torch.where(nonzero, 1 / norms.clamp(min=1e-300), 0.0)
    return gram * torch.outer(inverse, inverse)


def _off_diagonal(values: Tensor, inside: Tensor) -> float | None:
    """Return the mean of `values` over pairs of classes in `inside`; None for a single class."""
    size = len(inside)
    if size < 2:
        return None
    block = values[inside][:, inside]
    return float((block.sum() - block.diagonal().sum()) / (size * (size - 1)))


def logits_are_zero(setting: Setting, logits: Tensor) -> bool:
    """Whether all logits are zero up to rounding."""
    scale = 1.0 if setting.norms is None else min(1.0, setting.norms[0] * setting.norms[1])
    return float(logits.abs().max()) < 1e-9 * scale


TABLE_GROUPS = 12
"""Largest number of groups in the table; with more, the table shows the first and last ones."""


def target_table(target: Target) -> Lines:
    """Return a table of the groups, followed by loss, proof and merged or lost classes."""
    table = Table(header_style="bold")
    norms_and_cosines = ("‖row‖", "‖mean‖", "cos of rows", "cos of means")
    for name in ("samples", "classes", "logit gap", *norms_and_cosines):
        table.add_column(name, justify="right")
    groups = target.groups
    has_states = any(group.state for group in groups)
    if has_states:
        table.add_column("state")
    half = TABLE_GROUPS // 2
    shown = groups if len(groups) <= TABLE_GROUPS else [*groups[:half], None, *groups[-half:]]
    for group in shown:
        cells = _cells(group) if group is not None else ("…",) * 8
        table.add_row(*(cells if has_states else cells[:-1]))
    return Lines(table, *(Text(line) for line in lines(target)))


def lines(target: Target) -> list[str]:
    """Return the lines below the table: loss, proof, and lost or merged classes."""
    value = f"loss {target.loss:.10g}"
    if target.objective is not None:
        value += f", with penalties {target.objective:.10g}"
    text = [f"{target.geometry}: {value}"]
    gap = target.relative_gap
    proof = f"proof: {target.proof}"
    if gap is not None and target.proof == "duality gap":
        proof += f" {gap:.1e} of the value"
    elif gap is not None and "no proof" in target.proof:
        proof += f"; the optimum is lower by at most {gap:.1e} of the value"
    text.append(f"{proof} ({target.source})")
    if target.is_zero:
        penalised = target.setting.norms is None
        why = "The penalty is too strong" if penalised else "The norms cannot lower the loss"
        text.append(f"{why}: at the optimum everything except the bias is zero.")
    elif target.lost:
        text.append(f"Lost classes (mean of zero): {_some(target.lost)}.")
    for classes in target.merged[:5]:
        text.append(f"Merged classes (one shared mean): {_some(classes)}.")
    return [*text, *target.notes]


def _some(classes: tuple[int, ...]) -> str:
    indices = ", ".join(str(c) for c in classes[:10])
    return indices + (f" and {len(classes) - 10} more" if len(classes) > 10 else "")


def _cells(group: CountGroup) -> tuple[str, ...]:
    values = (group.logit_gap, group.classifier_norm, group.mean_norm)
    cosines = (group.classifier_cosine, group.mean_cosine)
    texts = (number(value) for value in (*values, *cosines))
    return f"{group.samples:g}", str(len(group.classes)), *texts, group.state
