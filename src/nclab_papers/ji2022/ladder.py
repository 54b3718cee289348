"""Training on the way to Figure 3 of ji2022: VGG-13 at growing sizes, the cheapest first.

Claim: VGG-13 on FashionMNIST collapses at the paper's size, extrapolated from smaller sizes.
Source: ji2022, Fig. 3

A rung is one size of this ladder: images, width, batch norm and fully connected layers. All else,
including 500 epochs, is the paper's training. Rungs are trained in the order of their cost, within
the hours of the preset. A stopped rung continues; a finished rung is never trained again.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from nclab.claims.pictures import mean_points
from nclab.claims.tables import Column, Table, group, list_rows, mean_and_deviation
from nclab.engine import LOCAL, Engine
from nclab.figures.picture import Panel, Picture, Reference, Series
from nclab.text import number
from nclab.ulpm.trajectory import QUANTITIES
from nclab_papers.ji2022.fig3 import COLUMNS, SMALL
from nclab_papers.ji2022.fig3 import PANELS as QUANTITY_PANELS
from nclab_papers.ji2022.fig3 import PRESETS as FIGURE
from nclab_papers.ji2022.vgg_training import Config as Training
from nclab_papers.ji2022.vgg_training import (
    PlannedRun,
    by_seed,
    is_finished,
    plan_runs,
    read_rows,
    train_missing,
)

MICROSECONDS = {0.125: 520.0, 0.25: 1200.0, 0.5: 3600.0}
"""Time of one core per image and epoch, by width, measuring included; taken from short runs."""
PUBLISHED = 4096
"""Outputs of VGG's fully connected layers."""
FEWEST = 4
"""Fewest rungs to which a trend is fitted; the fit has three parameters."""


class Rung(NamedTuple):
    """One size of the ladder, below the size of the paper."""

    images: int
    width: float
    batch_norm: bool = True
    dense: bool = False

    @property
    def name(self) -> str:
        """Return a short name.

        >>> Rung(1000, 0.125, dense=True).name
        '1000 × 0.125, dense'
        """
        text = f"{self.images} × {self.width:g}"
        text += "" if self.batch_norm else ", no norm"
        return text + (", dense" if self.dense else "")

    @property
    def preset(self) -> str:
        """Return the name of the preset that trains only this rung.

        >>> Rung(1000, 0.125, batch_norm=False).preset
        '1000x0.125-no-norm'
        """
        return self.name.replace(" × ", "x").replace(", ", "-").replace(" ", "-")

    @property
    def hours(self) -> float:
        """Return the expected hours of one core for 500 epochs of one seed.

        >>> round(Rung(1000, 0.125).hours, 2)
        0.07
        """
        factor = (1.0 if self.batch_norm else 0.7) * (1.1 if self.dense else 1.0)
        return 500 * self.images * MICROSECONDS[self.width] * factor / 3.6e9


RUNGS = tuple(
    sorted(
        (
            *(Rung(images, width) for images in (1000, 10_000, 60_000) for width in MICROSECONDS),
            *(Rung(images, 0.125, batch_norm=False) for images in (1000, 10_000, 60_000)),
            *(Rung(images, 0.125, dense=True) for images in (1000, 10_000, 60_000)),
        ),
        key=lambda rung: rung.hours,
    )
)
"""All rungs in the order of their cost."""
TRAINING = replace(FIGURE["paper"], device="cpu")


@dataclass(frozen=True)
class Config:
    """Which rungs are trained."""

    rungs: int = len(RUNGS)
    """Number of rungs to consider, cheapest first."""
    hours: float = 1000.0
    """Hours of one core per seed; rungs beyond them are only gathered if they are finished."""
    only: str = ""
    """Preset of the only rung to train; empty for all rungs within the hours."""
    training: Training = TRAINING
    """Training of all rungs; each rung replaces images, width, batch norm and layers."""
    shrink: int = 1
    """Divisor of the images, for quick trials."""

    def of(self, rung: Rung) -> Training:
        """Return the training of a rung."""
        return replace(
            self.training,
            images=rung.images // self.shrink,
            width=rung.width,
            batch_norm=rung.batch_norm,
            dense=PUBLISHED if rung.dense else 0,
        )

    def selected(self) -> list[Rung]:
        """Return the rung of `only`, or the rungs that the hours allow, cheapest first."""
        if self.only:
            return [rung for rung in RUNGS if rung.preset == self.only]
        selected, spent = [], 0.0
        for rung in RUNGS[: self.rungs]:
            spent += rung.hours
            if spent <= self.hours:
                selected.append(rung)
        return selected


PRESETS = {
    "quick": Config(rungs=2, shrink=5, training=replace(TRAINING, epochs=10)),
    "paper": Config(hours=5.0),
    "whole": Config(),
    "finished": Config(hours=0.0),
    **{rung.preset: Config(only=rung.preset) for rung in RUNGS},
}
"""Configurations. "paper" takes two cores a working day for several seeds, "whole" trains all rungs
for weeks, and "finished" only gathers finished rungs. Every rung also has its own preset."""
LEADS_TO = "ji2022_fig3"
"""Experiment that uses the numbers of `furthest` if it has no recorded evidence."""


