"""Training on the way to Figure 3 of ji2022: VGG-13 at growing sizes, the cheapest first.

Claim: VGG-13 on FashionMNIST also collapses at sizes below the paper's.
Source: ji2022, Fig. 3

A rung of this ladder is one choice of the number of images, the width, batch norm and fully
connected layers. All other settings, including 500 epochs, are the paper's. Rungs are trained in
the order of their cost, until the core hours of the preset are used up. A stopped training
continues at the next start; a finished rung is never trained again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from nclab.claims.pictures import mean_points, point_panel
from nclab.claims.tables import Table, group, mean_and_deviation
from nclab.engine import LOCAL, Engine
from nclab.figures.picture import Picture, Reference
from nclab.figures.ulpm import PANELS
from nclab.ulpm.trajectory import QUANTITIES
from nclab_papers.ji2022.fig3 import COLUMNS, SMALL
from nclab_papers.ji2022.fig3 import PRESETS as FIGURE
from nclab_papers.ji2022.vgg_training import Config as Training
from nclab_papers.ji2022.vgg_training import (
    by_seed,
    is_finished,
    plan_runs,
    read_rows,
    train_missing,
)

MICROSECONDS = {0.125: 520.0, 0.25: 1200.0, 0.5: 3600.0}
"""Microseconds that one core needs per image and epoch, by width, as timed in short runs."""
PUBLISHED = 4096
"""Number of outputs of each fully connected layer in the publication of VGG."""


class Rung(NamedTuple):
    """One size of the ladder, below the size of the paper."""

    images: int
    width: float
    batch_norm: bool = True
    dense: bool = False

    @property
    def name(self) -> str:
        """Short name: images × width and variant, such as "1000 × 0.125, dense"."""
        text = f"{self.images} × {self.width:g}"
        text += "" if self.batch_norm else ", no norm"
        return text + (", dense" if self.dense else "")

    @property
    def preset(self) -> str:
        """Name of the preset that trains only this rung, such as "1000x0.125-no-norm"."""
        return self.name.replace(" × ", "x").replace(", ", "-").replace(" ", "-")

    @property
    def hours(self) -> float:
        """Expected hours of one core for 500 epochs of one seed."""
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
    """Choice of the rungs to train."""

    rungs: int = len(RUNGS)
    """Number of rungs that the experiment includes, cheapest first."""
    hours: float = 1000.0
    """Core hours per seed that training may take in total. Rungs that do not fit are not trained;
    their results are included if they are already finished."""
    only: str = ""
    """Preset of the only rung to train; empty for all rungs that fit into `hours`."""
    training: Training = TRAINING
    """Settings of the training; a rung replaces images, width, batch norm and layers."""
    shrink: int = 1
    """Number by which the images of every rung are divided, for quick trials."""

    def of(self, rung: Rung) -> Training:
        """Return the settings of the training of a rung."""
        return replace(
            self.training,
            images=rung.images // self.shrink,
            width=rung.width,
            batch_norm=rung.batch_norm,
            dense=PUBLISHED if rung.dense else 0,
        )

    def selected(self) -> list[Rung]:
        """Return the rung named in `only`, or all rungs that fit into `hours`, cheapest first."""
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
"""Configurations. "paper" keeps two cores busy for a working day with several seeds. "whole" trains
all rungs and takes weeks. "finished" trains nothing and only collects finished rungs. The preset of
a rung trains this rung alone."""
LEADS_TO = "ji2022_fig3"
"""Experiment at full size; while it has no recorded evidence, it uses the numbers of `furthest`."""


def run(
    config: Config, *, seeds: Sequence[int], out: Path, engine: Engine = LOCAL
) -> dict[str, Any]:
    """Train missing runs in the order of their cost; return the rows of all finished rungs."""
    planned = {
        rung: plan_runs(config.of(rung), seeds, out, f"{rung.name}, ")
        for rung in RUNGS[: config.rungs]
    }
    train_missing([run for rung in config.selected() for run in planned[rung]], engine=engine)
    done = {
        rung: [run for run in runs if is_finished(run.folder)] for rung, runs in planned.items()
    }
    finished = [rung for rung, runs in done.items() if runs]
    size = "no rung"
    if finished:
        size = (
            f"{len(finished)} of {len(RUNGS)} rungs, up to {max(rung.images for rung in finished)} "
            f"images and width {max(rung.width for rung in finished):g}"
        )
    return {
        "config": asdict(config),
        "size": size,
        "presets": [rung.preset for rung in finished],
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


def ends(numbers: Mapping[str, Any]) -> dict[str, list[Mapping[str, Any]]]:
    """Return for each rung the last measurement of every seed, cheapest rung first."""
    rows = {key[0]: members for key, members in group(numbers["rows"], "rung").items()}
    return {
        rung["name"]: [measured[-1] for measured in by_seed(rows[rung["name"]]).values()]
        for rung in numbers["rungs"]
        if rung["name"] in rows
    }


def furthest(numbers: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the largest rung that all seeds have finished, in the format of `ji2022_fig3`.

    Only rungs with batch norm and without fully connected layers are considered, as these are the
    networks of that experiment. Return None if there is no such rung.
    """
    last, seeds = ends(numbers), numbers["seeds"]
    finished = [
        rung
        for rung in numbers["rungs"]
        if rung["batch_norm"]
        and not rung["dense"]
        and len(last.get(rung["name"], ())) == len(seeds)
    ]
    if not finished:
        return None
    rung = max(finished, key=lambda candidate: candidate["images"] * candidate["width"] ** 2)
    config = {**numbers["config"]["training"], "images": rung["images"], "width": rung["width"]}
    preset = Rung(rung["images"], rung["width"]).preset
    command = f"nclab reproduce ji2022_ladder --preset {preset} --seeds {len(seeds)}"
    return {
        "preset": f"{rung['name']} of the ladder",
        "config": config,
        "size": f"{rung['images']} images, width {rung['width']:g}, {config['epochs']} epochs",
        "seeds": seeds,
        "rows": [row for row in numbers["rows"] if row["rung"] == rung["name"]],
        "manifest": {"commit": numbers.get("manifest", {}).get("commit"), "command": command},
    }


