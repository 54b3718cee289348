"""Figure 3 of ji2022: VGG-13 on FashionMNIST without weight decay, collapse in realistic training.

Claim: norms and angles come within 0.1 of collapse, and every quantity decreases or stays small.
Source: ji2022, Fig. 3

Every claim is open until the size of the paper is reached, and says how far it got and what is
found there; it is open, too, while a seed is short of accuracy 1: the paper speaks of the
terminal phase of training. It names VGG-13 by its publication, which has fully connected layers and
no batch norm, and does not say which variant it trained: every verdict says which one its numbers
come from, and is open with another than the publication's.
"""

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nclab.claims.claim import Claim, Finding, Judge, Kind, Numbers, Verdict, claim
from nclab.claims.judging import (
    Part,
    Share,
    judge_effects,
    judge_shares,
)
from nclab.claims.paper import run_jobs
from nclab.claims.tables import Table
from nclab.engine import LOCAL, Engine, Job
from nclab.errors import NclabError, NclabWarning
from nclab.figures.picture import Panel, Picture, Reference, Series
from nclab.records import read_run
from nclab.training.data import fashion_mnist
from nclab_papers.ji2022.decay_models import FEWEST, advantage, fall
from nclab_papers.ji2022.vgg_training import KIND, Config, read_rows, train

QUICK = Config()
FULL = Config(
    images=60_000,
    width=1.0,
    epochs=500,
    batch=128,
    rate=0.01,
    checkpoint_every=5,
    device="auto",
)
PRESETS = {
    "quick": replace(QUICK, images=500),
    "accelerated": replace(QUICK, clip=1.0, power=0.25, most=20.0),
    "paper": FULL,
    "published": replace(FULL, batch_norm=False, dense=4096),
}
"""accelerated departs from the paper: clipped gradients and a rate that follows the loss; paper and
published have its size, the latter with the layers of VGG-13's publication."""

NORMS = ("nc2_norm_variation_means", "nc2_norm_variation_weights")
WITHIN = "nc1_within_variation"
COSINES = ("nc2_equiangularity_means", "nc2_equiangularity_weights")
DUALITY = "nc3_self_duality"
QUANTITIES = (*NORMS, WITHIN, *COSINES, DUALITY)
COLUMNS = ("(a) M", "(a) W", "(b)", "(c) M", "(c) W", "(d)")
"""Of the table, for the quantities; M are the class means, W the classifiers."""
PANELS = (
    ("(a) norms vary by", NORMS, ("class means", "classifiers")),
    ("(b) within-class variation", (WITHIN,), ("features",)),
    ("(c) cosines off −1/(C−1) by", COSINES, ("class means", "classifiers")),
    ("(d) distance from self-duality", (DUALITY,), ("features and classifiers",)),
)
"""Title, quantities and their labels."""

SMALL = 0.1
"""The paper's "small value"."""
FIRST_EPOCH = 2
"""Drawn; log t of earlier ones is not above 0."""
LINEAR_FROM = 100
"""Epoch from which the paper sees a straight line."""
NET_FALL = 0.5
"""Of all pairs of measurements three in four fall."""

Rows = Sequence[Mapping[str, Any]]
Seeds = Mapping[int, Rows]


def run(
    config: Config, *, seeds: Sequence[int], out: Path, engine: Engine = LOCAL
) -> dict[str, Any]:
    """One process for each seed that is not finished.

    Finished runs below `out` are taken as they are, stopped ones go on.
    """
    if not seeds or len(set(seeds)) < len(seeds):
        raise NclabError(f"Expected different seeds, at least one; got {list(seeds)}.")
    folders = {seed: out / KIND / config.run_name(seed) for seed in seeds}
    missing = [
        Planned(f"seed {seed}", folder, config, seed)
        for seed, folder in folders.items()
        if not is_finished(folder)
    ]
    if missing:
        fashion_mnist.load()  # here, so that one line says what is missing
        _warn_of_the_time(config)
        train_runs(missing, engine=engine)
    return {
        "config": asdict(config),
        "size": f"{config.images} images, width {config.width:g}, {config.epochs} epochs",
        "seeds": list(seeds),
        "runs": [str(folder.relative_to(out)) for folder in folders.values()],
        "rows": [row for folder in folders.values() for row in read_rows(folder)],
    }


def is_finished(folder: Path) -> bool:
    """Whether a run is there, to its end."""
    return folder.exists() and read_run(folder).state == "finished"


