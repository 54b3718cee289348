"""Effect of training beyond interpolation on test accuracy, margins, robustness and class centres.

Claim: training after zero training error makes networks generalise better and more robust.
Source: ji2022, Sec. 1

The paper states this as the motivation of its theory, without a network, data or size; the results
here are therefore findings of this project. The same network is measured twice: when it first
classifies all of its training data correctly, and at the end of training.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, get_args

from nclab.claims.claim import Claim, Finding, Kind, Numbers
from nclab.claims.effects import Part
from nclab.claims.judging import judge_effects
from nclab.claims.paper import run_jobs
from nclab.claims.pictures import mean_points, point_panel
from nclab.claims.tables import Row, Table, mean_and_deviation
from nclab.engine import LOCAL, Engine, Job
from nclab.errors import NclabError
from nclab.figures.picture import Picture
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
"""Configurations. "paper" trains VGG-13 at the quick size of Figure 3 of ji2022, and the network of
pan2023 at the size of the thesis. "quick" has a fifth of the images, a quarter of the epochs, a
tenth of the test samples, and smaller networks."""
NAMES: Mapping[Network, str] = {
    "vgg": "VGG-13 on FashionMNIST",
    "mlp": "The network of pan2023 on data of a teacher",
}
SHARE, UNIT = 0.005, 0.01
"""Smallest differences that matter: for accuracies, and for quantities of order 1."""

Value = Callable[[Row], float]
Pairs = Mapping[int, tuple[Row, Row]]
"""Results at the first interpolation and at the end of training, by seed."""


def run(
    config: Config, *, seeds: Sequence[int], out: Path, engine: Engine = LOCAL
) -> dict[str, Any]:
    """Train the networks that are not recorded yet; return the results of all at both moments.

    Each network is trained in its own process.
    """
    if not seeds or len(set(seeds)) < len(seeds):
        raise NclabError(f"Expected at least one seed and no seed twice, got {list(seeds)}.")
    planned = {
        (network, seed): out / KIND / config.run_name(network, seed)
        for network in get_args(Network)
        for seed in seeds
    }
    missing = {key: folder for key, folder in planned.items() if not is_finished(folder)}
    if any(network == "vgg" for network, _ in missing):
        for part in ("train", "test"):
            fashion_mnist.load(part=part)  # raises here if the data are not installed
    # The paths are absolute, because processes on a cluster have other working folders.
    jobs = [
        Job(f"{network}, seed {seed}", train, (folder.absolute(), config, network, seed))
        for (network, seed), folder in missing.items()
    ]
    if jobs:
        total = sum(config.epochs(network) for network, _ in missing)
        folder = (out / KIND).absolute()
        run_jobs(jobs, "training on", engine=engine, total=total, folder=folder)
    vgg, mlp = config.vgg, config.mlp
    return {
        "config": {**asdict(config), "seeds": list(seeds)},
        "size": f"VGG-13 × {vgg.width:g}, {vgg.images} images, {vgg.epochs} epochs; "
        f"{config.layers} layers of width {mlp.width}, {mlp.samples} samples, {mlp.epochs} epochs",
        "seeds": list(seeds),
        "runs": [str(folder.relative_to(out)) for folder in planned.values()],
        "rows": [
            row for (network, _), folder in planned.items() for row in read_rows(folder, network)
        ],
    }


def pairs(numbers: Numbers, network: Network) -> Pairs:
    """Return the results at both moments for every seed that interpolates before the last epoch."""
    rows = [row for row in numbers["rows"] if row["network"] == network]
    first, last = (
        {row["seed"]: row for row in rows if row[MOMENT] == moment} for moment in (BEFORE, AFTER)
    )
    return {
        seed: (first[seed], last[seed])
        for seed in sorted(first.keys() & last.keys())
        if first[seed]["epoch"] < last[seed]["epoch"]
    }


def _field(name: str, index: int | None = None) -> Value:
    """Return a function that reads field `name` of a row, or the entry `index` of this field."""
    return lambda row: float(row[name] if index is None else row[name][index])


FALLING = ("variation within classes", "deviation from equal angles (class means)")
"""Quantities whose decrease is claimed."""
COLLAPSE = (*FALLING, "smallest training margin")
ACCURACY, AGREEMENT = "test accuracy", "agreement with the nearest class mean, test"
MARGIN_QUANTILES = ("10 % quantile of the test margins", "median of the test margins")


def quantities(config: Mapping[str, Any]) -> dict[str, Value]:
    """Return for each compared quantity a function that reads it from the results at a moment.

    A decrease of the quantities in `FALLING` is an improvement; the others improve by rising.
    """
    attacked = {
        f"accuracy against an adversary, {radius:g}": _field("attacked", index)
        for index, radius in enumerate(config["radii"])
    }
    noisy = {
        f"accuracy with noise, {size:g}": _field("noisy", index)
        for index, size in enumerate(config["noises"])
    }
    return {
        FALLING[0]: _field("nc1_within_variation"),
        FALLING[1]: _field("nc2_equiangularity_means"),
        COLLAPSE[2]: _field("margin"),
        "normalised margin of ji2022": _field("normalised_margin"),
        ACCURACY: _field("test_accuracy"),
        MARGIN_QUANTILES[0]: _field("test_margins", QUANTILES.index(0.1)),
        MARGIN_QUANTILES[1]: _field("test_margins", QUANTILES.index(0.5)),
        **attacked,
        **noisy,
        AGREEMENT: _field("test_agreement"),
        "nearest class mean is correct, test": _field("test_centre_accuracy"),
    }


def tables(numbers: Numbers) -> list[Table]:
    """Return a table for each network: every quantity at both moments, and the difference."""
    tables = []
    for network in get_args(Network):
        moments = pairs(numbers, network).values()
        lines = []
        for name, value in {"epoch": _field("epoch"), **quantities(numbers["config"])}.items():
            before, after = ([value(pair[moment]) for pair in moments] for moment in (0, 1))
            changes = [b - a for a, b in zip(before, after, strict=True)]
            cells = (mean_and_deviation(values, ".4g") for values in (before, after, changes))
            lines.append((name, *cells))
        title = (
            f"{NAMES[network]}: at the first interpolation and at the end, mean ± deviation over "
            f"the {len(moments)} of {len(numbers['seeds'])} seeds with a terminal phase; margins "
            "in units of the largest margin that the norms allow"
        )
        tables.append(Table(title, ("quantity", "before", "after", "after − before"), lines))
    return tables


def pictures(numbers: Numbers) -> list[Picture]:
    """Return one picture with two panels per network.

    The first shows shares of correct test samples, the second collapse and margins.
    """
    config = numbers["config"]
    shown = {
        "share of test samples": {
            "test": _field("test_accuracy"),
            **{f"adv. {r:g}": _field("attacked", i) for i, r in enumerate(config["radii"])},
            **{f"noise {s:g}": _field("noisy", i) for i, s in enumerate(config["noises"])},
            "centre": _field("test_agreement"),
        },
        "collapse and margins": {
            "NC1": _field("nc1_within_variation"),
            "NC2": _field("nc2_equiangularity_means"),
            "margin": _field("margin"),
            "median test": _field("test_margins", QUANTILES.index(0.5)),
        },
    }
    panels = []
    for network in get_args(Network):
        moments = pairs(numbers, network).values()
        for title, values in shown.items() if moments else ():
            groups = [
                mean_points(
                    label,
                    [[value(pair[moment]) for pair in moments] for value in values.values()],
                    colour=moment,
                    marker="filled" if moment else "hollow",
                )
                for moment, label in enumerate((BEFORE, AFTER))
            ]
            panels.append(point_panel(f"{network}: {title}", list(values), groups))
    caption = (
        "Hollow: when all training data are classified correctly for the first time. "
        "Filled: at the end of training. Means over seeds; bars reach from the smallest to "
        "the largest seed. Adversaries and noise are given in standard deviations of the "
        "inputs, margins in units of the largest margin that the norms allow, αβC/(C−1)."
    )
    title, size = "Training beyond interpolation", (4.4, 3.0)
    picture = Picture("findings_terminal_phase", title, tuple(panels), 2, caption, size)
    return [picture] if panels else []


def judged(
    network: Network, wanted: Callable[[str], bool], margin: float, numbers: Numbers
) -> Finding:
    """Judge how much some quantities improve between the two moments of each seed.

    Args:
        wanted: returns whether the quantity with a given name belongs to the claim.
        margin: smallest improvement of interest.
    """
    moments = pairs(numbers, network)
    parts = []
    for name, value in quantities(numbers["config"]).items():
        if wanted(name):
            sign, word = (-1, "fall") if name in FALLING else (1, "rise")
            change = {seed: sign * (value(b) - value(a)) for seed, (a, b) in moments.items()}
            parts.append(Part(f"{word} of the {name}", change))
    finding = judge_effects(parts, margin=margin)
    without = len(numbers["seeds"]) - len(moments)
    if not without:
        return finding
    note = f"; {without} of {len(numbers['seeds'])} seeds have no terminal phase"
    return replace(finding, evidence=finding.evidence + note)


def _claims(
    id: str, text: str, source: str, wanted: Callable[[str], bool], margin: float
) -> tuple[Claim, Claim]:
    """Return the claim about VGG-13 and the same claim about the network of pan2023."""
    vgg, mlp = (
        Claim(
            f"findings/terminal-{id}-{network}",
            Kind.RESULT,
            f"{NAMES[network]}: {text}",
            source,
            partial(judged, network, wanted, margin),
            needs="findings_terminal_phase",
            figure="findings_terminal_phase",
        )
        for network in get_args(Network)
    )
    return vgg, mlp


vgg_collapses, mlp_collapses = _claims(
    "collapse",
    "between the first interpolation and the end of training features collapse further and the "
    "normalised margin of the training data grows.",
    "ji2022, Sec. 1 “the within-class cross-sample features will collapse to the mean”",
    COLLAPSE.__contains__,
    UNIT,
)
vgg_generalises, mlp_generalises = _claims(
    "generalisation",
    "training beyond interpolation makes the test accuracy higher.",
    "ji2022, Sec. 1 “the benefit of training after achieving zero training”",
    ACCURACY.__eq__,
    SHARE,
)
vgg_margins, mlp_margins = _claims(
    "margins",
    "training beyond interpolation makes the normalised margins of the test data larger.",
    "ji2022, Sec. 3.1 “max-margin directions, which usually enjoy some good properties”",
    MARGIN_QUANTILES.__contains__,
    UNIT,
)
vgg_robust, mlp_robust = _claims(
    "robustness",
    "training beyond interpolation makes the accuracy on perturbed test data higher.",
    "ji2022, Sec. 1 “better properties in generalization and robustness”",
    lambda name: name.startswith("accuracy "),
    SHARE,
)
vgg_centres, mlp_centres = _claims(
    "centres",
    "training beyond interpolation makes the classifier decide more often as the nearest class "
    "mean does on test data.",
    "pan2023, Sec. 1.2 “assigning the label of the nearest class mean vector”",
    AGREEMENT.__eq__,
    SHARE,
)
