"""Pictures of targets: the geometry of one optimum, and maps of where optima change."""

from collections.abc import Mapping
from typing import Any

from nclab.figures.picture import HeatMap, Panel, Picture, Series

Row = Mapping[str, Any]


def target_picture(row: Row, *, name: str = "target") -> Picture:
    """Cosines of classifier and means, and norms over the samples of a class.

    >>> row = {"num_classes": 2, "counts": [1, 1], "geometry": "simplex ETF",
    ...        "classifier_cosines": [[1, -1], [-1, 1]], "mean_cosines": [[1, -1], [-1, 1]],
    ...        "classifier_norms": [1, 1], "mean_norms": [1, 1]}
    >>> [panel.title for panel in target_picture(row).panels]
    ['cosines of the classifier', 'cosines of the means', 'norms']
    """
    panels: list[Panel | HeatMap] = []
    classes = tuple(str(c) for c in range(row["num_classes"]))
    for what, title in (("classifier", "the classifier"), ("mean", "the means")):
        if matrix := row[f"{what}_cosines"]:
            title = f"cosines of {title}"
            names = classes if len(classes) <= 20 else ()
            span = (-1.0, 1.0)
            panels.append(HeatMap(title, "class", "class", matrix, names, names, span, centre=0.0))
    norms = tuple(
        Series(label, row["counts"], row[key], colour=place, style="none", marker="filled")
        for place, (label, key) in enumerate(
            (("classifier rows", "classifier_norms"), ("class means", "mean_norms"))
        )
    )
    uneven = len(set(row["counts"])) > 1
    panels.append(
        Panel("norms", "samples of the class", "", norms, x_scale="log" if uneven else "linear")
    )
    title = f"Target: {row['geometry']}"
    return Picture(name, title, tuple(panels), len(panels), "", (3.4, 2.8))
