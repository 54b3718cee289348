"""How far a network is from a target, beside how far it is from the simplex ETF."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from nclab.errors import DataError
from nclab.frame import as_frame
from nclab.text import Printed, number
from nclab.theory.targets.target import Target

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
    mean_norm_ratios: Tensor
    """(C,) norm of each class mean over the target's; inf where the target has none."""
    classifier_norm_ratios: Tensor | None
    """(C,) likewise of the rows."""
    excess_loss: float | None
    """Mean loss over samples minus the target's."""

    @property
    def nearer(self) -> str:
        """Which of the two the class means are nearer to: target, etf, or the same."""
        here, there = self.means, self.etf["means"]
        if here is None or there is None or abs(here - there) < 1e-3:
            return "the same"
        return "target" if here < there else "etf"

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
            "mean_norm_ratios": _finite(self.mean_norm_ratios),
            "classifier_norm_ratios": None if rows is None else _finite(rows),
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
        return Group(table, *lines)

    def to_frame(self) -> "DataFrame":
        """A pandas table: the four distances, to the target and to the simplex ETF."""
        rows = [{"target": getattr(self, name), "etf": own} for name, own in self.etf.items()]
        return as_frame(rows, index=list(self.etf))


def distance_to(
    target: Target, means: Tensor, weight: Tensor | None = None, loss: float | None = None
) -> TargetDistance:
    """From class means (C, d), classifier rows (C, d) and mean loss to a target.

    >>> from nclab.theory.targets.target import target
    >>> corners = torch.eye(3, dtype=torch.float64)
    >>> found = distance_to(target(3, weight_decay=0.01), corners, corners)
    >>> round(found.means, 6), round(found.means_raw, 6), found.nearer
    (0.0, 0.605811, 'the same')
    """
    C = target.num_classes
    if len(means) != C or (weight is not None and len(weight) != C):
        raise DataError(f"Expected {len(means)} classes as measured, got a target of {C}.")
    P = torch.eye(C, dtype=torch.float64) - 1 / C
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
        centred = P @ found @ P
        own[name], etf[name] = gram_distance(centred, P @ gram @ P), gram_distance(centred, P)
        own[f"{name}_raw"], etf[f"{name}_raw"] = gram_distance(found, gram), gram_distance(found, P)
        ratios.append(rows.norm(dim=1) / gram.diagonal().clamp(min=0).sqrt())
    assert ratios[0] is not None
    return TargetDistance(
        geometry=target.geometry,
        etf=etf,
        mean_norm_ratios=ratios[0],
        classifier_norm_ratios=ratios[1],
        excess_loss=None if loss is None else loss - target.loss,
        **own,
    )


def _finite(values: Tensor) -> list[float | None]:
    return [value if value < float("inf") else None for value in values.tolist()]