def _warn_of_the_time(config: Config) -> None:
    if config.device == "auto" and config.place == "cpu":
        warnings.warn(
            "No GPU found: at full width this takes weeks on a CPU. It can be stopped and "
            "started again; preset quick takes minutes.",
            NclabWarning,
            stacklevel=3,
        )


class Planned(NamedTuple):
    """A run that is to be made or gone on with."""

    name: str
    folder: Path
    config: Config
    seed: int


def train_runs(runs: Sequence[Planned], *, engine: Engine) -> None:
    """Train networks, in this order, one process each; raises for the first that failed."""
    # Absolute, as a cluster's processes have working folders of their own.
    jobs = [Job(one.name, train, (one.folder.absolute(), one.config, one.seed)) for one in runs]
    workers = None
    if any(one.config.place != "cpu" for one in runs):
        engine, workers = LOCAL, 1  # a graphics card is fed by one process of its own machine
    total = sum(one.config.epochs for one in runs)
    folder = runs[0].folder.absolute().parent
    run_jobs(jobs, "VGG-13", engine=engine, total=total, folder=folder, workers=workers)


def tables(numbers: Mapping[str, Any]) -> list[Table]:
    """Start and end of every seed."""
    names = ("epoch", "accuracy", "loss", *QUANTITIES)
    return [
        Table(
            f"{_title(numbers)}, first and last measurement of class means M and classifiers W",
            ("seed", *names[:3], *COLUMNS),
            [
                (str(seed), *("–" if row[name] is None else f"{row[name]:.3g}" for name in names))
                for seed, rows in by_seed(numbers["rows"]).items()
                for row in (rows[0], rows[-1])
            ],
        )
    ]


def by_seed(rows: Rows) -> dict[int, list[Mapping[str, Any]]]:
    """The rows of every seed, by epoch.

    >>> by_seed([{"seed": 1, "epoch": 2}, {"seed": 1, "epoch": 1}])
    {1: [{'seed': 1, 'epoch': 1}, {'seed': 1, 'epoch': 2}]}
    """
    seeds = sorted({row["seed"] for row in rows})
    return {
        seed: sorted((row for row in rows if row["seed"] == seed), key=lambda row: row["epoch"])
        for seed in seeds
    }


def pictures(numbers: Mapping[str, Any]) -> list[Picture]:
    """The paper's four panels."""
    name = "ji2022_fig3" if _plain(numbers["config"]) else "ji2022_fig3_accelerated"
    return [panels(numbers["rows"], title=_title(numbers), name=name)]


def _title(numbers: Mapping[str, Any]) -> str:
    config = numbers["config"]
    how = "SGD" if _plain(config) else "accelerated SGD (a departure)"
    width = "" if config["width"] == 1 else f" × {config['width']:g}"
    return f"VGG-13{width}, {config['images']} images of FashionMNIST, {how}, no weight decay"


def _plain(config: Mapping[str, Any]) -> bool:
    """Whether the rate is constant and gradients are as they are."""
    return Config(clip=config["clip"], power=config["power"]).variant == "plain"


def panels(rows: Rows, *, title: str, name: str = "ji2022_fig3") -> Picture:
    """The four panels; lines are means over the seeds, bands reach from the least to the greatest.

    Source: ji2022, Fig. 3

    >>> rows = [{"seed": s, "epoch": t, **dict.fromkeys(QUANTITIES, 1 / (t + s))}
    ...         for s in (0, 1) for t in (1, 2, 4)]
    >>> first = panels(rows, title="two seeds").panels[0].series[0]
    >>> [round(math.exp(x)) for x in first.x], first.high
    ([2, 4], [0.5, 0.25])
    """
    seeds = len({row["seed"] for row in rows})
    measured = [row["epoch"] for row in rows if row["epoch"] >= FIRST_EPOCH]
    shared = sorted(t for t in set(measured) if measured.count(t) == seeds)
    if len(shared) < 2:
        raise NclabError(
            f"Expected measurements of every seed at two epochs from {FIRST_EPOCH} on, got "
            f"{len(shared)}. Train for longer."
        )
    drawn = tuple(
        Panel(
            panel_title,
            "log t, t in epochs",
            "",
            tuple(
                _series(rows, shared, quantity, label, colour, spread=seeds > 1)
                for colour, (quantity, label) in enumerate(zip(names, labels, strict=True))
            ),
            x_scale="loglog",
            y_scale="log",
            references=(Reference("0.1", y=SMALL),) if len(names) > 1 else (),
        )
        for panel_title, names, labels in PANELS
    )
    spread = f" Lines are means over {seeds} seeds, bands the range." if seeds > 1 else ""
    return Picture(
        name,
        title,
        drawn,
        columns=4,
        caption="Logarithm of each quantity over log log t, as in ji2022, Fig. 3; a line of slope "
        f"−1 would be 1/log t.{spread}",
    )


