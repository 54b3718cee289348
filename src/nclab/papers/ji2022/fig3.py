"""Figure 3 of ji2022: VGG-13 on FashionMNIST without weight decay, collapse in realistic training.

Claim: norms and angles come within 0.1 of collapse, and every quantity decreases or stays small.
Source: ji2022, Fig. 3

A claim is reproduced if it holds in every seed, partly if in some, and open while a seed is short
of accuracy 1: the paper speaks of the terminal phase of training.
"""

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from nclab.data import fashion_mnist
from nclab.engine import LOCAL, Engine, Job, Progress
from nclab.errors import NclabError, NclabWarning
from nclab.figures.picture import Panel, Picture, Reference, Series
from nclab.papers.claim import Claim, Judge, Kind, Numbers, claim
from nclab.papers.ji2022.vgg_training import KIND, Config, read_rows, train
from nclab.papers.tables import Table
from nclab.papers.verdict import Finding, Verdict
from nclab.progress import bar
from nclab.records import read_run

QUICK = Config()
PRESETS = {
    "quick": QUICK,
    "accelerated": replace(QUICK, clip=1.0, power=0.25, most=20.0),
    "paper": Config(
        images=60_000,
        width=1.0,
        epochs=500,
        batch=128,
        rate=0.01,
        checkpoint_every=5,
        device="auto",
    ),
}
"""accelerated departs from the paper: clipped gradients and a rate that follows the loss."""

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
LINEAR_POINTS = 4
"""Fewer measurements than this say nothing of a line."""
LINEAR_R2 = 0.9
"""Share of the variance a line must explain to be called approximately right; our choice."""
FALLING_SHARE = 0.75
"""Share of pairs of measurements of which the later must be the smaller; our choice."""

Rows = Sequence[Mapping[str, Any]]


def run(
    config: Config, *, seeds: Sequence[int], out: Path, engine: Engine = LOCAL
) -> dict[str, Any]:
    """One process for each seed that is not finished.

    Finished runs below `out` are taken as they are, stopped ones go on.
    """
    if not seeds or len(set(seeds)) < len(seeds):
        raise NclabError(f"Expected different seeds, at least one; got {list(seeds)}.")
    folders = {seed: out / KIND / config.run_name(seed) for seed in seeds}
    missing = {seed: folder for seed, folder in folders.items() if not _is_finished(folder)}
    if missing:
        fashion_mnist.load()  # here, so that one line says what is missing
        _warn_of_the_time(config)
        _train(missing, config, engine=engine)
    return {
        "config": asdict(config),
        "variant": config.variant,
        "seeds": list(seeds),
        "runs": [str(folder.relative_to(out)) for folder in folders.values()],
        "rows": [row for folder in folders.values() for row in read_rows(folder)],
    }


def _is_finished(folder: Path) -> bool:
    return folder.exists() and read_run(folder).state == "finished"


def _warn_of_the_time(config: Config) -> None:
    if config.device == "auto" and config.place == "cpu":
        warnings.warn(
            "No GPU found: at full width this takes weeks on a CPU. It can be stopped and "
            "started again; preset quick takes minutes.",
            NclabWarning,
            stacklevel=3,
        )


def _train(folders: Mapping[int, Path], config: Config, *, engine: Engine) -> None:
    # Absolute, as a cluster's processes have working folders of their own.
    places = {seed: folder.absolute() for seed, folder in folders.items()}
    jobs = [Job(f"seed {seed}", train, (place, config, seed)) for seed, place in places.items()]
    done = dict.fromkeys(range(len(jobs)), 0)
    with bar("VGG-13", total=config.epochs * len(jobs)) as moving:

        def tell(progress: Progress) -> None:
            done[progress.index] = progress.step
            moving.update(sum(done.values()), f"{len(jobs)} seed(s)")

        workers = None
        if config.place != "cpu":  # a graphics card is fed by one process of its own machine
            engine, workers = LOCAL, 1
        folder = next(iter(places.values())).parent
        outcomes = engine.run_jobs(jobs, folder=folder, workers=workers, on_progress=tell)
    for outcome in outcomes:
        if not outcome.ok:
            raise NclabError(f"{outcome.name} failed: {outcome.error}")


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
    name = "ji2022_fig3" if numbers["variant"] == "plain" else "ji2022_fig3_accelerated"
    return [panels(numbers["rows"], title=_title(numbers), name=name)]


