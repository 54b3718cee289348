"""Pictures beside the thesis's figures: norms and guarantees, complexity of data, conjectures."""

from collections.abc import Iterable, Mapping
from typing import Any

from nclab.figures.picture import Panel, Picture, Reference, Scale, Series
from nclab.figures.spread import SPREAD, Look, Row, Value, column, converged, failures, gap, spread
from nclab.papers.pan2023.pictures import DECAY, INTER, INTRA, TICKS, failed_note, simplex

Numbers = Mapping[str, Any]

MEASURED, OPTIMUM, GUARANTEED, EXCESS = 0, 1, 2, 3


def norms(numbers: Numbers) -> list[Picture]:
    """Norms, loss, excess loss and guarantee against weight decay, beside the optimum."""
    rows, optima = converged(numbers["rows"]), numbers["optima"]
    measured = Look("measured", MEASURED)
    decays = [float(row["weight_decay"]) for row in optima]

    def panel(
        title: str, value: Value, optimum: str | None, label: str, scale: Scale = "linear"
    ) -> Panel:
        lines = [spread(rows, "weight_decay", value, measured)]
        if optimum is not None:
            best = [float(row[optimum]) for row in optima]
            lines.append(
                Series("optimum of Eq. (2.1)", decays, best, colour=OPTIMUM, style="dashed")
            )
        return Panel(title, DECAY, label, tuple(lines), "log", scale, x_ticks=TICKS)

    loss = panel("loss, mean over classes", column("balanced_loss"), "optimal_loss", "nats", "log")
    excess = spread(
        rows,
        "weight_decay",
        column("excess_loss"),
        Look("excess ε over the best for these norms", EXCESS, "dotted", "hollow"),
    )
    intra = Panel(
        "intra-class cosine",
        DECAY,
        "cosine similarity",
        (
            spread(rows, "weight_decay", column("mean_intra"), measured),
            spread(
                rows,
                "weight_decay",
                column("guaranteed_mean_intra"),
                Look("guaranteed by the class losses", GUARANTEED),
            ),
            spread(
                rows,
                "weight_decay",
                column("guaranteed_min_intra"),
                Look("the same, worst class", GUARANTEED, "dashed", "hollow"),
            ),
        ),
        x_scale="log",
        x_ticks=TICKS,
        y_range=(-0.03, 1.03),
    )
    note = failed_note(numbers["rows"])
    return [
        Picture(
            "pan2023_norms",
            "What weight decay does to norms, loss and guarantee",
            (
                panel("feature norm α", column("alpha"), "alpha", "α"),
                panel("classifier norm β", column("beta"), "beta", "β"),
                panel("product αβ", product, "product", "αβ"),
                loss._replace(series=(*loss.series, excess)),
                panel("excess over the best, ε/m(αβ)", relative_excess, None, "ε/m", "log"),
                intra,
            ),
            3,
            "Affine batch norm. The optimum is that of the regularised layer-peeled objective; "
            f"intra-class cosines are averages over classes. {SPREAD}{note}",
        )
    ]


def complexity(numbers: Numbers) -> list[Picture]:
    """Cosines against the depth of the teacher, one panel a weight decay; and the difference."""
    rows, classes = numbers["rows"], int(numbers["config"]["classes"])
    decays = sorted({row["weight_decay"] for row in rows})
    depths = tuple(float(depth) for depth in sorted({row["teacher_depth"] for row in rows}))
    names = (("min_intra", Look("min intra", INTRA)), ("max_inter", Look("max inter", INTER)))
    panels: list[Panel] = []
    for decay in decays:
        own = [row for row in rows if row["weight_decay"] == decay]
        lines = [
            spread(converged(own), "teacher_depth", column(name), look) for name, look in names
        ]
        crosses = failures(own, "teacher_depth", [column(name) for name, _ in names])
        panels.append(
            Panel(
                f"{DECAY} {decay:g}",
                "depth of the teacher",
                "cosine similarity",
                (*lines, simplex(classes, depths), *crosses),
                x_ticks=depths,
                y_range=(-0.45, 1.05),
            )
        )
    difference = [
        spread(
            [row for row in converged(rows) if row["weight_decay"] == decay],
            "teacher_depth",
            gap,
            Look(f"difference, {DECAY} {decay:g}", place + 1),
        )
        for place, decay in enumerate(decays)
    ]
    panels.append(
        Panel(
            "min intra − max inter",
            "depth of the teacher",
            "difference of cosines",
            tuple(difference),
            references=(Reference("simplex ETF", y=1 + 1 / (classes - 1)),),
            x_ticks=depths,
            y_range=(0.0, 1.14 * (1 + 1 / (classes - 1))),
        )
    )
    return [
        Picture(
            "pan2023_complexity",
            "Complexity of the data and collapse",
            tuple(panels),
            len(panels),
            "Affine batch norm; the labels come from random networks of this many layers. "
            f"{SPREAD}{failed_note(rows)}",
        )
    ]


TITLES = {
    "3.1.1": "3.1.1: grows with weight decay",
    "3.2.1": "3.2.1: sharpens with depth",
    "3.2.2": "3.2.2: effective depth falls",
}


def conjectures(numbers: Numbers) -> list[Picture]:
    """The smallest e of every conjecture: seeds as circles, the median with its interval."""
    places = sorted({(row["data"], int(row["layers"])) for row in numbers["intervals"]})
    panels: list[Panel] = []
    for name, title in TITLES.items():
        lines = []
        for place, (data, layers) in enumerate(places):
            where = {"conjecture": name, "data": data, "layers": layers}
            for row in _matching(numbers["intervals"], where):
                lines.append(
                    Series(
                        "" if place else "median with its bootstrap interval",
                        [place + 1.1],
                        [row["median"]],
                        None if row["low"] is None else [row["low"]],
                        None if row["high"] is None else [row["high"]],
                        place,
                        "none",
                        "filled",
                    )
                )
            values = [float(row["smallest_e"]) for row in _matching(numbers["worst"], where)]
            beside = [place + 0.9] * len(values)
            label = "" if place else "one seed"
            lines.append(Series(label, beside, values, colour=place, style="none", marker="hollow"))
        panels.append(
            Panel(
                title,
                "",
                "" if panels else "smallest e",
                tuple(lines),
                references=(Reference("called small", y=float(numbers["small"])),),
                x_ticks=tuple(range(1, len(places) + 1)),
                x_names=tuple(f"{data},\n{layers} layers" for data, layers in places),
            )
        )
    return [
        Picture(
            "pan2023_conjectures",
            "The smallest e with which each conjecture is true",
            tuple(panels),
            3,
            "Each conjecture says that something holds up to an e; smaller is better. Circles are "
            "the seeds, dots their medians with bootstrap intervals.",
        )
    ]


def product(row: Row) -> float | None:
    """αβ."""
    return None if row["alpha"] is None or row["beta"] is None else row["alpha"] * row["beta"]


def relative_excess(row: Row) -> float | None:
    """ε/m; None where either was not measured."""
    if row["excess_loss"] is None or not row["optimal_loss"]:
        return None
    return float(row["excess_loss"]) / float(row["optimal_loss"])


def _matching(rows: Iterable[Row], where: Row) -> list[Row]:
    return [row for row in rows if all(row[key] == value for key, value in where.items())]
