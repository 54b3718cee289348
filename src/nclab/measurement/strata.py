"""Strata: groups of classes by their frequency, from those with many samples to those with few."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor

from nclab.errors import DataError
from nclab.text import as_text

if TYPE_CHECKING:
    from nclab.measurement.collapse import Collapse

Share = Literal["samples", "classes"]
"""What every group has about the same number of."""
DECILES = 10
FEWEST = 20
"""Classes from which on every measurement shows groups of them, where they are uneven."""
UNEVEN = 5
"""Largest over smallest class from which on they are."""


class Stratum(NamedTuple):
    """Classes of about the same frequency. Averages are over their samples."""

    classes: int
    samples: int
    least: int
    """Samples of the smallest class."""
    most: int
    """Samples of the largest class."""
    within: float | None
    """Variance within classes over tr Σ_B of all; None where every class has one sample."""
    ncc_accuracy: float | None
    """How often the nearest of all class means is that of the own class."""
    accuracy: float | None
    loss: float | None
    alpha: float
    """Root mean square of the feature norms."""
    beta: float | None
    """Root mean square of the norms of the centred classifier rows, over classes."""
    alignment: float | None
    """Mean cosine of classifier row and class mean, over classes."""


@dataclass(frozen=True)
class Strata:
    """The groups, the most frequent classes first."""

    groups: tuple[Stratum, ...]
    by: Share

    def to_dicts(self) -> list[dict[str, Any]]:
        """One row for each group: `pandas.DataFrame(strata.to_dicts())`."""
        return [group._asdict() for group in self.groups]

    def __len__(self) -> int:
        return len(self.groups)

    def __iter__(self) -> Iterator[Stratum]:
        return iter(self.groups)

    def __getitem__(self, place: int) -> Stratum:
        return self.groups[place]

    def __rich__(self) -> Any:
        from nclab.measurement.strata_table import strata_table

        return strata_table(self.to_dicts())

    def _repr_html_(self) -> str:
        from nclab.measurement.strata_table import strata_html

        return strata_html(self.to_dicts())

    def __str__(self) -> str:
        return as_text(self)


def strata(collapse: "Collapse", groups: int = DECILES, by: Share = "samples") -> Strata:
    r"""Classes in groups by their number of samples, each with its own averages.

    Classes with the same number of samples are in the same group: the one that the middle of their
    share falls into, counted from the largest classes on. Groups may be empty and are then not
    there. The variance within classes is free of their size,

    $$\frac{\sum_c n_c\sigma_c^2}{\sum_c (n_c-1)} \Big/ \operatorname{tr}\Sigma_B,$$

    as a class of n samples shows only 1 - 1/n of it; nearest class means are not: a class of one
    sample is always nearest to itself.
    """
    if isinstance(groups, bool) or not isinstance(groups, int) or groups < 1:
        raise DataError(f"Expected groups=1 or more, got {groups!r}.")
    if by not in get_args(Share):
        raise DataError(f"Expected by={' or '.join(map(repr, get_args(Share)))}, got {by!r}.")
    place = _places(collapse.counts, groups, by)
    found = [_stratum(collapse, place == own) for own in place.unique().tolist()]
    return Strata(tuple(found), by)


def are_shown(counts: Tensor) -> bool:
    """Whether classes are many and uneven enough for tables to group them."""
    return len(counts) >= FEWEST and int(counts.max()) >= UNEVEN * int(counts.min())


def _places(counts: Tensor, groups: int, by: Share) -> Tensor:
    """(C,) the group of every class, from 0 for the largest."""
    sizes, own, times = counts.unique(return_inverse=True, return_counts=True)
    shares = (sizes * times if by == "samples" else times).double().flip(0)
    middles = (shares.cumsum(0) - shares / 2) / shares.sum()
    return (middles * groups).long().clamp_max(groups - 1).flip(0)[own]


def _stratum(collapse: "Collapse", chosen: Tensor) -> Stratum:
    counts = collapse.counts[chosen]
    weights = counts.double()

    def mean(values: Tensor | None, own: Tensor = weights) -> float | None:
        return None if values is None else float((values[chosen] * own).sum() / own.sum())

    look, each = collapse.look, torch.ones_like(weights)
    nearest = None
    if look is not None and not look.means_coincide:
        nearest = look.nearest_correct.double() / look.counts
    spare = int(counts.sum()) - len(counts)
    between = float(collapse.moments.centred_means.square().sum(1).mean())
    spread = float((collapse.variances[chosen] * weights).sum())
    alpha = mean(collapse.class_alpha.square())
    beta = mean(None if collapse.class_beta is None else collapse.class_beta.square(), each)
    assert alpha is not None
    return Stratum(
        classes=len(counts),
        samples=int(counts.sum()),
        least=int(counts.min()),
        most=int(counts.max()),
        within=spread / spare / between if spare and between else None,
        ncc_accuracy=mean(nearest),
        accuracy=mean(collapse.class_accuracy),
        loss=mean(collapse.class_loss),
        alpha=alpha**0.5,
        beta=None if beta is None else beta**0.5,
        alignment=mean(collapse.nc3_alignment, each),
    )
