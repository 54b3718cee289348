"""The ladder to Figure 3 of ji2022: the same training, from small to the paper's size, by cost.

Claim: what VGG-13 on FashionMNIST does at the paper's size, seen from the sizes below it.
Source: ji2022, Fig. 3

Rungs differ in images, width, batch norm and VGG's fully connected layers; all else, 500 epochs
included, is the paper's training. They are climbed in the order of their cost, as far as the hours
of the preset go; each can be stopped and gone on with, and those that are done are never redone.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from nclab.claims.tables import Table, group, mean_and_deviation
from nclab.engine import LOCAL, Engine
from nclab.errors import NclabError
from nclab.figures.picture import Panel, Picture, Reference, Series
from nclab.text import number
from nclab.training.data import fashion_mnist
from nclab_papers.ji2022.fig3 import (
    COLUMNS,
    QUANTITIES,
    SMALL,
    Planned,
    by_seed,
    is_finished,
    train_runs,
)
from nclab_papers.ji2022.fig3 import PANELS as QUANTITY_PANELS
from nclab_papers.ji2022.fig3 import PRESETS as FIGURE
from nclab_papers.ji2022.vgg_training import KIND, read_rows
from nclab_papers.ji2022.vgg_training import Config as Training

MICROSECONDS = {0.125: 520.0, 0.25: 1200.0, 0.5: 3600.0}
"""Of one core for an image in an epoch at these widths, from short runs; measuring included."""
PUBLISHED = 4096
"""Outputs of VGG's fully connected layers."""
FEWEST = 4
"""Rungs of one kind from which a trend is fitted: it has three numbers."""


