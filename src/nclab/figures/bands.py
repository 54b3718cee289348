"""Intervals as bands around the lines of a picture of layers."""

from collections.abc import Mapping, Sequence
from typing import Any

from nclab.figures.picture import Panel, Picture, Series

Row = Mapping[str, Any]


def with_bands(picture: Picture, rows: Sequence[Row]) -> Picture:
    """The picture with a band around every line whose metric has intervals in the rows.

    A line is labelled by its metric and, where rows are of several data, by their split.

    >>> row = {"cdnv": 0.5, "intervals": {"cdnv": [0.4, 0.6, 0.0]}}
    >>> panel = Panel("NC1", "layer", "", (Series("cdnv", [1], [0.5]),))
    >>> with_bands(Picture("layers", "", (panel,)), [row]).panels[0].series[0].low
    [0.4]
    """
    panels = tuple(
        panel._replace(series=tuple(_banded(one, panel, rows) for one in panel.series))
        if isinstance(panel, Panel)
        else panel
        for panel in picture.panels
    )
    return picture._replace(panels=panels)


def _banded(series: Series, panel: Panel, rows: Sequence[Row]) -> Series:
    key, _, split = series.label.partition(", ")
    own = [row for row in rows if (row.get("split") or "") == split]
    found = [(row.get("intervals") or {}).get(key) for row in own]
    if not any(found) or len(own) != len(series.y):
        return series
    low, high = [], []
    for interval, value in zip(found, series.y, strict=True):
        edges = interval or (value, value)
        # A logarithm has no room for zero.
        low.append(value if panel.y_scale == "log" and (edges[0] or 0) <= 0 else edges[0])
        high.append(edges[1])
    return series._replace(low=low, high=high)
