"""Figure 3 of ji2022: VGG-13 on FashionMNIST without weight decay, collapse in realistic training.

Claim: norms and angles come within 0.1 of collapse, and every quantity decreases or stays small.
Source: ji2022, Fig. 3

The verdict of every claim stays "open" until training reaches the paper's size; until then, the
evidence gives the size of our networks and their result. A verdict also stays open while a seed has
not reached accuracy 1, because the paper speaks of the terminal phase of training. The paper cites
the publication of VGG-13, which has fully connected layers and no batch norm, but does not say
which variant it trained. The evidence names the variant that we trained; the verdict stays open if
this is not the published one.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from nclab.claims.claim import Claim, Finding, Kind, Numbers, Verdict
from nclab.claims.effects import Part, Share
from nclab.claims.judging import judge_effects
from nclab.claims.tables import Column, Table, group, list_rows
from nclab.engine import LOCAL, Engine
from nclab.figures import ulpm
from nclab.figures.picture import Picture
from nclab.ulpm.trajectory import QUANTITIES
from nclab_papers.ji2022.vgg_training import (
    Config,
    Rows,
    by_seed,
    plan_runs,
    read_rows,
    train_missing,
)

QUICK = Config()
FULL = Config(
    images=60_000, width=1.0, epochs=500, batch=128, rate=0.01, checkpoint_every=5, device="auto"
)
PRESETS = {
    "quick": replace(QUICK, images=500),
    "paper": FULL,
    "published": replace(FULL, batch_norm=False, dense=4096),
}
"""Configurations. "paper" and "published" have the paper's size. "published" also has the layers of
the publication of VGG-13; "paper" has batch norm and no hidden fully connected layers."""

NORMS, COSINES = QUANTITIES[:2], QUANTITIES[3:5]
WITHIN, DUALITY = QUANTITIES[2], QUANTITIES[5]
COLUMNS = ("(a) M", "(a) W", "(b)", "(c) M", "(c) W", "(d)")
"""Short names of the quantities; M stands for class means, W for classifiers."""

SMALL = 0.1
"""A quantity below this number has a "small value" in the words of the paper."""
LINEAR_FROM = 100
"""First epoch of the range in which the paper sees a straight line."""
NET_FALL = 0.5
"""A quantity counts as decreasing if `net_fall` exceeds this number, that is, if its value falls in
more than three of four pairs of measurements."""
LAWS: dict[str, Callable[[float], float]] = {
    "(log t)^-r": lambda t: math.log(math.log(t)),
    "power law": math.log,
    "exponential": float,
}
"""Laws of decay, each with a function x(t): under the law, the log of a quantity is linear in x."""
FEWEST = 5
"""Smallest number of points to which a law is fitted."""
NOISE = 1e-3
"""Lower limit of the relative error of a measurement that a fit assumes."""

Seeds = Mapping[int, Rows]


def run(
    config: Config, *, seeds: Sequence[int], out: Path, engine: Engine = LOCAL
) -> dict[str, Any]:
    """Train one network for each seed, and gather its measurements.

    Finished runs below `out` are reused; stopped runs continue.
    """
    runs = plan_runs(config, seeds, out)
    train_missing(runs, engine=engine)
    return {
        "config": asdict(config),
        "size": f"{config.images} images, width {config.width:g}, {config.epochs} epochs",
        "seeds": list(seeds),
        "runs": [str(run.folder.relative_to(out)) for run in runs],
        "rows": [row for run in runs for row in read_rows(run.folder)],
    }


def tables(numbers: Mapping[str, Any]) -> list[Table]:
    """Return a table of the first and the last measurement of every seed."""
    title = f"{_title(numbers)}, first and last measurement of class means M and classifiers W"
    ends = [row for rows in by_seed(numbers["rows"]).values() for row in (rows[0], rows[-1])]
    names = {"epoch": "epoch", "accuracy": "accuracy", "loss": "loss"}
    names |= dict(zip(QUANTITIES, COLUMNS, strict=True))
    columns = [Column(heading, name, ".3g") for name, heading in names.items()]
    return [list_rows(title, ends, [Column("seed", "seed", "d"), *columns])]


def pictures(numbers: Mapping[str, Any]) -> list[Picture]:
    """Return a picture of the paper's four panels, with means over seeds.

    It shows the epochs that are measured for all seeds.
    """
    seeds, samples = numbers["seeds"], []
    for (epoch,), rows in group(numbers["rows"], "epoch").items():
        values = {name: [row[name] for row in rows] for name in QUANTITIES}
        if epoch and len(rows) == len(seeds) and not any(None in v for v in values.values()):
            means = {name: fmean(values[name]) for name in QUANTITIES}
            samples.append({"log_time": math.log(epoch), **means})
    title = f"{_title(numbers)}; mean over seeds, t in epochs"
    return [ulpm.quantities_picture(samples, title=title, name="ji2022_fig3")]


def _title(numbers: Mapping[str, Any]) -> str:
    config = numbers["config"]
    width = "" if config["width"] == 1 else f" × {config['width']:g}"
    return f"VGG-13{width}, {config['images']} images of FashionMNIST, SGD, no weight decay"


def _at_paper_size(judge: Callable[[Seeds], Finding], numbers: Numbers) -> Finding:
    """Judge the rows; below the paper's size, the verdict is open and the evidence has the result.

    Args:
        judge: returns a finding from the rows of every seed.
    """
    config, seeds = numbers["config"], by_seed(numbers["rows"])
    reason = _why_too_early(seeds)
    finding = Finding(Verdict.OPEN, reason, {}) if reason else judge(seeds)
    progress = how_far(config)
    if not progress or finding.verdict is Verdict.OPEN:
        return replace(finding, evidence=f"{network(config)}; {finding.evidence}")
    verdict = finding.verdict.value
    return replace(
        finding,
        verdict=Verdict.OPEN,
        evidence=f"{progress}; at this size {verdict}: {finding.evidence}",
        numbers={**finding.numbers, "there": verdict},
        answer=f"{verdict} at {progress}: {finding.sentence}",
    )


def _training_claim(
    id: str, quote: str, text: str, *, code: str = ""
) -> Callable[[Callable[[Seeds], Finding]], Claim]:
    """Return a decorator that turns a function which judges the rows of all seeds into a claim."""

    def make(judge: Callable[[Seeds], Finding]) -> Claim:
        return Claim(
            f"ji2022/{id}",
            Kind.RESULT,
            f"VGG-13 on FashionMNIST without weight decay: {text}",
            f"ji2022, {quote}",
            partial(_at_paper_size, judge),
            needs="ji2022_fig3",
            code=code,
            figure="ji2022_fig3",
        )

    return make


@_training_claim(
    "fig-3a",
    "Fig. 3 (a) “that of the classifier’s norms are below 0.1 after 500 epochs”",
    "Both variations of norms end below 0.1.",
)
def fig_3a(seeds: Seeds) -> Finding:
    return judge_effects(_ends_small(seeds, NORMS))


@_training_claim(
    "fig-3b",
    "Fig. 3 (b) “decreases approximately linearly with respect to”",
    "From epoch 100 on, log of the within-class variation falls in a line over log log t.",
)
def fig_3b(seeds: Seeds) -> Finding:
    """Compare the straight line that the paper sees with a power law and an exponential in t.

    Each law is judged by how well it predicts the points that its fit did not use.
    """
    curves = {}
    for seed, rows in seeds.items():
        late = [row for row in rows if row["epoch"] >= LINEAR_FROM]
        if len(late) < FEWEST:
            reason = f"fewer than {FEWEST} measurements from epoch {LINEAR_FROM} on"
            return Finding(Verdict.OPEN, reason, {})
        curves[seed] = [row["epoch"] for row in late], [row[WITHIN] for row in late]
    ahead = {seed: advantage(*curve) for seed, curve in curves.items()}
    falls = {seed: fall(*curve) for seed, curve in curves.items()}
    parts = [
        Part("log likelihood of a held-out point, minus that of the best other law", ahead),
        Part("fall of log (b) over log log t", falls),
    ]
    return judge_effects(parts)


@_training_claim(
    "fig-3c",
    "Fig. 3 (c) “that of the classifiers decrease and are below 0.1”",
    "Both cosine deviations fall and end below 0.1.",
)
def fig_3c(seeds: Seeds) -> Finding:
    falls = [_net_fall_part(seeds, name)._replace(margin=NET_FALL) for name in COSINES]
    return judge_effects([*_ends_small(seeds, COSINES), *falls])


@_training_claim(
    "fig-3d",
    "Fig. 3 (d) “decreases during training towards self-duality”",
    "The distance from self-duality decreases.",
    code="nclab_papers.ji2022.fig3.net_fall",
)
def fig_3d(seeds: Seeds) -> Finding:
    return judge_effects([_net_fall_part(seeds, DUALITY)], margin=NET_FALL)


@_training_claim(
    "sec-4-realistic",
    "Sec. 4 “either decrease or stay in small values during the training”",
    "All six quantities decrease or stay in small values.",
    code="nclab_papers.ji2022.fig3.net_fall",
)
def sec_4_realistic(seeds: Seeds) -> Finding:
    parts = []
    for name, heading in zip(QUANTITIES, COLUMNS, strict=True):
        curves = {seed: [row[name] for row in rows] for seed, rows in seeds.items()}
        happened = {
            seed: net_fall(values) > NET_FALL or max(values) < SMALL
            for seed, values in curves.items()
        }
        parts.append(Share(f"{heading} decreases or stays below {SMALL:g}", happened))
    return judge_effects(parts)


def net_fall(values: Sequence[float]) -> float:
    """Return the share of pairs of values that fall, minus the share of pairs that rise.

    A pair falls if its later value is smaller.

    >>> net_fall([3.0, 1.0, 2.0]), net_fall([1.0, 1.0, 1.0])
    (0.3333333333333333, 0.0)
    """
    y = np.asarray(values)
    earlier, later = np.triu_indices(len(y), 1)
    return float(np.sign(y[earlier] - y[later]).mean())


def _net_fall_part(seeds: Seeds, name: str) -> Part:
    return Part(
        f"share of pairs that fall minus share that rise, {COLUMNS[QUANTITIES.index(name)]}",
        {seed: net_fall([row[name] for row in rows]) for seed, rows in seeds.items()},
    )


def _ends_small(seeds: Seeds, names: Sequence[str]) -> list[Part]:
    """Return parts that claim that quantities are below `SMALL` at the end of training."""
    return [
        Part(
            f"quantity {COLUMNS[QUANTITIES.index(name)]} at the end",
            {seed: rows[-1][name] for seed, rows in seeds.items()},
            below=SMALL,
        )
        for name in names
    ]


def held_out(times: Sequence[float], values: Sequence[float], law: str) -> float:
    """Return how well a law predicts points that it was not fitted to, as a mean log density.

    For each point, a straight line is fitted to the other points. The density is that of Student's
    predictive distribution of this line at the point.
    """
    from scipy.stats import t as student

    x = np.array([LAWS[law](time) for time in times])
    y = np.log(np.asarray(values, dtype=np.float64))
    if len(x) < FEWEST:
        raise ValueError(f"Expected at least {FEWEST} points, got {len(x)}.")
    densities = []
    for index in range(len(x)):
        others = np.arange(len(x)) != index
        slope, level = np.polyfit(x[others], y[others], 1)
        freedom = int(others.sum()) - 2
        variance = float(np.square(y[others] - slope * x[others] - level).sum()) / freedom
        centred = x[others] - x[others].mean()
        leverage = 1 / others.sum()
        leverage += (x[index] - x[others].mean()) ** 2 / float(centred @ centred)
        width = math.sqrt(max(variance, NOISE**2) * (1 + leverage))
        densities.append(float(student.logpdf(y[index], freedom, slope * x[index] + level, width)))
    return math.fsum(densities) / len(densities)


def advantage(times: Sequence[float], values: Sequence[float]) -> float:
    """Return how much better a power of log t predicts held-out points than the best other law.

    It is the difference of their log likelihoods, see `held_out`.
    """
    claimed, *others = (held_out(times, values, law) for law in LAWS)
    return claimed - max(others)


def fall(times: Sequence[float], values: Sequence[float]) -> float:
    """Return minus the slope of log(values) against log log t, with t in `times`.

    >>> round(fall([100, 200, 400], [1 / math.log(t) for t in (100, 200, 400)]), 9)
    1.0
    """
    x = [LAWS["(log t)^-r"](time) for time in times]
    return -float(np.polyfit(x, np.log(values), 1)[0])


def how_far(config: Mapping[str, Any]) -> str:
    """Return text that compares size and variant with those of the paper; "" if they agree."""
    paper = PRESETS["published"]
    reached = all(config[name] >= getattr(paper, name) for name in ("images", "width", "epochs"))
    if reached and network(config) == network(asdict(paper)):
        return ""
    return (
        f"{config['images']} of {paper.images} images, width {config['width']:g} of "
        f"{paper.width:g}, {config['epochs']} of {paper.epochs} epochs, {network(config)}"
    )


def network(config: Mapping[str, Any]) -> str:
    """Return the name of the variant of VGG-13: its batch norm and fully connected layers."""
    dense = config.get("dense", 0)
    which = "its" if dense == PRESETS["published"].dense else "other"
    layers = f"with {which} fully connected layers (no dropout)"
    return (
        f"VGG-13 {'with' if config['batch_norm'] else 'without'} batch norm, "
        f"{layers if dense else 'without its fully connected layers'}"
    )


def _why_too_early(seeds: Seeds) -> str:
    """Return why the rows cannot be judged yet, or an empty text."""
    if not seeds:
        return "no measurements"
    for seed, rows in seeds.items():
        unknown = [name for name in QUANTITIES if any(row[name] is None for row in rows)]
        if unknown:
            return f"seed {seed} has measurements without {', '.join(unknown)}"
    short = [str(seed) for seed, rows in seeds.items() if rows[-1]["accuracy"] < 1]
    return f"seed {', '.join(short)} has not reached accuracy 1" if short else ""
