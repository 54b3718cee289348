"""Judges of the thesis's section 3.1: batch norm, weight decay and the complexity of the data.

A judge is a pure function of an experiment's numbers; runs that did not converge are left out of
every comparison, as the thesis leaves them out.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from nclab.papers.comparisons import Comparison, Line, rises, weigh, weigh_lines
from nclab.papers.verdict import Finding

Numbers = Mapping[str, Any]
Row = Mapping[str, Any]

SIGNIFICANT = 0.75
"""Degree of collapse called significant: three quarters of the way from classes that point the
same way, where min intra - max inter is 0, to a simplex, where it is 1 + 1/(C-1)."""
VISIBLE = 0.01
"""Differences smaller than this are none: a hundredth of the axis of the thesis's pictures. What
should rise may fall by this much, and what should be above must be so by more."""
LARGE_DECAY = 1e-3
"""From here on weight decay is large enough to tell the norms apart."""
MODERATE_DECAY = 3e-3
"""Up to here collapse has room to grow: beyond it the cosines are within a few hundredths of the
simplex, and steps are as small as the spread over seeds."""
FAILING_DECAY = 5e-3
"""Above it networks without batch norm fail to converge in the thesis."""


def gap(row: Row) -> float:
    """The degree of collapse that the thesis plots: min intra - max inter.

    >>> round(gap({"min_intra": 0.95, "max_inter": -0.3}), 12)
    1.25
    """
    return float(row["min_intra"]) - float(row["max_inter"])


def seeds(rows: Iterable[Row]) -> list[int]:
    """The seeds that occur, in order."""
    return sorted({int(row["seed"]) for row in rows})


def series(rows: Iterable[Row], key: str = "weight_decay", **match: Any) -> list[Row]:
    """Converged rows with these values, in the order of `key`."""
    found = [
        row
        for row in rows
        if row["converged"] and all(row[name] == value for name, value in match.items())
    ]
    return sorted(found, key=lambda row: float(row[key]))


def converges(numbers: Numbers) -> Finding:
    """Every network converges, but for no batch norm above 5e-3.

    One that did not fails by its missing accuracy, or entirely if only its accuracy is perfect.
    """
    return weigh(
        Comparison(_place(row), 0.0 if row["converged"] else _missing(row))
        for row in numbers["rows"]
        if not (row["norm"] == "none" and row["weight_decay"] > FAILING_DECAY)
    )


def fails_without_norm(numbers: Numbers) -> Finding:
    """Without batch norm training fails above 5e-3."""
    return weigh(
        Comparison(_place(row), -1.0 if row["converged"] else 1 - float(row["accuracy"] or 0.0))
        for row in numbers["rows"]
        if row["norm"] == "none" and row["weight_decay"] > FAILING_DECAY
    )


def only_affine(numbers: Numbers) -> Finding:
    """Significant collapse appears with affine batch norm and nowhere else, seed by seed.

    At the smallest weight decay affine batch norm must not be enough.
    """
    full = 1 + 1 / (int(numbers["config"]["classes"]) - 1)
    rows = numbers["rows"]
    found = []
    for seed in seeds(rows):
        affine = [gap(row) / full for row in series(rows, seed=seed, norm="affine")]
        others = [
            gap(row) / full
            for norm in ("plain", "none")
            for row in series(rows, seed=seed, norm=norm)
        ]
        if len(affine) > 1 and others:
            margin = min(max(affine) - SIGNIFICANT, SIGNIFICANT - max(affine[0], *others))
            found.append(Comparison(f"seed {seed}", margin))
    return weigh(found)


def grows(numbers: Numbers, *, norm: str = "affine", up_to: float = 1.0) -> Finding:
    """Collapse grows at every step of weight decay, and visibly from the first to the last."""
    return weigh_lines(_lines(numbers["rows"], norm=norm, up_to=up_to), visible=VISIBLE)


def grows_to_moderate(numbers: Numbers) -> Finding:
    """Collapse grows at every step of weight decay up to 3e-3."""
    return grows(numbers, up_to=MODERATE_DECAY)


def falls_without_norm(numbers: Numbers) -> Finding:
    """Without batch norm, weight decay makes collapse weaker at every step."""
    return weigh_lines(_lines(numbers["rows"], norm="none", sign=-1), visible=VISIBLE)


def norm_helps_decay(numbers: Numbers) -> Finding:
    """With batch norm of either kind, the largest weight decay beats the smallest."""
    rows = numbers["rows"]
    found = []
    for seed in seeds(rows):
        for norm in ("affine", "plain"):
            line = series(rows, seed=seed, norm=norm)
            if len(line) > 1:
                found.append(
                    Comparison(f"seed {seed}, {norm}", gap(line[-1]) - gap(line[0]) - VISIBLE)
                )
    return weigh(found)


def affine_above(numbers: Numbers, *, other: str = "plain", least: float = 0.0) -> Finding:
    """Affine batch norm collapses visibly further than another norm at the same weight decay."""
    rows = numbers["rows"]
    found = []
    for row in series(rows, norm="affine"):
        same = series(rows, norm=other, seed=row["seed"], weight_decay=row["weight_decay"])
        if same and row["weight_decay"] >= least:
            found.append(Comparison(_place(row), gap(row) - gap(same[0]) - VISIBLE))
    return weigh(found)


def affine_above_plain_large(numbers: Numbers) -> Finding:
    """Affine above plain from weight decay 1e-3 on."""
    return affine_above(numbers, least=LARGE_DECAY)


def affine_above_none(numbers: Numbers) -> Finding:
    """Affine above no batch norm at every weight decay."""
    return affine_above(numbers, other="none")


def norms_fall(numbers: Numbers) -> Finding:
    """Feature norm and classifier norm fall at every step of weight decay."""
    rows = numbers["rows"]
    return weigh(
        step
        for seed in seeds(rows)
        for name in ("alpha", "beta")
        for step in _rises(series(rows, seed=seed), name, f"seed {seed}, {name}, weight decay", -1)
    )


def guarantee_grows(numbers: Numbers) -> Finding:
    """What the loss guarantees about intra-class cosines grows at every step of weight decay."""
    rows, name = numbers["rows"], "guaranteed_mean_intra"
    lines = []
    for seed in seeds(rows):
        known = [row for row in series(rows, seed=seed) if row[name] is not None]
        lines.append(_line(f"seed {seed}, weight decay", known, lambda row: float(row[name])))
    return weigh_lines(lines, visible=VISIBLE)


def guarantee_kept(numbers: Numbers) -> Finding:
    """No network has an intra-class cosine below what its own losses guarantee."""
    return weigh(
        Comparison(_place(row), float(row["guarantee_slack"]))
        for row in numbers["rows"]
        if row["guarantee_slack"] is not None
    )


def simpler_data(numbers: Numbers) -> Finding:
    """Collapse weakens at every step to a deeper teacher, at the same weight decay and seed."""
    rows = numbers["rows"]
    found = []
    for seed in seeds(rows):
        for decay in sorted({row["weight_decay"] for row in rows}):
            line = series(rows, "teacher_depth", seed=seed, weight_decay=decay)
            depths = [float(row["teacher_depth"]) for row in line]
            what = f"seed {seed}, weight decay {decay:g}: teacher depth"
            found.append(Line(what, depths, [gap(row) for row in line], sign=-1))
    return weigh_lines(found, visible=VISIBLE)


def _lines(rows: Sequence[Row], *, norm: str, sign: int = 1, up_to: float = 1.0) -> list[Line]:
    """The degree of collapse along weight decay, seed by seed."""
    found = []
    for seed in seeds(rows):
        line = [row for row in series(rows, seed=seed, norm=norm) if row["weight_decay"] <= up_to]
        found.append(_line(f"seed {seed}, weight decay", line, gap, sign))
    return found


def _line(what: str, rows: Sequence[Row], value: Callable[[Row], float], sign: int = 1) -> Line:
    decays = [float(row["weight_decay"]) for row in rows]
    return Line(what, decays, [value(row) for row in rows], sign)


def _missing(row: Row) -> float:
    accuracy = float(row["accuracy"] or 0.0)
    return accuracy - 1 if accuracy < 1 else -1.0


def _rises(line: Sequence[Row], name: str, what: str, sign: int = 1) -> list[Comparison]:
    known = [row for row in line if row[name] is not None]
    decays = [float(row["weight_decay"]) for row in known]
    return rises(what, decays, [float(row[name]) for row in known], sign=sign)


def _place(row: Row) -> str:
    return f"seed {row['seed']}, {row['norm']}, weight decay {row['weight_decay']:g}"