class Rung(NamedTuple):
    """A size below the paper's."""

    images: int
    width: float
    batch_norm: bool = True
    dense: bool = False

    @property
    def name(self) -> str:
        """In a few words.

        >>> Rung(1000, 0.125, dense=True).name
        '1000 × 0.125, dense'
        """
        text = f"{self.images} × {self.width:g}"
        text += "" if self.batch_norm else ", no norm"
        return text + (", dense" if self.dense else "")

    @property
    def preset(self) -> str:
        """The preset that climbs this rung alone.

        >>> Rung(1000, 0.125, batch_norm=False).preset
        '1000x0.125-no-norm'
        """
        return self.name.replace(" × ", "x").replace(", ", "-").replace(" ", "-")

    @property
    def hours(self) -> float:
        """Of one core for one seed, 500 epochs, as short runs let expect.

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
"""In the order of their cost."""


TRAINING = replace(FIGURE["paper"], device="cpu")


@dataclass(frozen=True)
class Config:
    """How far the ladder is climbed."""

    rungs: int = len(RUNGS)
    """So many of the cheapest."""
    hours: float = 1000.0
    """Of one core for each seed: rungs beyond them are left for later, unless they are done."""
    only: str = ""
    """The preset of the one rung to climb; empty for all that the hours allow."""
    training: Training = TRAINING
    """What all rungs share; their images, width, norm and layers are their own."""
    shrink: int = 1
    """Divides the images, for a look at the machinery."""

    def of(self, rung: Rung) -> Training:
        """The training of a rung."""
        return replace(
            self.training,
            images=rung.images // self.shrink,
            width=rung.width,
            batch_norm=rung.batch_norm,
            dense=PUBLISHED if rung.dense else 0,
        )

    def climbed(self) -> list[Rung]:
        """The one rung that is wanted, or those that the hours allow, cheapest first."""
        if self.only:
            return [rung for rung in RUNGS if rung.preset == self.only]
        found, spent = [], 0.0
        for rung in RUNGS[: self.rungs]:
            spent += rung.hours
            if spent <= self.hours:
                found.append(rung)
        return found


PRESETS = {
    "quick": Config(rungs=2, shrink=5, training=replace(TRAINING, epochs=10)),
    "paper": Config(hours=5.0),
    "whole": Config(),
    "finished": Config(hours=0.0),
    **{rung.preset: Config(only=rung.preset) for rung in RUNGS},
}
"""paper: what two cores do for several seeds in a working day; whole: all rungs, for weeks;
finished: none, only gathers what is done; every rung has one of its own."""
LEADS_TO = "ji2022_fig3"
"""The experiment whose recorded evidence `furthest` stands in for while there is none."""


def run(
    config: Config, *, seeds: Sequence[int], out: Path, engine: Engine = LOCAL
) -> dict[str, Any]:
    """Train what is missing, in the order of cost, and gather all rungs that are done."""
    if not seeds or len(set(seeds)) < len(seeds):
        raise NclabError(f"Expected different seeds, at least one; got {list(seeds)}.")
    planned = {
        rung: [
            Planned(f"{rung.name}, seed {seed}", _folder(out, config, rung, seed), training, seed)
            for seed in seeds
        ]
        for rung in RUNGS[: config.rungs]
        for training in (config.of(rung),)
    }
    climbed = config.climbed()
    missing = [one for rung in climbed for one in planned[rung] if not is_finished(one.folder)]
    if missing:
        fashion_mnist.load()  # here, so that one line says what is missing
        train_runs(missing, engine=engine)
    done = {
        rung: [one for one in runs if is_finished(one.folder)] for rung, runs in planned.items()
    }
    return {
        "config": asdict(config),
        "size": _size_in_words(done),
        "presets": [rung.preset for rung, runs in done.items() if runs],
        "seeds": list(seeds),
        "runs": [str(one.folder.relative_to(out)) for runs in done.values() for one in runs],
        "rungs": [
            {**rung._asdict(), "name": rung.name, "hours": rung.hours, "runs": len(done[rung])}
            for rung in planned
        ],
        "rows": [
            {"rung": rung.name, **row}
            for rung, runs in done.items()
            for one in runs
            for row in read_rows(one.folder)
        ],
    }


def _size_in_words(done: Mapping[Rung, Sequence[Planned]]) -> str:
    """How many rungs are done, and how far they reach."""
    reached = [rung for rung, runs in done.items() if runs]
    if not reached:
        return "no rung"
    return (
        f"{len(reached)} of {len(RUNGS)} rungs, up to {max(rung.images for rung in reached)} "
        f"images and width {max(rung.width for rung in reached):g}"
    )


def _folder(out: Path, config: Config, rung: Rung, seed: int) -> Path:
    return out / KIND / config.of(rung).run_name(seed)


def ends(numbers: Mapping[str, Any]) -> dict[str, list[Mapping[str, Any]]]:
    """The last measurement of every seed, by rung, in the order of cost."""
    rows = {key[0]: found for key, found in group(numbers["rows"], "rung").items()}
    return {
        rung["name"]: [one[-1] for one in by_seed(rows[rung["name"]]).values()]
        for rung in numbers["rungs"]
        if rung["name"] in rows
    }


def furthest(numbers: Mapping[str, Any]) -> dict[str, Any] | None:
    """The numbers of Figure 3 at the largest rung of its kind that all seeds have reached."""
    last = ends(numbers)
    done = [
        rung
        for rung in numbers["rungs"]
        if _plain(rung) and len(last.get(rung["name"], ())) == len(numbers["seeds"])
    ]
    if not done:
        return None
    rung = max(done, key=lambda one: one["images"] * one["width"] ** 2)
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


def _plain(rung: Mapping[str, Any]) -> bool:
    """With batch norm and without dense layers, as the networks of Figure 3 are here."""
    return bool(rung["batch_norm"]) and not rung["dense"]


class Trend(NamedTuple):
    """What a quantity at the end does with the size, and where that leads."""

    images: float
    """Change of log10 for ten times the images."""
    width: float
    """Change of log10 for twice the width."""
    images_error: float
    """Standard errors of both."""
    width_error: float
    expected: float
    """The quantity at the paper's size, if it goes on like this."""
    low: float
    """95 % of what a rung of that size would show, if so."""
    high: float


def trend(numbers: Mapping[str, Any], name: str) -> Trend | None:
    """Least squares of log10 of a quantity over sizes; None where the rungs are too few.

    Rungs with batch norm and without dense layers count, one point each: the mean over its seeds.

    >>> rungs = [Rung(images, width) for images in (1000, 10_000) for width in (0.125, 0.25, 0.5)]
    >>> rows = [{"rung": r.name, "seed": 0, "epoch": 500, "q": 3 * r.images**-0.5} for r in rungs]
    >>> named = [{**rung._asdict(), "name": rung.name} for rung in rungs]
    >>> found = trend({"rungs": named, "rows": rows}, "q")
    >>> round(found.images, 6), round(found.width, 6), round(found.expected, 6)
    (-0.5, 0.0, 0.012247)
    """
    from scipy.stats import t

    last = ends(numbers)
    plain = [rung for rung in numbers["rungs"] if _plain(rung) and rung["name"] in last]
    values = [[row[name] for row in last[rung["name"]]] for rung in plain]
    if len(plain) < FEWEST or any(value is None or value <= 0 for one in values for value in one):
        return None
    x = np.array([_size(rung["images"], rung["width"]) for rung in plain])
    if np.linalg.matrix_rank(x) < 3:
        return None
    y = np.log10([fmean(one) for one in values])
    inverse = np.linalg.inv(x.T @ x)
    fitted = inverse @ x.T @ y
    free = len(plain) - 3
    spread = float(np.square(y - x @ fitted).sum()) / free
    paper = FIGURE["paper"]
    there = np.array(_size(paper.images, paper.width))
    reach = float(t.ppf(0.975, free)) * math.sqrt(spread * (1 + there @ inverse @ there))
    middle = float(there @ fitted)
    errors = np.sqrt(spread * np.diag(inverse))
    return Trend(
        float(fitted[1]),
        float(fitted[2]),
        float(errors[1]),
        float(errors[2]),
        10**middle,
        10 ** (middle - reach),
        10 ** (middle + reach),
    )


