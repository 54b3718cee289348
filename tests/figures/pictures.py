"""Pictures that use every feature of the renderers."""

from nclab.figures.picture import HeatMap, Panel, Picture, Reference, Series

DECAYS = (5e-4, 1e-3, 5e-3)
TIMES = (2.0, 30.0, 900.0)
BAND = Panel(
    "a band",
    "epoch",
    "loss",
    (
        Series("run", [0, 1, 2], [2.0, 1.0, 0.5], [1.5, 0.8, 0.4], [2.5, 1.2, 0.6], colour=1),
        Series("", [0, 1, 2], [2.0, None, 0.5], style="dashed"),
    ),
    y_scale="log",
    references=(Reference("theory", y=0.7), Reference("", x=1.0)),
)
POINTS = Panel(
    "points",
    "weight decay",
    "cosine",
    (
        Series(
            "trained",
            DECAYS,
            [0.1, 0.2, None],
            [0.0, 0.1, None],
            [0.2, 0.3, None],
            2,
            "none",
            "hollow",
        ),
        Series("<b>odd</b>", DECAYS, [0.3, 0.2, 0.1], colour=3, style="none", marker="cross"),
        Series("line", DECAYS, [0.3, 0.2, 0.1], colour=4, style="dotted", marker="filled"),
    ),
    x_scale="log",
    y_range=(0.0, 0.5),
    x_ticks=DECAYS,
)
TIME = Panel("time", "", "", (Series("flow", TIMES, [1, 0.1, 0.01]),), "loglog", "log")
COSINES = HeatMap(
    "cosines", "class", "class", [[1.0, -0.5], [-0.5, None]], ("a", "b"), ("a", "b"), (-1.0, 1.0)
)
SLICE = HeatMap(
    "slice",
    "first",
    "second",
    [[1.0, 0.0, 1.0], [-0.1, 0.0, -0.1], [1.0, 0.0, 1.0]],
    x=(-1, 0, 1),
    y=(-1, 0, 1),
    centre=0.0,
    value_label="log L",
)
SKETCH = Panel(
    "sketch",
    "",
    "",
    (
        Series("area", [0, 1], [None, None], [0.0, 0.0], [1.0, 1.0], colour=5),
        Series("edges", [0, 1, None, 0, 2], [0, 1, None, 1, 0], colour=6),
    ),
    x_ticks=(0.0, 1.0),
    x_names=("left", "right"),
    bare=True,
)
ALL = Picture(
    "all",
    "All features",
    (BAND, POINTS, TIME, COSINES, SLICE, SKETCH),
    columns=3,
    caption="A caption.",
)
