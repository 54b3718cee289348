"""Pictures of a training: metrics over epochs, a curve for each layer and split."""

from collections.abc import Mapping, Sequence
from typing import Any

from nclab.errors import NclabError
from nclab.figures.picture import Panel, Picture, Series, Style, finite

KINDS = (
    ("nc1_trace_pinv", "nc1_trace_ratio"),
    ("nc2_equiangularity_means",),
    ("nc3_self_duality",),
    ("loss",),
)
"""One metric of each is shown where none are named: the first that was measured."""
STYLES: tuple[Style, ...] = ("solid", "dashed", "dotted")
"""Of the first split, the second, the third."""


def history_picture(rows: Sequence[Mapping[str, Any]], metrics: Sequence[str] = ()) -> Picture:
    """A panel for each metric, logarithmic where every value is positive.

    >>> rows = [{"epoch": 1, "layer": "fc", "loss": 2.0}, {"epoch": 2, "layer": "fc", "loss": 1.0}]
    >>> history_picture(rows).panels[0].series[0].y
    [2.0, 1.0]
    """
    known = {key for row in rows for key, value in row.items() if type(value) is float}
    found = [next((name for name in names if name in known), "") for names in KINDS]
    chosen = list(metrics) or [name for name in found if name]
    if not chosen or (wrong := [name for name in chosen if name not in known]):
        got = f"got {wrong[0]!r}" if chosen else "got a history without any"
        there = f" Choose from {', '.join(sorted(known))}." if known else " Measure first."
        raise NclabError(f"Expected a metric that was measured, {got}.{there}")
    layers = list(dict.fromkeys(row.get("layer") for row in rows))
    splits = list(dict.fromkeys(row.get("split") for row in rows))
    panels = []
    for name in chosen:
        curves = []
        for place, layer in enumerate(layers):
            for split, style in zip(splits, STYLES, strict=False):
                own = [r for r in rows if (r.get("layer"), r.get("split")) == (layer, split)]
                own = [row for row in own if row.get(name) is not None]
                words = [str(layer or ""), split if len(splits) > 1 else ""]
                label = ", ".join(filter(None, words)) if len(layers) * len(splits) > 1 else ""
                x, y = ([row[key] for row in own] for key in ("epoch", name))
                if own:
                    line = Series(label, x, finite(y), colour=place, style=style)
                    curves.append(line._replace(marker="filled" if len(own) < 30 else "none"))
        values = [value for line in curves for value in line.y if value is not None]
        scale: Any = "log" if values and min(values) > 0 else "linear"
        panels.append(Panel(name, "epoch", "", tuple(curves), y_scale=scale))
    return Picture("history", "", tuple(panels), min(4, len(panels)), "", (3.1, 2.6))