def run(
    config: Config, *, seeds: Sequence[int], out: Path, engine: Engine = LOCAL
) -> dict[str, Any]:
    """Train missing runs in the order of their cost, and gather all finished rungs."""
    planned = {
        rung: plan_runs(config.of(rung), seeds, out, f"{rung.name}, ")
        for rung in RUNGS[: config.rungs]
    }
    train_missing([run for rung in config.selected() for run in planned[rung]], engine=engine)
    done = {
        rung: [run for run in runs if is_finished(run.folder)] for rung, runs in planned.items()
    }
    return {
        "config": asdict(config),
        "size": _describe_size(done),
        "presets": [rung.preset for rung, runs in done.items() if runs],
        "seeds": list(seeds),
        "runs": [str(run.folder.relative_to(out)) for runs in done.values() for run in runs],
        "rungs": [
            {**rung._asdict(), "name": rung.name, "hours": rung.hours, "runs": len(done[rung])}
            for rung in planned
        ],
        "rows": [
            {"rung": rung.name, **row}
            for rung, runs in done.items()
            for run in runs
            for row in read_rows(run.folder)
        ],
    }


def _describe_size(done: Mapping[Rung, Sequence[PlannedRun]]) -> str:
    """Return how many rungs are finished, and their largest size."""
    reached = [rung for rung, runs in done.items() if runs]
    if not reached:
        return "no rung"
    return (
        f"{len(reached)} of {len(RUNGS)} rungs, up to {max(rung.images for rung in reached)} "
        f"images and width {max(rung.width for rung in reached):g}"
    )


def ends(numbers: Mapping[str, Any]) -> dict[str, list[Mapping[str, Any]]]:
    """Return the last measurement of every seed, by rung, in the order of cost."""
    rows = {key[0]: members for key, members in group(numbers["rows"], "rung").items()}
    return {
        rung["name"]: [measured[-1] for measured in by_seed(rows[rung["name"]]).values()]
        for rung in numbers["rungs"]
        if rung["name"] in rows
    }


