"""The author's 21 published results on ImageNet32, and what their norms and losses guarantee.

There are three networks and seven weight decays with one seed each. One seed has no interval, so
the results support a sentence of the thesis or oppose it, or are mixed; they do not decide it.

The guarantee is a bound on the share of the squared norm of the centred features that lies between
classes. It holds whatever the bias of the classifier, which is not published, if all classes have
100 samples; their sizes are not published either.

Claim: with batch norm a network gains from larger weight decay.
Source: pan2023, Sec. 3.1.2
"""

import csv
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from nclab.claims.claim import OURS, Finding, Kind, Numbers, Verdict, claim
from nclab.claims.judging import with_readings
from nclab.claims.paper import find_author_file
from nclab.claims.pictures import Line, line_panel
from nclab.claims.tables import Column, Row, Table, Value, group, list_rows
from nclab.engine import LOCAL, Engine
from nclab.errors import MissingData
from nclab.figures.picture import Panel, Picture
from nclab.theory.certificates.certification import certify
from nclab.theory.certificates.count_aware import count_aware_bounds
from nclab_papers.pan2023.author_data import REPOSITORY
from nclab_papers.pan2023.networks import COSINE_MARGIN, DECAY_AXIS, DECAY_COLUMN

NAME = "pan2023_author_results"
FILES = ("pan_imagenet32.csv", "results")
"""Searched names of the published results: a table, or the author's folder of text files."""
RESULTS = 21
FIELDS = {
    "loss": r"^Loss: (\S+)$",
    "weight_norm": r"^Linear Weight Norm: (\S+)$",
    "min_intra": r"^Intra Cos: (\S+)$",
    "max_inter": r"^Inter Cos: (\S+)$",
    "mean_intra": r"^Intra Avg: (\S+)$",
    "mean_inter": r"^Inter Avg: (\S+)$",
    "intra_delta05": r"^Intra Delta \(delta=0.05\): (\S+)$",
    "inter_delta05": r"^Inter Delta \(delta=0.05\): (\S+)$",
    "alpha": r"^Norm Quadratic Average: (\S+)$",
}
"""Field of a result -> pattern of its line in a text file; the first match is the last layer's."""
OTHER_DECAYS = {
    "0.01 is left out": 1e-2,
    "0.0001 is left out, as in the author's figure": 1e-4,
}
"""Other readings of the slopes -> weight decay that they leave out. The thesis speaks of converged
networks; the accuracies are not published, and at 0.01 the losses are largest."""
STANCES = {
    Verdict.SUPPORTED: "support",
    Verdict.OPPOSED: "oppose",
    Verdict.UNDECIDED: "are mixed on",
}
"""Verb of the sentence that says what the results mean for a claim."""
READINGS = {
    "degree_worst": "worst class and pair",
    "degree_most": "95 % of classes and pairs",
    "degree_mean": "average class and pair",
}
"""Field with a degree of collapse -> the classes and pairs of classes that it describes."""
DEGREE_RANGE = (-0.65, 1.05)
"""Range of the vertical axis for degrees of collapse."""
LOG_NORM_MARGIN = 0.01
"""Smallest change of log10 of a norm per decade of weight decay that is of interest, as for the
thesis's networks."""


@dataclass(frozen=True)
class Config:
    """Sizes of the published experiment."""

    classes: int = 1000
    per_class: int = 100
    """Samples of a class: 100,000 images of 1,000 classes."""
    epochs: int = 300
    delta: float = 0.05
    """Share of the classes that a guarantee may leave out, as in the published results."""


PRESETS = {"quick": Config(), "paper": Config()}


def run(
    config: Config, *, seeds: Sequence[int], out: Path, engine: Engine = LOCAL
) -> dict[str, Any]:
    """Read the published results; return the degrees of collapse, norms and guarantees."""
    rows = [guaranteed(config, row) for row in read_results()]
    return {
        "config": asdict(config),
        "author_data": REPOSITORY,
        "published": True,
        "size": f"the author's results; {len(rows)} networks, 1 seed, {config.classes} classes, "
        f"{config.classes * config.per_class:,} samples, {config.epochs} epochs",
        "rows": rows,
    }


