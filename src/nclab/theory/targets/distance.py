"""Distance of a network to a target, compared with its distance to the simplex ETF."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from nclab.errors import DataError
from nclab.text import Printed, as_frame, number
from nclab.theory.targets.result import Target

if TYPE_CHECKING:
    from pandas import DataFrame


def gram_distance(gram: Tensor, other: Tensor) -> float | None:
    r"""Return the distance of two Gram matrices after each is divided by its norm.

    $$\|G/\|G\|_F - G^*/\|G^*\|_F\|_F$$

    Range: [0, sqrt 2]; 0 for the same geometry at any scale. None if a matrix is zero.
    """
    sizes = gram.norm(), other.norm()
    if min(float(size) for size in sizes) == 0:
        return None
    return float((gram / sizes[0] - other / sizes[1]).norm())


@dataclass(frozen=True, eq=False, repr=False)
class TargetDistance(Printed):
    """Distances of a network to a target and to the simplex ETF.

    They are distances between Gram matrices divided by their norms (`gram_distance`).
    """

    geometry: str
    """Name of the target's geometry."""
    means: float | None
    """Distance of the class means to the target, both centred."""
    means_raw: float | None
    """Distance of the class means to the target without centring."""
    classifier: float | None
    """Distance of the classifier rows to the target, both centred."""
    classifier_raw: float | None
    """Distance of the classifier rows to the target without centring."""
    etf: dict[str, float | None]
    """Distances to the simplex ETF; keys `means`, `means_raw`, `classifier`, `classifier_raw`."""
    apart: float | None
    """Distance between target and simplex ETF (centred class means); None if the target is zero."""
    mean_norm_ratios: Tensor
    """(C,) norm of each class mean divided by its norm in the target; inf if the latter is zero. If
    the target is the limit of no weight decay, where norms are infinite, these ratios are divided
    by their mean."""
    classifier_norm_ratios: Tensor | None
    """(C,) norm of each classifier row divided by its norm in the target, treated like
    `mean_norm_ratios`."""
    excess_loss: float | None
    """Mean loss over samples minus the target's loss; None if the two cannot be compared."""
    notes: tuple[str, ...] = field(default=())
    """Reasons why network and target cannot be compared in full."""

    @property
    def nearer(self) -> str:
        """Name of the geometry nearer to the class means: "target", "etf" or "the same"."""
        to_target, to_etf = self.means, self.etf["means"]
        if to_target is None or to_etf is None or abs(to_target - to_etf) < SAME:
            return "the same"
        return "target" if to_target < to_etf else "etf"

    def in_words(self) -> str:
        """Return one sentence about the distances of the class means."""
        to_target, to_etf = self.means, self.etf["means"]
        if to_target is None or to_etf is None:
            return "The class means of the target or of the network are zero: no distance."
        sentence = f"The class means have distance {number(to_target)} to the target "
        sentence += f"({self.geometry})"
        if self.nearer == "the same":
            return f"{sentence} and the same distance to the simplex ETF."
        nearer = "target" if self.nearer == "target" else "simplex ETF"
        return f"{sentence} and {number(to_etf)} to the simplex ETF: the {nearer} is nearer."

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values; an undefined ratio is None."""
        names = ("geometry", *DISTANCES, "excess_loss")
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
        for name, words in DISTANCES.items():
            table.add_row(words, number(getattr(self, name)), number(self.etf[name]))
        lines = [self.in_words()]
        for name_of_rows, ratios in (
            ("means", self.mean_norm_ratios),
            ("rows", self.classifier_norm_ratios),
        ):
            if ratios is not None and bool(torch.isfinite(ratios).all()):
                low, high = float(ratios.min()), float(ratios.max())
                ratio = f"{low:.4g} to {high:.4g}"
                lines.append(f"Norms of {name_of_rows} divided by those of the target: {ratio}.")
        if self.excess_loss is not None:
            lines.append(f"Loss minus the loss of the target: {self.excess_loss:.4g}.")
        return Group(table, *lines, *(f"! {note}" for note in self.notes))

    def to_frame(self) -> "DataFrame":
        """Return a pandas table of the four distances, to the target and to the simplex ETF."""
        rows = [{"target": getattr(self, name), "etf": self.etf[name]} for name in self.etf]
        return as_frame(rows, index=list(self.etf))


DISTANCES = {
    "means": "class means, centred",
    "means_raw": "class means",
    "classifier": "classifier, centred",
    "classifier_raw": "classifier",
}
"""Names of the four distances, and their labels in the table."""
SAME = 1e-3
"""Two distances count as equal if they differ by less than this."""


def distance_to(
    target: Target,
    means: Tensor,
    weight: Tensor | None = None,
    loss: float | None = None,
    *,
    counts: Tensor | None = None,
) -> TargetDistance:
    """Return the distances of class means (C, d) and classifier rows (C, d) to a target.

    `counts` (C,) are the class counts of the network; if the target has other counts, a note says
    so.
    """
    C = target.num_classes
    if len(means) != C or (weight is not None and len(weight) != C):
        raise DataError(
            f"Expected a target with {len(means)} classes, like the network, got a target with {C} "
            "classes."
        )
    P = torch.eye(C, dtype=torch.float64) - 1 / C
    limit = target.setting.weight_decay == (0.0, 0.0)
    etf: dict[str, float | None] = dict.fromkeys(DISTANCES)
    distances: dict[str, float | None] = dict.fromkeys(DISTANCES)
    ratios: dict[str, Tensor] = {}
    for name, rows, gram in (
        ("means", means, target.mean_gram),
        ("classifier", weight, target.classifier_gram),
    ):
        if rows is None:
            continue
        rows = rows.detach().double().cpu()
        measured = rows @ rows.T
        centred, raw = _centred(measured), f"{name}_raw"
        distances[name], etf[name] = (gram_distance(centred, G) for G in (_centred(gram), P))
        distances[raw], etf[raw] = (gram_distance(measured, G) for G in (gram, P))
        ratio = rows.norm(dim=1) / gram.diagonal().clamp(min=0).sqrt()
        ratios[name] = ratio / ratio.mean() if limit else ratio
    notes = []
    if limit:
        notes.append(
            "The target is a limit: norms are compared up to scale, and losses are not compared."
        )
        loss = None
    if counts is not None:
        sizes, expected = counts.detach().double().cpu(), target.counts
        if not torch.allclose(sizes / sizes.sum(), expected / expected.sum(), rtol=1e-6, atol=0):
            notes.append(
                "The target has other counts than the network, which will not reach this target."
            )
    return TargetDistance(
        geometry=target.geometry,
        etf=etf,
        apart=gram_distance(_centred(target.mean_gram), P),
        mean_norm_ratios=ratios["means"],
        classifier_norm_ratios=ratios.get("classifier"),
        excess_loss=None if loss is None else loss - target.loss,
        notes=tuple(notes),
        **distances,
    )


def _centred(gram: Tensor) -> Tensor:
    """Return the Gram matrix of centred vectors, P G P with P = I - 11^T/C."""
    middle = gram.mean(0)
    return gram - middle - middle[:, None] + middle.mean()


def _finite(values: Tensor) -> list[float | None]:
    return [value if value < float("inf") else None for value in values.tolist()]