def furthest(numbers: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the numbers of Figure 3 at the largest rung that all seeds have finished.

    Only rungs with the networks of `ji2022_fig3` count; None if there is no such rung.
    """
    last = ends(numbers)
    done = [
        rung
        for rung in numbers["rungs"]
        if _is_plain(rung) and len(last.get(rung["name"], ())) == len(numbers["seeds"])
    ]
    if not done:
        return None
    rung = max(done, key=lambda candidate: candidate["images"] * candidate["width"] ** 2)
    config = {**numbers["config"]["training"], "images": rung["images"], "width": rung["width"]}
    preset = Rung(*(rung[name] for name in Rung._fields)).preset
    command = f"nclab reproduce ji2022_ladder --preset {preset} --seeds {len(numbers['seeds'])}"
    return {
        "preset": f"{rung['name']} of the ladder",
        "config": config,
        "size": f"{rung['images']} images, width {rung['width']:g}, {config['epochs']} epochs",
        "seeds": numbers["seeds"],
        "rows": [row for row in numbers["rows"] if row["rung"] == rung["name"]],
        "manifest": {"commit": numbers.get("manifest", {}).get("commit"), "command": command},
    }


def _is_plain(rung: Mapping[str, Any]) -> bool:
    """Return whether a rung has batch norm and no fully connected layers, as `ji2022_fig3` has."""
    return bool(rung["batch_norm"]) and not rung["dense"]


class Trend(NamedTuple):
    """Change of a quantity at the end with the size, and its extrapolation to the paper's size."""

    images: float
    """Change of log10 for ten times the images."""
    width: float
    """Change of log10 for twice the width."""
    images_error: float
    """Standard error of `images`."""
    width_error: float
    """Standard error of `width`."""
    expected: float
    """Extrapolated quantity at the paper's size."""
    low: float
    """Lower end of the 95 % prediction interval of a rung of the paper's size."""
    high: float


def trend(numbers: Mapping[str, Any], name: str) -> Trend | None:
    """Fit log10 of a quantity to the size by least squares; None if there are too few rungs.

    Only rungs with batch norm and without fully connected layers count, each with its mean over
    seeds.

    >>> rungs = [Rung(images, width) for images in (1000, 10_000) for width in (0.125, 0.25, 0.5)]
    >>> rows = [{"rung": r.name, "seed": 0, "epoch": 500, "q": 3 * r.images**-0.5} for r in rungs]
    >>> named = [{**rung._asdict(), "name": rung.name} for rung in rungs]
    >>> fit = trend({"rungs": named, "rows": rows}, "q")
    >>> round(fit.images, 6), round(fit.width, 6), round(fit.expected, 6)
    (-0.5, 0.0, 0.012247)
    """
    from scipy.stats import t

    last = ends(numbers)
    rungs = [rung for rung in numbers["rungs"] if _is_plain(rung) and rung["name"] in last]
    values = [[row[name] for row in last[rung["name"]]] for rung in rungs]
    if len(rungs) < FEWEST or any(v is None or v <= 0 for seeds in values for v in seeds):
        return None
    x = np.array([_regressors(rung["images"], rung["width"]) for rung in rungs])
    if np.linalg.matrix_rank(x) < 3:
        return None
    y = np.log10([fmean(seeds) for seeds in values])
    inverse = np.linalg.inv(x.T @ x)
    fitted = inverse @ x.T @ y
    freedom = len(rungs) - 3
    variance = float(np.square(y - x @ fitted).sum()) / freedom
    paper = np.array(_regressors(FIGURE["paper"].images, FIGURE["paper"].width))
    reach = float(t.ppf(0.975, freedom)) * math.sqrt(variance * (1 + paper @ inverse @ paper))
    middle = float(paper @ fitted)
    errors = np.sqrt(variance * np.diag(inverse))
    return Trend(
        float(fitted[1]),
        float(fitted[2]),
        float(errors[1]),
        float(errors[2]),
        10**middle,
        10 ** (middle - reach),
        10 ** (middle + reach),
    )


def _regressors(images: int, width: float) -> tuple[float, float, float]:
    return 1.0, math.log10(images), math.log2(width)


def tables(numbers: Mapping[str, Any]) -> list[Table]:
    """Return the end of every rung, and the trends with their extrapolation."""
    last = ends(numbers)
    rows = []
    for rung in numbers["rungs"]:
        rungs = last.get(rung["name"], [])
        values = (
            mean_and_deviation((row[name] for row in rungs), ".3g")
            for name in ("accuracy", *QUANTITIES)
        )
        rows.append((rung["name"], f"{rung['hours']:.2g}", str(len(rungs)), *values))
    epochs = numbers["config"]["training"]["epochs"]
    ladder = Table(
        f"Rungs below Figure 3 (images × width), {epochs} epochs; last measurement, mean ± "
        "deviation over seeds; M class means, W classifiers",
        ("rung", "core hours per seed", "seeds", "accuracy", *COLUMNS),
        rows,
    )
    fits = [
        {"quantity": column, **fit._asdict()}
        for name, column in zip(QUANTITIES, COLUMNS, strict=True)
        if (fit := trend(numbers, name))
    ]
    if not fits:
        return [ladder]
    trends = list_rows(
        "Change of log10 of a quantity with the size, ± standard error, and its extrapolation to "
        "60000 images and width 1 with a 95 % prediction interval",
        fits,
        [
            Column("quantity", "quantity"),
            Column("ten times the images", _with_error("images")),
            Column("twice the width", _with_error("width")),
            Column("expected", "expected", ""),
            Column("interval", lambda fit: f"[{number(fit['low'])}, {number(fit['high'])}]"),
        ],
    )
    return [ladder, trends]


def _with_error(name: str) -> Any:
    return lambda fit: f"{fit[name]:.3f} ± {fit[f'{name}_error']:.3f}"


def pictures(numbers: Mapping[str, Any]) -> list[Picture]:
    """Return the quantities at the end of every rung, and their extrapolation."""
    last = ends(numbers)
    if not last:
        return []
    trends = {name: trend(numbers, name) for name in QUANTITIES}
    extrapolated = any(trends.values())
    ticks = tuple(range(len(last) + extrapolated))
    panels = []
    for title, names, labels in QUANTITY_PANELS:
        series = []
        for colour, (name, label) in enumerate(zip(names, labels, strict=True)):
            values = [
                [row[name] for row in rows if row[name] is not None] for rows in last.values()
            ]
            x, (_, y, low, high, *_) = list(ticks[: len(last)]), mean_points(label, values)
            points = Series(label, x, y, low, high, colour=colour, style="none", marker="filled")
            series.append(points)
            if fit := trends[name]:
                series.append(
                    points._replace(
                        label=f"{label}, expected",
                        x=[ticks[-1]],
                        y=[fit.expected],
                        low=[fit.low],
                        high=[fit.high],
                        marker="hollow",
                    )
                )
        panels.append(
            Panel(
                title,
                "",
                "",
                tuple(series),
                y_scale="log",
                references=(Reference("0.1", y=SMALL),) if len(names) > 1 else (),
                x_ticks=tuple(map(float, ticks)),
                x_names=(*last, *(["the paper's"] if extrapolated else [])),
            )
        )
    caption = "The last measurement of every rung (images × width): mean and range over seeds."
    if extrapolated:
        caption += (
            " Hollow: extrapolation of the rungs with batch norm to the paper's size, with its "
            "95 % prediction interval."
        )
    title = "On the way to Figure 3: where training ends at every size"
    return [Picture("ji2022_ladder", title, tuple(panels), 2, caption, panel_size=(4.6, 3.2))]
