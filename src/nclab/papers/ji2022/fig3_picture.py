"""Figure 3 of ji2022 from the rows of its runs: four quantities on the paper's axes."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from nclab.errors import NclabError
from nclab.figures.picture import Panel, Picture, Reference, Series

PANELS = (
    (
        "(a) norms vary by",
        (
            ("nc2_norm_variation_means", "class means"),
            ("nc2_norm_variation_weights", "classifiers"),
        ),
    ),
    ("(b) within-class variation", (("nc1_within_variation", "features"),)),
    (
        "(c) cosines off −1/(C−1) by",
        (
            ("nc2_equiangularity_means", "class means"),
            ("nc2_equiangularity_weights", "classifiers"),
        ),
    ),
    ("(d) distance from self-duality", (("nc3_self_duality", "features and classifiers"),)),
)
SMALL = 0.1
FIRST_EPOCH = 2
"""log t of earlier ones is not above 0."""
Rows = Sequence[Mapping[str, Any]]


def panels(rows: Rows, *, title: str, name: str = "ji2022_fig3") -> Picture:
    """The four panels; lines are means over the seeds, bands reach from the least to the greatest.

    Source: ji2022, Fig. 3

    >>> quantities = [name for _, curves in PANELS for name, _ in curves]
    >>> rows = [{"seed": s, "epoch": t, **dict.fromkeys(quantities, 1 / (t + s))}
    ...         for s in (0, 1) for t in (1, 2, 4)]
    >>> first = panels(rows, title="two seeds").panels[0].series[0]
    >>> [round(math.exp(x)) for x in first.x], first.high
    ([2, 4], [0.5, 0.25])
    """
    seeds = {row["seed"] for row in rows}
    shared = _shared_epochs(rows, len(seeds))
    if len(shared) < 2:
        raise NclabError(
            f"Expected measurements of every seed at two epochs from {FIRST_EPOCH} on, got "
            f"{len(shared)}. Train for longer."
        )
    drawn = tuple(
        Panel(
            panel_title,
            "log t, t in epochs",
            "",
            tuple(
                _series(rows, shared, quantity, label, colour, spread=len(seeds) > 1)
                for colour, (quantity, label) in enumerate(curves)
            ),
            x_scale="loglog",
            y_scale="log",
            references=(Reference("0.1", y=SMALL),) if len(curves) > 1 else (),
        )
        for panel_title, curves in PANELS
    )
    spread = f" Lines are means over {len(seeds)} seeds, bands the range." if len(seeds) > 1 else ""
    return Picture(
        name,
        title,
        drawn,
        columns=4,
        caption="Logarithm of each quantity over log log t, as in ji2022, Fig. 3; a line of slope "
        f"−1 would be 1/log t.{spread}",
    )


def _shared_epochs(rows: Rows, seeds: int) -> list[int]:
    """Epochs from the second on that every seed has been measured at."""
    epochs = [row["epoch"] for row in rows]
    return sorted(t for t in set(epochs) if t >= FIRST_EPOCH and epochs.count(t) == seeds)


def _series(
    rows: Rows, epochs: Sequence[int], name: str, label: str, colour: int, *, spread: bool
) -> Series:
    columns = [
        [row[name] for row in rows if row["epoch"] == epoch and row[name] is not None]
        for epoch in epochs
    ]
    return Series(
        label,
        [math.log(epoch) for epoch in epochs],
        [sum(values) / len(values) if values else None for values in columns],
        low=[min(values, default=None) for values in columns] if spread else None,
        high=[max(values, default=None) for values in columns] if spread else None,
        colour=colour,
        style="solid" if colour == 0 else "dashed",
    )
