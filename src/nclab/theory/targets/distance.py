"""How far a network is from a target, beside how far it is from the simplex ETF."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from nclab.errors import DataError
from nclab.frame import as_frame
from nclab.text import Printed, number
from nclab.theory.targets.result import Target

if TYPE_CHECKING:
    from pandas import DataFrame


def gram_distance(gram: Tensor, other: Tensor) -> float | None:
    r"""Distance of two Gram matrices, each divided by its norm.

    $$\|G/\|G\|_F - G^*/\|G^*\|_F\|_F$$

    Range: [0, sqrt 2]; 0 for the same geometry at any scale. None where one is zero.

    >>> gram_distance(torch.eye(3), 2 * torch.eye(3))
    0.0
    """
    sizes = gram.norm(), other.norm()
    if min(float(size) for size in sizes) == 0:
        return None
    return float((gram / sizes[0] - other / sizes[1]).norm())


@dataclass(frozen=True, eq=False, repr=False)
class TargetDistance(Printed):
    """A network against its target; distances are of normalised Gram matrices."""

    geometry: str
    """Of the target."""
    means: float | None
    """Class means around their mean, on both sides."""
    means_raw: float | None
    """Class means as they are."""
    classifier: float | None
    """Rows around their mean, on both sides."""
    classifier_raw: float | None
    etf: dict[str, float | None]
    """The same four distances to the simplex ETF."""
    apart: float | None
    """Centred class means of the target from the simplex ETF; None where it is zero."""
    mean_norm_ratios: Tensor
    """(C,) norm of each class mean over the target's; inf where the target has none. Of a limit,
    whose norms grow without end, divided by their mean."""
    classifier_norm_ratios: Tensor | None
    """(C,) likewise of the rows."""
    excess_loss: float | None
    """Mean loss over samples minus the target's; None where the two are no losses of one kind."""
    notes: tuple[str, ...] = field(default=())
    """What keeps the two from being compared in full."""

    @property
    def nearer(self) -> str:
        """Which of the two the class means are nearer to: target, etf, or the same."""
        here, there = self.means, self.etf["means"]
        if here is None or there is None or abs(here - there) < SAME:
            return "the same"
        return "target" if here < there else "etf"

    @property
    def is_etf(self) -> bool:
        """Whether the target itself is the simplex ETF, as far as centred means tell."""
        return self.apart is not None and self.apart < SAME

    def in_words(self) -> str:
        """What the distances of the means say."""
        here, there = self.means, self.etf["means"]
        if here is None or there is None:
            return "The target or the network is zero: there is no distance."
        words = f"Class means: {number(here)} from their own optimum ({self.geometry})"
        if self.nearer == "the same":
            return words + ", as far as from the simplex ETF."
        nearer = "nearer than" if self.nearer == "target" else "farther than"
        return f"{words}, {nearer} from the simplex ETF ({number(there)})."

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; a ratio that does not exist is None."""
        names = ("geometry", "means", "means_raw", "classifier", "classifier_raw", "excess_loss")
        rows = self.classifier_norm_ratios
        return {
            **{name: getattr(self, name) for name in names},
            "etf": dict(self.etf),
            "apart": self.apart,
            "mean_norm_ratios": _finite(self.mean_norm_ratios),
            "classifier_norm_ratios": None if rows is None else _finite(rows),
            "notes": list(self.notes),
        }

    def __rich__(self) -> Any:
        from rich.console import Group
        from rich.table import Table

        table = Table("distance of", header_style="bold")
        table.add_column("to the target", justify="right")
        table.add_column("to the ETF", justify="right")
        for name, words in (
            ("means", "class means, centred"),
            ("means_raw", "class means"),
            ("classifier", "classifier, centred"),
            ("classifier_raw", "classifier"),
        ):
            table.add_row(words, number(getattr(self, name)), number(self.etf[name]))
        lines = [self.in_words()]
        for what, ratios in (
            ("means", self.mean_norm_ratios),
            ("rows", self.classifier_norm_ratios),
        ):
            if ratios is not None and bool(torch.isfinite(ratios).all()):
                low, high = float(ratios.min()), float(ratios.max())
                lines.append(f"Norms of {what} over the target's: {low:.4g} to {high:.4g}.")
        if self.excess_loss is not None:
            lines.append(f"Loss above the target's: {self.excess_loss:.4g}.")
        return Group(table, *lines, *(f"! {note}" for note in self.notes))

    def to_frame(self) -> "DataFrame":
        """A pandas table: the four distances, to the target and to the simplex ETF."""
        rows = [{"target": getattr(self, name), "etf": own} for name, own in self.etf.items()]
        return as_frame(rows, index=list(self.etf))


SAME = 1e-3
"""Distances that differ by less are the same."""


def distance_to(
    target: Target,
    means: Tensor,
    weight: Tensor | None = None,
    loss: float | None = None,
    *,
    counts: Tensor | None = None,
) -> TargetDistance:
    """From class means (C, d), classifier rows (C, d) and mean loss to a target.

    `counts` (C,) are those of the samples; a note says where the target has others.

    >>> from nclab.theory.targets.dispatch import target
    >>> corners = torch.eye(3, dtype=torch.float64)
    >>> found = distance_to(target(3, weight_decay=0.01), corners, corners)
    >>> round(found.means, 6), round(found.means_raw, 6), found.nearer
    (0.0, 0.605811, 'the same')
    """
    C = target.num_classes
    if len(means) != C or (weight is not None and len(weight) != C):
        raise DataError(f"Expected {len(means)} classes as measured, got a target of {C}.")
    P = torch.eye(C, dtype=torch.float64) - 1 / C
    limit = target.setting.weight_decay == (0.0, 0.0)
    etf: dict[str, float | None] = {}
    own: dict[str, float | None] = {}
    ratios: list[Tensor | None] = []
    for name, rows, gram in (
        ("means", means, target.mean_gram),
        ("classifier", weight, target.classifier_gram),
    ):
        if rows is None:
            for word in (name, f"{name}_raw"):
                own[word] = etf[word] = None
            ratios.append(None)
            continue
        rows = rows.detach().double().cpu()
        found = rows @ rows.T
        centred = _centred(found)
        own[name], etf[name] = gram_distance(centred, _centred(gram)), gram_distance(centred, P)
        own[f"{name}_raw"], etf[f"{name}_raw"] = gram_distance(found, gram), gram_distance(found, P)
        ratio = rows.norm(dim=1) / gram.diagonal().clamp(min=0).sqrt()
        ratios.append(ratio / ratio.mean() if limit else ratio)
    assert ratios[0] is not None
    notes = []
    if limit:
        notes.append("The target is a limit: norms are compared up to scale, its loss of 0 is not.")
        loss = None
    if counts is not None and not _proportional(counts.detach().double().cpu(), target.counts):
        notes.append(
            "The target is one of other counts than those measured: it is not where this goes."
        )
    return TargetDistance(
        geometry=target.geometry,
        etf=etf,
        apart=gram_distance(_centred(target.mean_gram), P),
        mean_norm_ratios=ratios[0],
        classifier_norm_ratios=ratios[1],
        excess_loss=None if loss is None else loss - target.loss,
        notes=tuple(notes),
        **own,
    )


def _centred(gram: Tensor) -> Tensor:
    """P G P in one pass."""
    middle = gram.mean(0)
    return gram - middle - middle[:, None] + middle.mean()


def _proportional(one: Tensor, other: Tensor) -> bool:
    return bool(torch.allclose(one / one.sum(), other / other.sum(), rtol=1e-6, atol=0))


def _finite(values: Tensor) -> list[float | None]:
    return [value if value < float("inf") else None for value in values.tolist()]
