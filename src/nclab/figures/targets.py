"""Picture of a target: the geometry of one optimum."""

from collections.abc import Mapping
from typing import Any

from nclab.figures.picture import HeatMap, Panel, Picture, Series

Row = Mapping[str, Any]


def target_picture(row: Row, *, name: str = "target") -> Picture:
    """Return the cosines of an optimum's classifier and class means, and their norms.

    >>> row = {"num_classes": 2, "counts": [1, 1], "geometry": "simplex ETF",
    ...        "classifier_cosines": [[1, -1], [-1, 1]], "mean_cosines": [[1, -1], [-1, 1]],
    ...        "classifier_norms": [1, 1], "mean_norms": [1, 1]}
    >>> [panel.title for panel in target_picture(row).panels]
    ['cosines of classifier rows', 'cosines of class means', 'norms']
    """
    panels: list[Panel | HeatMap] = []
    norms = []
    classes = tuple(str(c) for c in range(row["num_classes"]))
    names = classes if len(classes) <= 20 else ()
    for colour, (part, label) in enumerate(
        (("classifier", "classifier rows"), ("mean", "class means"))
    ):
        if matrix := row[f"{part}_cosines"]:
            title, span = f"cosines of {label}", (-1.0, 1.0)
            panels.append(HeatMap(title, "class", "class", matrix, names, names, span, centre=0.0))
        lengths = row[f"{part}_norms"]
        norms.append(Series(label, row["counts"], lengths, colour=colour, style="none"))
    points = tuple(series._replace(marker="filled") for series in norms)
    scale: Any = "log" if len(set(row["counts"])) > 1 else "linear"
    panels.append(Panel("norms", "samples of the class", "", points, x_scale=scale))
    title = f"Target: {row['geometry']}"
    return Picture(name, title, tuple(panels), len(panels), "", (3.4, 2.8))