def _size(images: int, width: float) -> tuple[float, float, float]:
    return 1.0, math.log10(images), math.log2(width)


def tables(numbers: Mapping[str, Any]) -> list[Table]:
    """Where every rung ends, and what the rungs say of the paper's size."""
    last = ends(numbers)
    rows = []
    for rung in numbers["rungs"]:
        found = last.get(rung["name"], [])
        values = (
            mean_and_deviation((row[name] for row in found), ".3g")
            for name in ("accuracy", *QUANTITIES)
        )
        rows.append((rung["name"], f"{rung['hours']:.2g}", str(len(found)), *values))
    trends = []
    for name, column in zip(QUANTITIES, COLUMNS, strict=True):
        found_trend = trend(numbers, name)
        if found_trend is None:
            continue
        trends.append(
            (
                column,
                f"{found_trend.images:.3f} ± {found_trend.images_error:.3f}",
                f"{found_trend.width:.3f} ± {found_trend.width_error:.3f}",
                number(found_trend.expected),
                f"[{number(found_trend.low)}, {number(found_trend.high)}]",
            )
        )
    epochs = numbers["config"]["training"]["epochs"]
    ladder = Table(
        f"Rungs below Figure 3 (images × width), {epochs} epochs; last measurement, mean ± "
        "deviation over seeds; M class means, W classifiers",
        ("rung", "core hours a seed", "seeds", "accuracy", *COLUMNS),
        rows,
    )
    if not trends:
        return [ladder]
    return [
        ladder,
        Table(
            "Change of log10 of a quantity with the size, ± standard error, and where it leads at "
            "60000 images and width 1, with 95 % of what a network there would show if so",
            ("quantity", "ten times the images", "twice the width", "expected", "interval"),
            trends,
        ),
    ]


def pictures(numbers: Mapping[str, Any]) -> list[Picture]:
    """The four quantities at the end over the rungs, and what is expected at the paper's size."""
    last = ends(numbers)
    if not last:
        return []
    trends = {name: trend(numbers, name) for name in QUANTITIES}
    led = any(trends.values())  # to the paper's size
    ticks = tuple(range(len(last) + led))
    panels = []
    for title, names, labels in QUANTITY_PANELS:
        series = []
        for colour, (name, label) in enumerate(zip(names, labels, strict=True)):
            values = [
                [row[name] for row in rows if row[name] is not None] for rows in last.values()
            ]
            series.append(
                Series(
                    label,
                    list(ticks[: len(last)]),
                    [fmean(one) if one else None for one in values],
                    low=[min(one, default=None) for one in values],
                    high=[max(one, default=None) for one in values],
                    colour=colour,
                    marker="filled",
                    style="none",
                )
            )
            found = trends[name]
            if found is not None:
                series.append(
                    Series(
                        f"{label}, expected",
                        [ticks[-1]],
                        [found.expected],
                        low=[found.low],
                        high=[found.high],
                        colour=colour,
                        marker="hollow",
                        style="none",
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
                x_names=(*last, *(["the paper's"] if led else [])),
            )
        )
    return [
        Picture(
            "ji2022_ladder",
            "The way to Figure 3: where training ends at every size",
            tuple(panels),
            columns=2,
            caption="The last measurement of every rung (images × width), mean and range over seeds"
            + (
                "; hollow, where the trend of the rungs with batch norm leads at the paper's size, "
                "with its 95 % interval."
                if led
                else "."
            ),
            panel_size=(4.6, 3.2),
        )
    ]
