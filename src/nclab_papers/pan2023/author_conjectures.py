"""Figure 3.3 and the thesis's three conjectures on the author's data.

Conjecture 3.1.1, which is about the last layer alone, is also tested on networks of the author's
later design. The data are fixed; a seed draws initial weights and the order of batches.

Claim: collapse improves with weight decay and with depth, and effective depth falls.
Source: pan2023, Conj. 3.1.1
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from nclab.claims.claim import OURS, Claim, Kind, Numbers
from nclab.claims.tables import Table
from nclab.engine import LOCAL, Engine
from nclab.figures.picture import Picture
from nclab.training.models.mlp import Norm
from nclab_papers.pan2023 import conjectures, fig33
from nclab_papers.pan2023 import networks as trained
from nclab_papers.pan2023.author_data import (
    REPOSITORY,
    Data,
    Design,
    author_samples,
    author_sweeps,
    on_author_data,
    with_author_cosines,
)

NAME = "pan2023_author_conjectures"
LATER_DECAY = "3.1.1"
"""The conjecture that is tested on networks of the later design."""
NAMES = {"conic": "conic hulls", "mlp3": "data of a teacher"}


@dataclass(frozen=True)
class Setting:
    """Networks and data on which the conjectures are tested."""

    data: Data
    layers: int
    weight_decays: tuple[float, ...]
    design: Design = "thesis"
    norm: Norm = "affine"

    @property
    def label(self) -> str:
        """Short name of the data and the design.

        >>> Setting("conic", 6, (1e-3,), "later").label
        'conic, later design'
        """
        return self.data if self.design == "thesis" else f"{self.data}, later design"


@dataclass(frozen=True)
class Config:
    """Settings of the tests; the deep networks on data of a teacher are those of Figure 3.3."""

    networks: trained.Networks
    settings: tuple[Setting, ...] = (
        Setting("conic", 6, trained.DECAYS),
        Setting("conic", 15, trained.DEEP_DECAYS),
        Setting("mlp3", 6, trained.DECAYS),
        Setting("mlp3", 15, trained.DEEP_DECAYS),
        Setting("conic", 6, trained.DECAYS, "later", "last"),
        Setting("mlp3", 6, trained.DECAYS, "later", "last"),
    )
    figure: int = 3
    """Index of the setting of Figure 3.3."""
    epsilons: tuple[float, ...] = fig33.EPSILONS


PRESETS = {"quick": Config(trained.QUICK), "paper": Config(trained.PAPER)}


def run(
    config: Config, *, seeds: Sequence[int], out: Path, engine: Engine = LOCAL
) -> dict[str, Any]:
    """Train the networks; return the smallest e of every seed and the layers of Figure 3.3."""
    samples = config.networks.samples
    sources = {each.data: author_samples(each.data, samples) for each in config.settings}
    planned = [
        (setting, sweep)
        for setting in config.settings
        for sweep in author_sweeps(
            config.networks,
            sources[setting.data],
            setting.design,
            seeds=seeds,
            layers=setting.layers,
            norms=(setting.norm,),
            weight_decays=setting.weight_decays,
        )
    ]
    # All settings are trained together, so no core waits for the last network of a setting.
    results = config.networks.train(out, [sweep for _, sweep in planned], engine=engine)
    rows, runs, figure, skipped = [], [], [], 0
    for (setting, sweep), members in zip(planned, results, strict=True):
        runs += [f"{trained.RECORDED.folder}/{run['run']}" for run in members]
        if setting is config.settings[config.figure]:
            figure += members
        found, undefined = smallest(setting, members, samples, out)
        skipped += undefined
        keys = {"data": setting.label, "layers": setting.layers, "seed": sweep.seeds[0]}
        rows += [{**keys, **row} for row in found]
    layers = [layer for run in figure for layer in fig33.layer_rows(out, run)]
    depths = dict.fromkeys(str(setting.layers) for setting in config.settings)
    described = trained.describe_config(config, seeds)
    return {
        "config": {
            **described,
            "places": [{"data": each.label, "layers": each.layers} for each in config.settings],
        },
        "size": f"the author's data; {' and '.join(depths)} layers of width "
        f"{config.networks.width}, {samples} samples, {config.networks.epochs} epochs",
        "author_data": REPOSITORY,
        "runs": runs,
        "rows": rows,
        "worst": conjectures.worst_of_seeds(rows),
        "small": conjectures.SMALL,
        "skipped": skipped,
        "fig33": {
            "config": {**described, "layers": config.settings[config.figure].layers},
            "rows": layers,
            "depths": fig33.depth_rows(layers, config.epsilons),
            "runs": figure,
        },
    }


def smallest(
    setting: Setting, members: Sequence[dict[str, Any]], samples: int, out: Path
) -> tuple[list[dict[str, Any]], int]:
    """Return the smallest e of one seed's converged networks, and how many lack metrics."""
    converged = [run for run in members if run["converged"]]
    if setting.design == "later":
        networks = [later_network(run, samples) for run in converged]
    else:
        networks = [{**run, "measured": trained.last_layers(out, run)} for run in converged]
    defined = [network for network in networks if conjectures.is_defined(network)]
    rows = conjectures.smallest(defined)
    if setting.design == "later":  # the layers below the last have no batch norm
        rows = [row for row in rows if row["conjecture"] == LATER_DECAY]
    return rows, len(networks) - len(defined)