def _series(
    rows: Rows, epochs: Sequence[int], name: str, label: str, colour: int, *, spread: bool
) -> Series:
    columns = [
        [row[name] for row in rows if row["epoch"] == epoch and row[name] is not None]
        for epoch in epochs
    ]
    return Series(
        label,
        [math.log(epoch) for epoch in epochs],
        [sum(values) / len(values) if values else None for values in columns],
        low=[min(values, default=None) for values in columns] if spread else None,
        high=[max(values, default=None) for values in columns] if spread else None,
        colour=colour,
        style="solid" if colour == 0 else "dashed",
    )


def _trained(id: str, source: str, text: str, *, code: str = "") -> Callable[[Judge], Claim]:
    """A claim of the paper about this training, from the judge below it."""
    text = f"VGG-13 on FashionMNIST without weight decay: {text}"
    return claim(
        id, Kind.RESULT, text, source, needs="ji2022_fig3", code=code, figure="ji2022_fig3"
    )


@_trained(
    "ji2022/fig-3a",
    "ji2022, Fig. 3 (a) “that of the classifier’s norms are below 0.1 after 500 epochs”",
    "Both variations of norms end below 0.1.",
)
def fig_3a(numbers: Numbers) -> Finding:
    return _judged(numbers, lambda seeds: judge_effects(_ends_small(seeds, NORMS), margin=0.0))


@_trained(
    "ji2022/fig-3b",
    "ji2022, Fig. 3 (b) “decreases approximately linearly with respect to”",
    "From epoch 100 on, log of the within-class variation falls in a line over log log t.",
)
def fig_3b(numbers: Numbers) -> Finding:
    return _judged(numbers, line_in_log_log_t)


@_trained(
    "ji2022/fig-3c",
    "ji2022, Fig. 3 (c) “that of the classifiers decrease and are below 0.1”",
    "Both cosine deviations fall and end below 0.1.",
)
def fig_3c(numbers: Numbers) -> Finding:
    def falls_and_ends_small(seeds: Seeds) -> Finding:
        falls = [_falls(seeds, name)._replace(margin=NET_FALL) for name in COSINES]
        return judge_effects([*_ends_small(seeds, COSINES), *falls], margin=0.0)

    return _judged(numbers, falls_and_ends_small)


@_trained(
    "ji2022/fig-3d",
    "ji2022, Fig. 3 (d) “decreases during training towards self-duality”",
    "The distance from self-duality decreases.",
    code="nclab_papers.ji2022.fig3.net_fall",
)
def fig_3d(numbers: Numbers) -> Finding:
    return _judged(numbers, lambda seeds: judge_effects([_falls(seeds, DUALITY)], margin=NET_FALL))


@_trained(
    "ji2022/sec-4-realistic",
    "ji2022, Sec. 4 “either decrease or stay in small values during the training”",
    "All six quantities decrease or stay in small values.",
    code="nclab_papers.ji2022.fig3.net_fall",
)
def sec_4_realistic(numbers: Numbers) -> Finding:
    def small_or_falling(seeds: Seeds) -> Finding:
        parts = []
        for name, column in zip(QUANTITIES, COLUMNS, strict=True):
            curves = {seed: [row[name] for row in rows] for seed, rows in seeds.items()}
            happened = {
                seed: net_fall(y) > NET_FALL or max(y) < SMALL for seed, y in curves.items()
            }
            parts.append(Share(f"{column} decreases or stays below {SMALL:g}", happened))
        return judge_shares(parts)

    return _judged(numbers, small_or_falling)


def net_fall(values: Sequence[float]) -> float:
    """Of all pairs of values, the share of which the later is smaller less that where it is larger.

    >>> net_fall([3.0, 1.0, 2.0]), net_fall([1.0, 1.0, 1.0])
    (0.3333333333333333, 0.0)
    """
    y = np.asarray(values)
    earlier, later = np.triu_indices(len(y), 1)
    return float(np.sign(y[earlier] - y[later]).mean())


