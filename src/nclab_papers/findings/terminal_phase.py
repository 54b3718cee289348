"""What training on after interpolation is good for: test data, margins, robustness, centres.

Claim: training after zero training error makes networks generalise better and more robust.
Source: ji2022, Sec. 1

The paper gives this as the motivation of its theory, for no network, data or size; what is found
here is therefore ours. The same network is looked at twice: when it has just come to classify all
of its training data correctly, and at the end of its training.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, get_args

from nclab.claims.claim import Claim, Finding, Kind, Numbers
from nclab.claims.judging import Part, judge_effects, t_interval
from nclab.claims.paper import run_jobs
from nclab.claims.tables import Row, Table, mean_and_deviation
from nclab.engine import LOCAL, Engine, Job
from nclab.errors import NclabError
from nclab.figures.picture import Panel, Picture, Series
from nclab.training.data import fashion_mnist
from nclab_papers.findings.terminal_training import (
    AFTER,
    BEFORE,
    KIND,
    MOMENT,
    QUANTILES,
    Config,
    Network,
    read_rows,
    train,
)
from nclab_papers.ji2022.fig3 import QUICK as FIGURE
from nclab_papers.ji2022.vgg_training import is_finished
from nclab_papers.pan2023.networks import PAPER, QUICK

PRESETS = {
    "quick": Config(replace(FIGURE, images=200, epochs=50), QUICK, tested=1000, perturbed=200),
    "paper": Config(FIGURE, PAPER),
}
"""paper: the sizes of Figure 3's quick preset and of the thesis; quick: images divided by
five, their epochs by four, tests by ten, for the cost, and the thesis's networks at their quick
size."""
NAMES: Mapping[Network, str] = {
    "vgg": "VGG-13 on FashionMNIST",
    "mlp": "The thesis's network on data of a teacher",
}
SHARE, UNIT = 0.005, 0.01
"""Margins: of shares of samples, and of quantities with a range of about 1."""

Value = Callable[[Row], float]
Pairs = Mapping[int, tuple[Row, Row]]
"""Before and after, by seed."""


def run(
    config: Config, *, seeds: Sequence[int], out: Path, engine: Engine = LOCAL
) -> dict[str, Any]:
    """Train what is missing, one process for each network, and gather both moments of all."""
    if not seeds or len(set(seeds)) < len(seeds):
        raise NclabError(f"Expected different seeds, at least one; got {list(seeds)}.")
    planned = {
        (network, seed): out / KIND / config.run_name(network, seed)
        for network in get_args(Network)
        for seed in seeds
    }
    missing = {plan: folder for plan, folder in planned.items() if not is_finished(folder)}
    if any(network == "vgg" for network, _ in missing):
        for part in ("train", "test"):
            fashion_mnist.load(part=part)  # here, so that one line says what is missing
    if missing:
        _train(config, missing, engine)
    vgg, mlp = config.vgg, config.mlp
    return {
        "config": {**asdict(config), "seeds": list(seeds)},
        "size": f"VGG-13 × {vgg.width:g}, {vgg.images} images, {vgg.epochs} epochs; "
        f"{config.layers} layers of width {mlp.width}, {mlp.samples} samples, {mlp.epochs} epochs",
        "seeds": list(seeds),
        "runs": [str(folder.relative_to(out)) for folder in planned.values()],
        "rows": [row for (network, _), one in planned.items() for row in read_rows(one, network)],
    }


def _train(config: Config, missing: Mapping[tuple[Network, int], Path], engine: Engine) -> None:
    # Absolute, as a cluster's processes have working folders of their own.
    jobs = [
        Job(f"{network}, seed {seed}", train, (folder.absolute(), config, network, seed))
        for (network, seed), folder in missing.items()
    ]
    total = sum(config.epochs(network) for network, _ in missing)
    folder = next(iter(missing.values())).absolute().parent
    run_jobs(jobs, "training on", engine=engine, total=total, folder=folder)


def pairs(numbers: Numbers, network: Network) -> Pairs:
    """Both moments of the seeds that have a terminal phase.

    >>> rows = [{"network": "mlp", "seed": 0, "moment": m, "epoch": t}
    ...         for m, t in (("before", 4), ("after", 9))]
    >>> [(a["epoch"], b["epoch"]) for a, b in pairs({"rows": rows}, "mlp").values()]
    [(4, 9)]
    """
    own = [row for row in numbers["rows"] if row["network"] == network]
    first, last = (
        {row["seed"]: row for row in own if row[MOMENT] == moment} for moment in (BEFORE, AFTER)
    )
    return {
        seed: (first[seed], last[seed])
        for seed in sorted(first.keys() & last.keys())
        if first[seed]["epoch"] < last[seed]["epoch"]
    }


def _of(name: str, place: int | None = None) -> Value:
    """A field of a moment, or one of its values."""
    return lambda row: float(row[name] if place is None else row[name][place])


def quantities(config: Mapping[str, Any]) -> dict[str, Value]:
    """Everything that is compared, by what it is called; what rises is better but for the first
    two."""
    found = {
        "variation within classes": _of("nc1_within_variation"),
        "cosines of class means off −1/(C−1)": _of("nc2_equiangularity_means"),
        "smallest training margin": _of("margin"),
        "normalised margin of ji2022": _of("normalised_margin"),
        "test accuracy": _of("test_accuracy"),
        "10 % quantile of the test margins": _of("test_margins", QUANTILES.index(0.1)),
        "median of the test margins": _of("test_margins", QUANTILES.index(0.5)),
    }
    found |= {
        f"accuracy against an adversary, {radius:g}": _of("attacked", place)
        for place, radius in enumerate(config["radii"])
    }
    found |= {
        f"accuracy with noise, {size:g}": _of("noisy", place)
        for place, size in enumerate(config["noises"])
    }
    return found | {
        "nearest centre decides alike, test": _of("test_agreement"),
        "nearest centre is right, test": _of("test_centre_accuracy"),
    }


def tables(numbers: Numbers) -> list[Table]:
    """Before, after and their difference, for either network."""
    return [_table(numbers, network) for network in get_args(Network)]


def _table(numbers: Numbers, network: Network) -> Table:
    known = list(pairs(numbers, network).values())
    rows = []
    for name, value in {"epoch": _of("epoch"), **quantities(numbers["config"])}.items():
        before, after = ([value(pair[moment]) for pair in known] for moment in (0, 1))
        change = [b - a for a, b in zip(before, after, strict=True)]
        rows.append(
            (name, *(mean_and_deviation(one, ".4g") for one in (before, after)), _change(change))
        )
    return Table(
        f"{NAMES[network]}: when it begins to interpolate and at the end, mean ± deviation over "
        f"the {len(known)} of {len(numbers['seeds'])} seeds with such a phase; margins in units "
        "of the largest for the norms",
        ("quantity", "before", "after", "after − before, 95 %"),
        rows,
    )


def _change(values: Sequence[float]) -> str:
    if not values:
        return "–"
    ends = t_interval(values)
    middle = f"{fmean(values):+.4f}"
    return middle if ends is None else f"{middle} [{ends[0]:+.4f}, {ends[1]:+.4f}]"


def pictures(numbers: Numbers) -> list[Picture]:
    """A row for each network: shares of test samples, distribution of margins, collapse."""
    panels: list[Panel] = []
    for network in get_args(Network):
        known = list(pairs(numbers, network).values())
        if known:
            panels += _panels(numbers, network, known)
    if not panels:
        return []
    return [
        Picture(
            "findings_terminal_phase",
            "Training on after interpolation",
            tuple(panels),
            columns=3,
            caption="Means over seeds, bars and bands the range, when all training data are "
            "classified correctly for the first time and at the end of training. Adversaries and "
            "noise by their size in deviations of the inputs; margins in units of the largest "
            "that the norms allow, αβC/(C−1).",
            panel_size=(4.4, 3.0),
        )
    ]


def _panels(numbers: Numbers, network: Network, known: Sequence[tuple[Row, Row]]) -> list[Panel]:
    config = numbers["config"]
    shares: dict[str, Value] = {"test": _of("test_accuracy")}
    shares |= {f"adv. {r:g}": _of("attacked", place) for place, r in enumerate(config["radii"])}
    shares |= {f"noise {s:g}": _of("noisy", place) for place, s in enumerate(config["noises"])}
    shares["centre"] = _of("test_agreement")
    collapse: dict[str, Value] = {
        "NC1": _of("nc1_within_variation"),
        "NC2": _of("nc2_equiangularity_means"),
        "margin": _of("margin"),
        "median test": _of("test_margins", QUANTILES.index(0.5)),
    }
    return [
        _named(f"{network}: share of test samples", shares, known),
        Panel(
            f"{network}: test margins",
            "margin, in units of the largest",
            "share below",
            tuple(
                Series(
                    label,
                    [fmean(_column(known, moment, _of("test_margins", p))) for p in places],
                    [QUANTILES[p] for p in places],
                    colour=moment,
                    style="dashed" if moment == 0 else "solid",
                    marker="hollow" if moment == 0 else "filled",
                )
                for moment, label in enumerate((BEFORE, AFTER))
                for places in [range(len(QUANTILES))]
            ),
        ),
        _named(f"{network}: collapse and margins", collapse, known),
    ]


def _column(known: Sequence[tuple[Row, Row]], moment: int, value: Value) -> list[float]:
    return [value(pair[moment]) for pair in known]


def _named(title: str, values: Mapping[str, Value], known: Sequence[tuple[Row, Row]]) -> Panel:
    """Both moments side by side over named quantities."""
    series = []
    for moment, label in enumerate((BEFORE, AFTER)):
        columns = [_column(known, moment, value) for value in values.values()]
        series.append(
            Series(
                label,
                [place + 0.2 * moment - 0.1 for place in range(len(columns))],
                [fmean(one) for one in columns],
                [min(one) for one in columns],
                [max(one) for one in columns],
                colour=moment,
                style="none",
                marker="hollow" if moment == 0 else "filled",
            )
        )
    ticks = tuple(float(place) for place in range(len(values)))
    return Panel(title, "", "", tuple(series), x_ticks=ticks, x_names=tuple(values))


COLLAPSE = (
    "variation within classes",
    "cosines of class means off −1/(C−1)",
    "smallest training margin",
)
FALLS = COLLAPSE[:2]
"""Signed so that a fall is what is claimed."""


def judged(
    network: Network, wanted: Callable[[str], bool], margin: float, numbers: Numbers
) -> Finding:
    """The paired differences of some quantities, signed so that a gain is positive."""
    known = pairs(numbers, network)
    parts = []
    for name, value in quantities(numbers["config"]).items():
        if wanted(name):
            sign, word = (-1, "fall") if name in FALLS else (1, "rise")
            change = {seed: sign * (value(b) - value(a)) for seed, (a, b) in known.items()}
            parts.append(Part(f"{word} of {name}", change))
    found = judge_effects(parts, margin=margin)
    without = len(numbers["seeds"]) - len(known)
    if not without:
        return found
    note = f"; {without} of {len(numbers['seeds'])} seeds have no terminal phase"
    return replace(found, evidence=found.evidence + note)


def _finding(
    network: Network,
    id: str,
    text: str,
    source: str,
    wanted: Callable[[str], bool],
    margin: float,
) -> Claim:
    return Claim(
        f"findings/terminal-{id}-{network}",
        Kind.RESULT,
        f"{NAMES[network]}: {text[0].lower()}{text[1:]}",
        source,
        partial(judged, network, wanted, margin),
        needs="findings_terminal_phase",
        figure="findings_terminal_phase",
    )


BENEFIT = "ji2022, Sec. 1 “the benefit of training after achieving zero training”"
COLLAPSES = (
    "collapse",
    "Between the first interpolation and the end of training features collapse further and the "
    "normalised margin of the training data grows.",
    "ji2022, Sec. 1 “the within-class cross-sample features will collapse to the mean”",
    COLLAPSE.__contains__,
    UNIT,
)
GENERALISES = (
    "generalisation",
    "Training on after interpolation makes the test accuracy higher.",
    BENEFIT,
    "test accuracy".__eq__,
    SHARE,
)
MARGINS = (
    "margins",
    "Training on after interpolation makes the normalised margins of the test data larger.",
    "ji2022, Sec. 3.1 “max-margin directions, which usually enjoy some good properties”",
    ("10 % quantile of the test margins", "median of the test margins").__contains__,
    UNIT,
)
ROBUST = (
    "robustness",
    "Training on after interpolation makes the accuracy on perturbed test data higher.",
    "ji2022, Sec. 1 “better properties in generalization and robustness”",
    lambda name: name.startswith("accuracy "),
    SHARE,
)
CENTRES = (
    "centres",
    "Training on after interpolation makes the classifier decide more often as the nearest class "
    "mean does on test data.",
    "pan2023, Sec. 1.2 “assigning the label of the nearest class mean vector”",
    "nearest centre decides alike, test".__eq__,
    SHARE,
)
vgg_collapses = _finding("vgg", *COLLAPSES)
vgg_generalises = _finding("vgg", *GENERALISES)
vgg_margins = _finding("vgg", *MARGINS)
vgg_robust = _finding("vgg", *ROBUST)
vgg_centres = _finding("vgg", *CENTRES)
mlp_collapses = _finding("mlp", *COLLAPSES)
mlp_generalises = _finding("mlp", *GENERALISES)
mlp_margins = _finding("mlp", *MARGINS)
mlp_robust = _finding("mlp", *ROBUST)
mlp_centres = _finding("mlp", *CENTRES)
