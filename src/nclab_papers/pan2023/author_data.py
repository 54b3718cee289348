"""Figure 3.1 on the author's data, with the thesis's networks and with the author's later design.

The later design is that of the author's published code: batch norm only once, before the
classifier, no biases, Adam, and cosines of centred features without i = j. The data are fixed; a
seed draws initial weights and the order of batches.

Claim: significant collapse emerges only with affine batch norm and enough weight decay.
Source: pan2023, Fig. 3.1
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from nclab.claims.claim import OURS, Claim, Finding, Kind, Numbers, claim
from nclab.claims.effects import Part
from nclab.claims.judging import judge_effects
from nclab.claims.paper import find_author_file
from nclab.claims.tables import Column, Row, Table, summarise
from nclab.engine import LOCAL, Engine
from nclab.errors import MissingData
from nclab.figures.picture import Picture
from nclab.training.data.samples import SampleFile
from nclab.training.models.mlp import Norm
from nclab.training.sweep import SweepConfig
from nclab_papers.pan2023 import fig31
from nclab_papers.pan2023 import networks as trained

Design = Literal["thesis", "later"]
"""Which networks to train and how to compute cosines: as in the thesis, or in the later code."""
Data = Literal["mlp3", "conic"]

REPOSITORY = "github.com/leyanpan/NeuralCollase_BNWD"
"""Repository with the author's data and results, and the code of the later design."""
FILES: dict[Data, tuple[str, ...]] = {
    "mlp3": ("pan_mlp_3.npz", "mlp_3.npz", "data/mlp_3.npz"),
    "conic": ("pan_conic.npz", "conic.npz", "data/conic.npz"),
}
"""Names under which the author's data sets are searched for."""
DIGESTS: dict[Data, str] = {
    "mlp3": "ada488a3e14d7c0e20b59e7f6a56a865d073ef9788b7b9a508e384f1b353931d",
    "conic": "9379ccc03ade26cc4b20e5e293ebf3b36568e8277b082861fcd7a0b63cf374c1",
}
"""SHA-256 of the samples, as `Samples.digest` computes it."""
CLASSES = 4
"""Number of classes of both data sets."""
LATER_RATE = 1e-3
"""Learning rate of Adam for networks of the later design, as in the author's code."""
DESIGNS: dict[Design, str] = {"thesis": "thesis", "later": "later design"}
NORM_NAMES = {**trained.NORM_NAMES, "last": "BN before the classifier"}


@dataclass(frozen=True)
class Config:
    """Sizes of the experiment."""

    networks: trained.Networks
    layers: int = 6
    norms: tuple[Norm, ...] = ("affine", "plain", "none")
    """Kinds of batch norm of the thesis's networks."""
    later_norms: tuple[Norm, ...] = ("last", "none")
    """Kinds of batch norm of the networks of the later design."""
    weight_decays: tuple[float, ...] = trained.DECAYS


PRESETS = {"quick": Config(trained.QUICK), "paper": Config(trained.PAPER)}


def author_samples(data: Data, samples: int) -> SampleFile:
    """Return the first samples of a data set of the author, which has 10,000.

    Raise `MissingData` if the file is missing or has other samples.
    """
    path = find_author_file(FILES[data], source=REPOSITORY)
    source = SampleFile(str(path), name=f"author_{data}")
    if source.draw().digest() != DIGESTS[data]:
        raise MissingData(
            f"Expected the author's data set {data} in {path}, but its checksum differs. "
            f"Use the file of {REPOSITORY}."
        )
    return replace(source, rows=samples)


def author_sweeps(
    networks: trained.Networks, source: SampleFile, design: Design, **settings: Any
) -> list[SweepConfig]:
    """Return one sweep per seed on fixed data.

    Args:
        settings: arguments of `Networks.sweeps`.
    """
    sweeps = [replace(sweep, data=source) for sweep in networks.sweeps(**settings)]
    if design == "thesis":
        return sweeps
    return [
        replace(
            sweep,
            shape=replace(sweep.shape, bias=False),
            recipe=replace(sweep.recipe, optimizer="adam", rate=LATER_RATE),
        )
        for sweep in sweeps
    ]