def later_network(run: dict[str, Any], samples: int) -> dict[str, Any]:
    """Return a network of the later design with the cosines of its code.

    Its last layer stands for all layers, because conjecture 3.1.1 reads no other.
    """
    row = with_author_cosines(run, samples)
    last = {
        "min_intra": row["author_min_intra"],
        "max_inter": row["author_max_inter"],
        "nc4_ncc_accuracy": row["nc4_ncc_accuracy"],
    }
    return {**row, **last, "measured": [last, last]}


def tables(numbers: Numbers) -> list[Table]:
    """Return the smallest e by conjecture and data, and the networks of Figure 3.3."""
    [networks] = fig33.tables(numbers["fig33"])
    title = "Networks with 15 layers on the data of a teacher (Figure 3.3)"
    return [*conjectures.tables(numbers), networks._replace(title=title)]


def pictures(numbers: Numbers) -> list[Picture]:
    """Return the smallest e of every conjecture, and the layers of Figure 3.3."""
    slacks = conjectures.pictures(numbers) if numbers["worst"] else []
    [layers] = fig33.pictures(numbers["fig33"])
    title = "Author's data: the smallest e with which each conjecture is true"
    return [
        *(picture._replace(name=NAME, title=title) for picture in slacks),
        layers._replace(
            name="pan2023_author_fig33",
            title="Author's data: collapse in every layer of a deep network",
            caption=f"Author's data. {layers.caption}",
        ),
    ]


def _conjecture(original: Claim, data: str, *, later: bool = False) -> Claim:
    """Return a conjecture, judged on one of the author's data sets."""
    number = original.id.rpartition("conjecture-")[2]
    text = original.text.replace("conic hulls", NAMES[data])
    label: Any = f"{data}, later design" if later else data
    design = "later" if later else "data"
    return Claim(
        f"{OURS}/author-{design}-conjecture-{number}-{data}",
        Kind.RESULT,
        f"Author's data{', later design' if later else ''}: {text}",
        original.source,
        partial(conjectures.judged, number, label),
        needs=NAME,
        code=original.code,
        figure=NAME,
    )


conic_grows = _conjecture(conjectures.grows_with_decay, "conic")
conic_sharpens = _conjecture(conjectures.sharpens_with_depth, "conic")
conic_depth_falls = _conjecture(conjectures.depth_falls, "conic")
mlp3_grows = _conjecture(conjectures.grows_with_decay, "mlp3")
mlp3_sharpens = _conjecture(conjectures.sharpens_with_depth, "mlp3")
mlp3_depth_falls = _conjecture(conjectures.depth_falls, "mlp3")
later_conic_grows = _conjecture(conjectures.grows_with_decay, "conic", later=True)
later_mlp3_grows = _conjecture(conjectures.grows_with_decay, "mlp3", later=True)

_of_figure = partial(
    on_author_data,
    view=lambda numbers: numbers["fig33"],
    needs=NAME,
    figure="pan2023_author_fig33",
)
early_layers_separate = _of_figure(fig33.early_layers_separate)
largest_decay_fails = _of_figure(fig33.largest_decay_fails)
accuracy_rises = _of_figure(fig33.accuracy_rises)
intra_rises = _of_figure(fig33.intra_rises)
gap_rises = _of_figure(fig33.gap_rises)
layers_needed_fall = _of_figure(fig33.depth_falls)
inter_positive = _of_figure(fig33.inter_positive)
inter_unstable = _of_figure(fig33.inter_unstable)
