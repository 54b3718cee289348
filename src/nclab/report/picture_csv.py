"""The numbers behind a picture as a table that any program reads."""

import csv
import io

from nclab.figures.picture import Forest, HeatMap, Picture

HEAD = ("panel", "series", "x", "y", "low", "high")
FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""Beginnings that a spreadsheet takes for a formula."""


def picture_csv(picture: Picture) -> str:
    """One row a point; of a heat map one row a cell, with the value as y;
    of a forest plot one row an effect, as x.

    >>> from nclab.figures.picture import Panel, Series
    >>> panel = Panel("loss", "epoch", "nats", (Series("run", [0, 1], [2.0, None]),))
    >>> print(picture_csv(Picture("p", "", (panel,))).replace("\\r", ""), end="")
    panel,series,x,y,low,high
    loss,run,0,2.0,,
    loss,run,1,,,
    """
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(HEAD)
    for panel in picture.panels:
        title = _plain(panel.title)
        if isinstance(panel, HeatMap):
            for down, values in enumerate(panel.values):
                name = panel.y_names[down] if panel.y_names else panel.y[down] if panel.y else down
                for column, value in enumerate(values):
                    where = panel.x_names[column] if panel.x_names else column
                    x = panel.x[column] if len(panel.x) else where
                    writer.writerow([title, _plain(str(name)), x, value, None, None])
            continue
        if isinstance(panel, Forest):
            for group in panel.groups:
                for row in group.rows:
                    name, ends = _plain(row.name), (row.low, row.high)
                    writer.writerow([_plain(group.title), name, row.estimate, None, *ends])
            continue
        for one in panel.series:
            low, high = one.low or [None] * len(one.x), one.high or [None] * len(one.x)
            for point in zip(one.x, one.y, low, high, strict=True):
                writer.writerow([title, _plain(one.label), *point])
        for reference in panel.references:
            writer.writerow([title, _plain(reference.label), reference.x, reference.y, None, None])
    return text.getvalue()


def _plain(text: str) -> str:
    """A text that stays one in a spreadsheet."""
    return f"'{text}" if text.startswith(FORMULA) else text