def read_results() -> list[dict[str, Any]]:
    """Return the published results, sorted by network and weight decay."""
    path = find_author_file(FILES, source=REPOSITORY)
    if path.is_dir():
        rows = [parse_result(file) for file in sorted(path.glob("*ImageNet32*.txt"))]
    else:
        with path.open(newline="") as stream:
            rows = [
                {"network": row["network"]}
                | {name: float(row[name]) for name in ("weight_decay", *FIELDS)}
                for row in csv.DictReader(stream)
            ]
    if len(rows) != RESULTS:
        raise MissingData(
            f"Expected the author's {RESULTS} results in {path}, found {len(rows)}. "
            f"Use a copy of {REPOSITORY}."
        )
    return sorted(rows, key=lambda row: (row["network"], row["weight_decay"]))


def parse_result(file: Path) -> dict[str, Any]:
    """Return the numbers of one published text file."""
    named = re.search(r"model_type_([^_]+)_.*weight_decay_([\d.e-]+)\.txt$", file.name)
    text = file.read_text()
    found = {name: re.search(line, text, re.MULTILINE) for name, line in FIELDS.items()}
    missing = [name for name, match in found.items() if match is None]
    if named is None or missing:
        what = ", ".join(missing) or "the network in the file name"
        raise MissingData(f"Expected {what} in {file}, not found. Use a copy of {REPOSITORY}.")
    numbers = {name: float(match[1]) for name, match in found.items() if match is not None}
    return {"network": named[1], "weight_decay": float(named[2]), **numbers}


def guaranteed(config: Config, row: Row) -> dict[str, Any]:
    """Return degrees of collapse, norms, loss and guarantees of one published network.

    alpha is the rms norm of centred features and beta = |W|_F / sqrt C. Centring the features
    changes the bias of the classifier only. The guarantee for 95 % of the classes and that of the
    thesis assume that this bias is equal for all classes.
    """
    alpha, beta = float(row["alpha"]), float(row["weight_norm"]) / math.sqrt(config.classes)
    certificate = certify(config.classes, alpha, beta, row["loss"], delta=config.delta, pairs=False)
    bounds = count_aware_bounds(
        [config.per_class] * config.classes, alpha * beta, row["loss"], bias=True
    )
    within = bounds.within_upper
    most, thesis = certificate.fraction_intra_lower, certificate.thesis_intra_lower
    return {
        "network": row["network"],
        "weight_decay": row["weight_decay"],
        "alpha": alpha,
        "beta": beta,
        "loss": row["loss"],
        "smallest_loss": certificate.optimal_loss,
        "mean_intra": row["mean_intra"],
        "degree_worst": row["min_intra"] - row["max_inter"],
        "degree_most": row["intra_delta05"] - row["inter_delta05"],
        "degree_mean": row["mean_intra"] - row["mean_inter"],
        "guaranteed_between": 1 - within.value if within.valid and within.value else 0.0,
        "guaranteed_most": most.value if most.valid else None,
        "thesis_guaranteed": thesis.value if thesis.valid else None,
    }


def tables(numbers: Numbers) -> list[Table]:
    """Return measured degrees of collapse, and norms, losses and guarantees, of every network."""
    keys = (Column("network", "network"), DECAY_COLUMN)
    degrees = [Column(words, name) for name, words in READINGS.items()]
    guarantees = (
        Column("α", "alpha", ".2f"),
        Column("β", "beta", ".3f"),
        Column("αβ", lambda row: row["alpha"] * row["beta"], ".2f"),
        Column("loss", "loss", ".2e"),
        Column("smallest loss with these norms", "smallest_loss", ".2e"),
        Column("mean intra, measured", "mean_intra"),
        Column("between classes, guaranteed", "guaranteed_between"),
        Column("95 % of the classes, guaranteed", "guaranteed_most"),
        Column("95 % of the classes, by the thesis", "thesis_guaranteed"),
    )
    kept = {"all": numbers["rows"]} | {
        reading: [row for row in numbers["rows"] if row["weight_decay"] != left_out]
        for reading, left_out in OTHER_DECAYS.items()
    }
    slopes = [
        {"reading": words, "decays": decays, **slopes_of(rows, name)}
        for name, words in READINGS.items()
        for decays, rows in kept.items()
    ]
    networks = [Column(network, network, "+.3f") for (network,) in _networks(numbers["rows"])]
    return [
        list_rows("Author's results: intra − inter, centred", numbers["rows"], (*keys, *degrees)),
        list_rows(
            "Author's results: slope a decade of weight decay",
            slopes,
            (Column("intra − inter", "reading"), Column("weight decays", "decays"), *networks),
        ),
        list_rows("Author's results beside guarantees", numbers["rows"], (*keys, *guarantees)),
    ]