def without_itself(intra: float, count: float) -> float:
    """Return an intra-class cosine without the pairs i = j.

    `count` is the mean class size. The sizes of the classes, 2147 to 2757, change the result by
    less than 0.0001.

    >>> without_itself(0.5, 2), without_itself(1.0, 2500)
    (0.0, 1.0)
    """
    return (count * intra - 1) / (count - 1)


def with_author_cosines(row: dict[str, Any], samples: int) -> dict[str, Any]:
    """Add cosines as in the author's code to a row: features are centred, pairs i = j excluded.

    Args:
        samples: number of training samples.
    """
    intra = row["centred_min_intra"]
    if intra is not None:
        intra = without_itself(intra, samples / CLASSES)
    return {**row, "author_min_intra": intra, "author_max_inter": row["centred_max_inter"]}


def run(
    config: Config, *, seeds: Sequence[int], out: Path, engine: Engine = LOCAL
) -> dict[str, Any]:
    """Train the networks of both designs and return one row per network."""
    source = author_samples("mlp3", config.networks.samples)
    norms_of: dict[Design, tuple[Norm, ...]] = {"thesis": config.norms, "later": config.later_norms}
    planned = [
        (design, sweep)
        for design, norms in norms_of.items()
        for sweep in author_sweeps(
            config.networks,
            source,
            design,
            seeds=seeds,
            layers=config.layers,
            norms=norms,
            weight_decays=config.weight_decays,
        )
    ]
    trained_rows = config.networks.train(out, [sweep for _, sweep in planned], engine=engine)
    rows = [
        {"design": design, **with_author_cosines(row, config.networks.samples)}
        for (design, _), members in zip(planned, trained_rows, strict=True)
        for row in members
    ]
    described = trained.describe_config(config, seeds)
    return {"config": described, "author_data": REPOSITORY, "rows": rows}


def of_design(numbers: Numbers, design: Design) -> dict[str, Any]:
    """Return the networks of one design as numbers of Figure 3.1.

    For the later design, `last` is renamed `affine`, and the cosines are those of its code.
    """
    rows = [dict(row) for row in numbers["rows"] if row["design"] == design]
    if design == "later":
        for row in rows:
            row["min_intra"], row["max_inter"] = row["author_min_intra"], row["author_max_inter"]
            row["norm"] = "affine" if row["norm"] == "last" else row["norm"]
    return {**numbers, "rows": rows}


def tables(numbers: Numbers) -> list[Table]:
    """Return cosines and norms by design, batch norm and weight decay."""
    keys = (Column("design", "design", names=DESIGNS), Column("norm", "norm", names=NORM_NAMES))
    columns = (
        trained.ACCURACY_COLUMN,
        *trained.COSINE_COLUMNS,
        Column("centred min intra", "author_min_intra"),
        Column("centred max inter", "author_max_inter"),
        Column("α", "alpha", ".2f"),
        Column("β", "beta", ".2f"),
    )
    return [
        summarise("Last-layer features", numbers["rows"], (*keys, trained.DECAY_COLUMN), columns)
    ]