def _falls(seeds: Seeds, name: str) -> Part:
    """How much more a quantity falls than it rises."""
    return Part(
        f"{COLUMNS[QUANTITIES.index(name)]}: share of pairs that fall less share that rise",
        {seed: net_fall([row[name] for row in rows]) for seed, rows in seeds.items()},
    )


def _ends_small(seeds: Seeds, names: Sequence[str]) -> list[Part]:
    """The quantities at the end, beside the paper's small value."""
    return [
        Part(
            f"{SMALL:g} less {COLUMNS[QUANTITIES.index(name)]} at the end",
            {seed: SMALL - rows[-1][name] for seed, rows in seeds.items()},
        )
        for name in names
    ]


def line_in_log_log_t(seeds: Seeds) -> Finding:
    """Whether the variation within classes falls, and in a line over log log t rather than another.

    Other laws are a power law and an exponential in t; each is judged by the points it has not
    seen.
    """
    late = {
        seed: [row for row in rows if row["epoch"] >= LINEAR_FROM] for seed, rows in seeds.items()
    }
    if min(map(len, late.values())) < FEWEST:
        why = f"fewer than {FEWEST} measurements from epoch {LINEAR_FROM} on"
        return Finding(Verdict.OPEN, why, {})
    curves = {
        seed: ([row["epoch"] for row in rows], [row[WITHIN] for row in rows])
        for seed, rows in late.items()
    }
    parts = [
        Part(
            "log likelihood of a held-out point, less that of the better other law",
            {seed: advantage(*curve) for seed, curve in curves.items()},
        ),
        Part(
            "fall of log (b) over log log t",
            {seed: fall(*curve) for seed, curve in curves.items()},
        ),
    ]
    return judge_effects(parts, margin=0.0)


def _judged(numbers: Numbers, find: Callable[[Seeds], Finding]) -> Finding:
    """What is found at the paper's size; below it the verdict is open and tells what was found."""
    config, seeds = numbers["config"], by_seed(numbers["rows"])
    early = _too_early(seeds)
    found = Finding(Verdict.OPEN, early, {}) if early else find(seeds)
    far = how_far(config)
    if not far or found.verdict is Verdict.OPEN:
        return Finding(found.verdict, f"{network(config)}; {found.evidence}", found.numbers)
    evidence = f"{far}; there {found.verdict.value}: {found.evidence}"
    return Finding(Verdict.OPEN, evidence, {**found.numbers, "there": found.verdict.value})


def how_far(config: Mapping[str, Any]) -> str:
    """How far a training got on the way to the paper's, and with which layers; empty at its end.

    >>> how_far(asdict(QUICK)).partition(", VGG")[0]
    '1000 of 60000 images, width 0.125 of 1, 200 of 500 epochs'
    >>> how_far(asdict(PRESETS["paper"])).partition("epochs, ")[2]
    'VGG-13 with batch norm, without its fully connected layers'
    >>> how_far(asdict(PRESETS["published"]))
    ''
    """
    paper = PRESETS["published"]
    reached = all(config[name] >= getattr(paper, name) for name in ("images", "width", "epochs"))
    if reached and _plain(config) and network(config) == network(asdict(paper)):
        return ""
    text = (
        f"{config['images']} of {paper.images} images, width {config['width']:g} of "
        f"{paper.width:g}, {config['epochs']} of {paper.epochs} epochs, {network(config)}"
    )
    return text if _plain(config) else f"{text}, accelerated"


def network(config: Mapping[str, Any]) -> str:
    """The variant of VGG-13, by what the paper does not say of it.

    >>> network(asdict(PRESETS["published"]))
    'VGG-13 without batch norm, with its fully connected layers (no dropout)'
    """
    dense = config.get("dense", 0)
    its = "its" if dense == PRESETS["published"].dense else "other"
    layers = f"with {its} fully connected layers (no dropout)"
    return (
        f"VGG-13 {'with' if config['batch_norm'] else 'without'} batch norm, "
        f"{layers if dense else 'without its fully connected layers'}"
    )


def _too_early(seeds: Seeds) -> str | None:
    """Why nothing can be said yet, if so."""
    if not seeds:
        return "no measurements"
    for seed, rows in seeds.items():
        unknown = [name for name in QUANTITIES if any(row[name] is None for row in rows)]
        if unknown:
            return f"seed {seed} has measurements without {', '.join(unknown)}"
    short = [str(seed) for seed, rows in seeds.items() if rows[-1]["accuracy"] < 1]
    return f"accuracy 1 is not reached by seed {', '.join(short)}" if short else None