def pictures(numbers: Numbers) -> list[Picture]:
    """Return degrees of collapse, and guarantees, against weight decay for each network."""
    degrees = [Line(words, name, {}, at) for at, (name, words) in enumerate(READINGS.items())]
    intra = (
        Line("mean intra-class cosine, measured", "mean_intra"),
        Line("share between classes, guaranteed", "guaranteed_between", {}, 4, "dashed", "hollow"),
    )
    upper: list[Panel] = []
    lower: list[Panel] = []
    for (network,), rows in _networks(numbers["rows"]).items():
        axis: dict[str, Any] = {**DECAY_AXIS, "y_range": DEGREE_RANGE}
        y_label = "" if upper else "intra − inter"
        upper.append(line_panel(network, rows, lines=degrees, y_label=y_label, **axis))
        axis["y_range"] = (-0.02, 1.02)
        y_label = "" if lower else "cosine, share"
        lower.append(line_panel(network, rows, lines=intra, y_label=y_label, **axis))
    return [
        Picture(
            NAME,
            "The author's results on ImageNet32",
            (*upper, *lower),
            3,
            "Author's results, one seed. Above: intra-class minus inter-class cosine of centred "
            "features, for the worst class and pair (the quantity of Figure 3.1), for 95 % of "
            "them, and on average. Below: the measured mean intra-class cosine beside the share "
            "of the squared feature norm between classes that norms and loss guarantee.",
        )
    ]


def slope_per_decade(weight_decays: Sequence[float], values: Sequence[float]) -> float:
    """Return the least-squares slope of a value per decade of weight decay.

    >>> round(slope_per_decade([1e-4, 1e-3, 1e-2], [0.1, 0.2, 0.6]), 12)
    0.25
    """
    return float(np.polyfit(np.log10(weight_decays), values, 1)[0])


def slopes_of(rows: Sequence[Row], value: str | Value) -> dict[str, float]:
    """Return by network the slope of a value per decade of weight decay."""
    column = Column("", value)
    return {
        network: slope_per_decade(
            [row["weight_decay"] for row in members], [column.value_of(row) for row in members]
        )
        for (network,), members in _networks(rows).items()
    }


def _networks(rows: Sequence[Row]) -> dict[tuple[Any, ...], list[Row]]:
    return group(sorted(rows, key=lambda row: float(row["weight_decay"])), "network")


def stance_of(quantities: Mapping[str, Mapping[str, float]], margin: float) -> Verdict:
    """Return whether the results support a sentence that says that quantities rise.

    They support it if every slope of every network is above the margin. They oppose it if some
    quantity has all its slopes below minus the margin. Otherwise they are mixed, and the finding is
    undecided.

    >>> stance_of({"q": {"a": 0.1, "b": 0.2}}, 0.01).value
    'supported'
    >>> stance_of({"q": {"a": 0.1, "b": -0.2}}, 0.01).value
    'undecided'
    """
    slopes = [list(by_network.values()) for by_network in quantities.values()]
    if min(map(min, slopes)) > margin:
        return Verdict.SUPPORTED
    return Verdict.OPPOSED if min(map(max, slopes)) < -margin else Verdict.UNDECIDED


def judge_slopes(
    rows: Sequence[Row], quantities: Mapping[str, str | Value], margin: float
) -> Finding:
    """Judge the slopes of quantities over all published weight decays, and over fewer of them.

    Args:
        quantities: what should be above 0, per decade of weight decay, such as "fall of log10 α"
            -> field of a row, or function of a row, whose slope this is.
    """
    found = _stance(rows, quantities, margin)
    others = {
        f"weight decay {reading}": _stance(
            [row for row in rows if row["weight_decay"] != left_out], quantities, margin
        )
        for reading, left_out in OTHER_DECAYS.items()
    }
    differing = [
        f"{STANCES[other.verdict]} it if {reading}"
        for reading, other in others.items()
        if other.verdict is not found.verdict
    ]
    return replace(with_readings(found, others), answer="; they ".join([found.answer, *differing]))


def _stance(rows: Sequence[Row], quantities: Mapping[str, str | Value], margin: float) -> Finding:
    """Return whether the slopes of these published results support a sentence."""
    slopes = {name: slopes_of(rows, value) for name, value in quantities.items()}
    verdict = stance_of(slopes, margin)
    clauses = []
    for name, by_network in slopes.items():
        *most, last = [f"{slope:.3f} in {network}" for network, slope in by_network.items()]
        listed = " and ".join([", ".join(most), last] if most else [last])
        clauses.append(f"the {name} per decade of weight decay, which is {listed}")
    reason = ", and by ".join(clauses)
    answer = f"{_stand(verdict)} by {reason}"
    evidence = f"{STANCES[verdict]} it by {reason} (margin {margin:g}; one seed, so no interval)"
    smallest = min(min(by_network.values()) for by_network in slopes.values())
    known = {"estimate": smallest, "margin": margin, "seeds": 1, "slopes": slopes}
    return Finding(verdict, evidence, known, answer)