def pictures(numbers: Numbers) -> list[Picture]:
    """Return cosines against weight decay for each design."""
    [figure] = fig31.pictures(of_design(numbers, "thesis"))
    later = of_design(numbers, "later")["rows"]
    panels = [
        trained.cosine_panel(
            name, [row for row in later if row["norm"] == norm], CLASSES, **trained.DECAY_AXIS
        )
        for norm, name in (("affine", NORM_NAMES["last"]), ("none", NORM_NAMES["none"]))
    ]
    return [
        figure._replace(
            name="pan2023_author_fig31",
            title="Author's data: cosines of last-layer features against weight decay",
            caption=f"Author's data. {figure.caption}",
        ),
        Picture(
            "pan2023_author_later",
            "Author's data and later design: cosines of last-layer features",
            (panels[0]._replace(y_label="cosine, centred"), *panels[1:]),
            2,
            "Author's data, author's later design: batch norm only before the classifier, no "
            "biases, Adam; cosines of centred features without i = j. "
            f"{trained.line_caption(later).replace('BN with affine', NORM_NAMES['last'])}",
        ),
    ]


def on_author_data(
    original: Claim, view: Callable[[Numbers], Numbers], *, needs: str, figure: str
) -> Claim:
    """Return a claim of the thesis, judged on the author's data.

    Args:
        view: function from the numbers of this experiment to those that the claim judges.
    """
    number = original.id.partition("/")[2].removeprefix("sec-")
    return Claim(
        f"{OURS}/author-data-{number}",
        Kind.RESULT,
        f"Author's data: {original.text}",
        original.source,
        lambda numbers: original.judge(view(numbers)),
        needs=needs,
        code=original.code,
        figure=figure,
    )


_of_thesis = partial(
    on_author_data,
    view=partial(of_design, design="thesis"),
    needs="pan2023_author_data",
    figure="pan2023_author_fig31",
)
converges = _of_thesis(fig31.converges)
fails_without_norm = _of_thesis(fig31.fails_without_norm)
only_affine = _of_thesis(fig31.only_affine)
grows = _of_thesis(fig31.grows)
affine_above_plain = _of_thesis(fig31.affine_above_plain)
falls_without_norm = _of_thesis(fig31.falls_without_norm)
norm_helps_decay = _of_thesis(fig31.norm_helps_decay)


def _of_later(name: str, text: str, original: Claim) -> Callable[[Callable[..., Any]], Claim]:
    """Return a decorator that makes a claim about networks of the later design."""
    return claim(
        f"{OURS}/author-later-{name}",
        Kind.RESULT,
        f"Author's data, later design: {text}",
        original.source,
        needs="pan2023_author_data",
        figure="pan2023_author_later",
        code=original.code,
    )


@_of_later(
    "only-with-norm",
    "Significant collapse emerges only with batch norm and enough weight decay.",
    fig31.only_affine,
)
def later_only_with_norm(numbers: Numbers) -> Finding:
    """Judge as in Figure 3.1, with batch norm before the classifier in the role of affine."""
    return fig31.only_affine.judge(of_design(numbers, "later"))


@_of_later(
    "grows",
    "With batch norm, collapse grows with weight decay wherever training converges.",
    fig31.grows,
)
def later_grows(numbers: Numbers) -> Finding:
    """Judge how much collapse grows per decade of weight decay, as in Figure 3.1."""
    return fig31.grows.judge(of_design(numbers, "later"))


@_of_later(
    "norm-helps-decay",
    "With batch norm a network gains from larger weight decay.",
    fig31.norm_helps_decay,
)
def later_norm_helps_decay(numbers: Numbers) -> Finding:
    """Judge how collapse grows with weight decay, with batch norm before the classifier."""
    rows: list[Row] = of_design(numbers, "later")["rows"]
    slopes = trained.decade_slopes(rows, trained.degree, norm="affine")
    name = "slope of collapse with batch norm before the classifier"
    part = Part(name, slopes, unit="per decade of weight decay")
    return judge_effects([part], margin=trained.COSINE_MARGIN)


@_of_later(
    "falls-without-norm",
    "Without batch norm, weight decay makes collapse weaker.",
    fig31.falls_without_norm,
)
def later_falls_without_norm(numbers: Numbers) -> Finding:
    """Judge how much collapse falls per decade of weight decay, as in Figure 3.1."""
    return fig31.falls_without_norm.judge(of_design(numbers, "later"))