def _title(numbers: Mapping[str, Any]) -> str:
    config = numbers["config"]
    how = "SGD" if numbers["variant"] == "plain" else "accelerated SGD (a departure)"
    width = "" if config["width"] == 1 else f" × {config['width']:g}"
    return f"VGG-13{width}, {config['images']} images of FashionMNIST, {how}, no weight decay"


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


def _trained(id: str, source: str, text: str) -> Callable[[Judge], Claim]:
    """A claim of the paper about this training, from the judge below it."""
    text = f"VGG-13 on FashionMNIST without weight decay: {text}"
    return claim(id, Kind.RESULT, text, source, needs="ji2022_fig3", figure="ji2022_fig3")


@_trained("ji2022/fig-3a", "ji2022, Fig. 3 (a)", "Both variations of norms end below 0.1.")
def fig_3a(numbers: Numbers) -> Finding:
    return _each_seed(
        numbers,
        holds=lambda rows: all(rows[-1][name] < SMALL for name in NORMS),
        numbers_of=lambda rows: {name: rows[-1][name] for name in NORMS},
        saying="variations of the norms at the end, means and classifiers",
    )


@_trained(
    "ji2022/fig-3b",
    "ji2022, Fig. 3 (b)",
    "From epoch 100 on, log of the within-class variation falls in a line over log log t.",
)
def fig_3b(numbers: Numbers) -> Finding:
    seeds = by_seed(numbers["rows"])
    if why := _too_early(seeds):
        return Finding(Verdict.OPEN, why, {})
    late = {
        seed: [row for row in rows if row["epoch"] >= LINEAR_FROM] for seed, rows in seeds.items()
    }
    if min(map(len, late.values())) < LINEAR_POINTS:
        why = f"fewer than {LINEAR_POINTS} measurements from epoch {LINEAR_FROM} on"
        return Finding(Verdict.OPEN, why, {})
    lines = {seed: line(rows, WITHIN) for seed, rows in late.items()}

    def falls_in_a_line(rows: Rows) -> bool:
        fitted = lines[rows[0]["seed"]]
        return fitted["slope"] < 0 and fitted["r2"] >= LINEAR_R2

    return _each_seed(
        numbers,
        holds=falls_in_a_line,
        numbers_of=lambda rows: lines[rows[0]["seed"]],
        saying=f"slope from epoch {LINEAR_FROM} on and share of the variance the line explains",
    )


@_trained("ji2022/fig-3c", "ji2022, Fig. 3 (c)", "Both cosine deviations fall and end below 0.1.")
def fig_3c(numbers: Numbers) -> Finding:
    return _each_seed(
        numbers,
        holds=lambda rows: all(
            rows[-1][name] < SMALL and rows[-1][name] < rows[0][name] for name in COSINES
        ),
        numbers_of=lambda rows: {
            key: row[name]
            for name in COSINES
            for key, row in ((f"{name}_first", rows[0]), (name, rows[-1]))
        },
        saying="deviations of the cosines, first and last, of the means, then of the classifiers",
    )


@_trained("ji2022/fig-3d", "ji2022, Fig. 3 (d)", "The distance from self-duality decreases.")
def fig_3d(numbers: Numbers) -> Finding:
    return _each_seed(
        numbers,
        holds=lambda rows: falls([row[DUALITY] for row in rows]),
        numbers_of=lambda rows: {
            "first": rows[0][DUALITY],
            "last": rows[-1][DUALITY],
            "falling_share": falling_share([row[DUALITY] for row in rows]),
        },
        saying="distance from self-duality, first and last, and share of pairs that fall",
    )