def _stand(verdict: Verdict) -> str:
    """Return in words whether the results support a sentence."""
    results = "the author's results (ImageNet32; one seed, so they decide nothing)"
    return f"{results} {STANCES[verdict]} this sentence"


claimed = partial(claim, needs=NAME, figure=NAME)
SLOPE = "nclab_papers.pan2023.author_results.slope_per_decade"
GROWS = ("pan2023/sec-3.1-grows", "pan2023/sec-3.1-norm-helps-decay")
"""Claims of the thesis that say that collapse grows with weight decay."""
HELPS = "pan2023, Sec. 3.1.2 “BN allows the model to benefit positively from larger weight decay”"


@claimed(
    f"{OURS}/author-results-grows",
    Kind.RESULT,
    "Author's results: with larger weight decay, the worst class and the worst pair of classes "
    "collapse more.",
    HELPS,
    code=SLOPE,
    beside=GROWS,
)
def grows(numbers: Numbers) -> Finding:
    """Judge how much min intra − max inter, the quantity of Figure 3.1, grows with weight decay."""
    return judge_slopes(
        numbers["rows"],
        {"rise of min intra − max inter (centred features)": "degree_worst"},
        COSINE_MARGIN,
    )


@claimed(
    f"{OURS}/author-results-grows-on-average",
    Kind.RESULT,
    "Author's results: with larger weight decay, classes collapse more on average.",
    HELPS,
    code=SLOPE,
    beside=GROWS,
)
def grows_on_average(numbers: Numbers) -> Finding:
    """Judge how much mean intra − mean inter grows per decade of weight decay."""
    return judge_slopes(
        numbers["rows"],
        {"rise of mean intra − mean inter (centred features)": "degree_mean"},
        COSINE_MARGIN,
    )


@claimed(
    f"{OURS}/author-results-norms-fall",
    Kind.RESULT,
    "Author's results: larger weight decay makes feature norm and classifier norm smaller.",
    "pan2023, Sec. 3.1.2 “larger weight decay results in small feature and weight norms”",
    code=SLOPE,
    beside=("pan2023/sec-3.1-norms-fall",),
)
def norms_fall(numbers: Numbers) -> Finding:
    """Judge how much log10 of each norm falls per decade of weight decay."""
    falls: dict[str, str | Value] = {
        f"fall of log10 {letter}": partial(_fall, name)
        for name, letter in (("alpha", "α"), ("beta", "β"))
    }
    return judge_slopes(numbers["rows"], falls, LOG_NORM_MARGIN)


@claimed(
    f"{OURS}/author-results-guarantee-grows",
    Kind.RESULT,
    "Author's results: with larger weight decay, norms and loss guarantee more collapse.",
    "pan2023, Thm 2.3.1",
    code="nclab_papers.pan2023.author_results.guaranteed",
)
def guarantee_grows(numbers: Numbers) -> Finding:
    """Judge how much the share of the squared feature norm that is guaranteed to lie between
    classes grows per decade of weight decay.
    """
    share = {"rise of the guaranteed share between classes": "guaranteed_between"}
    return judge_slopes(numbers["rows"], share, COSINE_MARGIN)


@claimed(
    f"{OURS}/author-results-no-class-guaranteed",
    Kind.RESULT,
    "Author's results: neither the constants of the thesis nor the certificate of nclab guarantee "
    "an intra-class cosine for 95 % of the classes of any of the networks.",
    "pan2023, Thm 2.3.1",
)
def no_class_guaranteed(numbers: Numbers) -> Finding:
    """Count the networks with a guarantee by the thesis, and those with one by nclab."""
    counts = {
        name: sum(row[field] is not None for row in numbers["rows"])
        for name, field in (("thesis", "thesis_guaranteed"), ("nclab", "guaranteed_most"))
    }
    evidence = (
        f"of {len(numbers['rows'])} networks, the thesis guarantees a cosine for "
        f"{counts['thesis']}, nclab for {counts['nclab']}"
    )
    verdict = Verdict.OPPOSED if any(counts.values()) else Verdict.SUPPORTED
    return Finding(verdict, evidence, counts, f"{_stand(verdict)}: {evidence}")


def _fall(name: str, row: Row) -> float:
    return -math.log10(row[name])