def tables(numbers: Mapping[str, Any]) -> list[Table]:
    """Return a table of the last measurement of every rung."""
    last = ends(numbers)
    rows = []
    for rung in numbers["rungs"]:
        rungs = last.get(rung["name"], [])
        values = (
            mean_and_deviation((row[name] for row in rungs), ".3g")
            for name in ("accuracy", *QUANTITIES)
        )
        rows.append((rung["name"], f"{rung['hours']:.2g}", str(len(rungs)), *values))
    title = (
        f"Rungs below Figure 3 (images × width), {numbers['config']['training']['epochs']} epochs; "
        "last measurement, mean ± deviation over seeds; M class means, W classifiers"
    )
    headings = ("rung", "core hours per seed", "seeds", "accuracy", *COLUMNS)
    return [Table(title, headings, rows)]


def pictures(numbers: Mapping[str, Any]) -> list[Picture]:
    """Return a picture of the six quantities of Figure 3 at the end of every rung."""
    last = ends(numbers)
    if not last:
        return []
    panels = []
    for title, names in PANELS:
        groups = []
        for colour, name in enumerate(names):
            label = "classifiers" if name.endswith("weights") else "class means"
            values = [
                [row[name] for row in rows if row[name] is not None] for rows in last.values()
            ]
            groups.append(mean_points(label if len(names) > 1 else "", values, colour=colour))
        lines = (Reference("0.1", y=SMALL),) if len(names) > 1 else ()
        panels.append(point_panel(title, list(last), groups, y_scale="log", references=lines))
    caption = "The last measurement of every rung (images × width): mean and range over seeds."
    title = "On the way to Figure 3: where training ends at every size"
    return [Picture("ji2022_ladder", title, tuple(panels), 2, caption, panel_size=(4.6, 3.2))]