@_trained(
    "ji2022/sec-4-realistic",
    "ji2022, Sec. 4",
    "All six quantities decrease or stay in small values.",
)
def sec_4_realistic(numbers: Numbers) -> Finding:
    def exceptions(rows: Rows) -> list[str]:
        columns = {name: [row[name] for row in rows] for name in QUANTITIES}
        return [name for name, y in columns.items() if not falls(y) and max(y) >= SMALL]

    return _each_seed(
        numbers,
        holds=lambda rows: not exceptions(rows),
        numbers_of=lambda rows: {"exceptions": exceptions(rows)},
        saying="quantities that neither fall nor stay small",
    )


def falling_share(values: Sequence[float]) -> float:
    """The share of all pairs of values of which the later is the smaller.

    >>> falling_share([3.0, 1.0, 2.0])
    0.6666666666666666
    """
    y = np.asarray(values)
    earlier, later = np.triu_indices(len(y), 1)
    return float((y[later] < y[earlier]).mean()) if len(earlier) else math.nan


def falls(values: Sequence[float]) -> bool:
    """Whether values decrease but for noise: lower at the end, and in most pairs.

    >>> falls([3.0, 2.0, 2.1, 1.0]), falls([1.0, 5.0, 5.0, 0.9]), falls([1.0])
    (True, False, False)
    """
    return len(values) > 1 and values[-1] < values[0] and falling_share(values) >= FALLING_SHARE


def line(rows: Rows, name: str) -> dict[str, float]:
    """Least squares of the logarithm of a quantity over log log epoch, and what it explains.

    >>> rows = [{"epoch": t, "y": 5 / math.log(t)} for t in (100, 200, 400)]
    >>> {key: round(value, 6) for key, value in line(rows, "y").items()}
    {'slope': -1.0, 'r2': 1.0}
    """
    x = np.log(np.log([row["epoch"] for row in rows]))
    y = np.log([row[name] for row in rows])
    slope, level = np.polyfit(x, y, 1)
    spread = float(((y - y.mean()) ** 2).sum())
    rest = float(((y - slope * x - level) ** 2).sum())
    return {"slope": float(slope), "r2": 1 - rest / spread if spread > 0 else math.nan}


def _each_seed(
    numbers: Numbers,
    *,
    holds: Callable[[Rows], bool],
    numbers_of: Callable[[Rows], dict[str, Any]],
    saying: str,
) -> Finding:
    """Judge seed by seed; the evidence has every seed's numbers."""
    seeds = by_seed(numbers["rows"])
    if why := _too_early(seeds):
        return Finding(Verdict.OPEN, why, {})
    right = [seed for seed, rows in seeds.items() if holds(rows)]
    found = {str(seed): numbers_of(rows) for seed, rows in seeds.items()}
    if len(right) == len(seeds):
        verdict = Verdict.REPRODUCED
    else:
        verdict = Verdict.PARTLY if right else Verdict.NOT_REPRODUCED
    shown = "; ".join(f"seed {seed}: {_shown(values)}" for seed, values in found.items())
    evidence = f"{saying}: {shown}; holds in {len(right)} of {len(seeds)} seeds"
    return Finding(verdict, evidence, {"seeds": found, "holding": right})


def _too_early(seeds: Mapping[int, Rows]) -> str | None:
    """Why nothing can be said yet, if so."""
    if not seeds:
        return "no measurements"
    for seed, rows in seeds.items():
        unknown = [name for name in QUANTITIES if any(row[name] is None for row in rows)]
        if unknown:
            return f"seed {seed} has measurements without {', '.join(unknown)}"
    short = [str(seed) for seed, rows in seeds.items() if rows[-1]["accuracy"] < 1]
    return f"accuracy 1 is not reached by seed {', '.join(short)}" if short else None


def _shown(values: Mapping[str, Any]) -> str:
    """Numbers with three digits, names as they are."""
    return ", ".join(
        f"{value:.3g}" if isinstance(value, float) else ", ".join(value) or "none"
        for value in values.values()
    )
