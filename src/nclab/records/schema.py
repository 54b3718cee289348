"""What nclab writes to disk and reads from it: every record, every file, every word in them.

A run is a folder with a `Manifest`, a journal of records, a `StateFile` and checkpoints that
begin with `CheckpointAbout`. A folder of experiments has a file of `NumbersHeading` and numbers in
each, and beside them `ClaimsFile` and a file of what was skipped: names with reasons. Writers fill
these dictionaries, so that a wrong word is a wrong type; readers, which meet damaged and foreign
files too, ask the functions below. Fields may be added; one that changes its meaning raises
`SCHEMA`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NotRequired, TypedDict

SCHEMA: Final = 3
"""Written into manifests, journals and checkpoints; files with a larger one are refused.

Since 2 the lines of journals and the files of JSON are sealed, see `records.seals`; since 3 the
lines, the manifest and the checkpoints of a run belong together by its identity."""
START: Final = "start"
EPOCH: Final = "epoch"
MEASUREMENT: Final = "measurement"
SAMPLE: Final = "sample"
GEOMETRY: Final = "geometry"
ALARM: Final = "alarm"
END: Final = "end"

TRAIN: Final = "train"
"""The split of records that name none."""

State = Literal["running", "finished", "failed", "stopped"]
Train = dict[str, float | None]
"""Loss, accuracy and rate of the training itself."""
LayerNumbers = dict[str, Any]
"""One measured layer, as `Collapse.to_dict` gives it; its name is under `layer`."""


class StartRecord(TypedDict):
    """The first line of every journal."""

    kind: Literal["start"]
    schema: int
    identity: NotRequired[str]
    """Of the run, as its manifest has it; older journals have none."""


class EpochRecord(TypedDict):
    """An epoch of training: what the training itself knows."""

    kind: Literal["epoch"]
    step: int
    epoch: int
    loss: float
    accuracy: float
    rate: float


class MeasurementRecord(TypedDict):
    """All measured layers at one moment, the one that the classifier reads last."""

    kind: Literal["measurement"]
    step: int
    epoch: NotRequired[float]
    log_time: NotRequired[float | None]
    """Of the layer-peeled model, in place of epochs; None at the start, t = 0."""
    source: NotRequired[str]
    """Of a monitor: training, a running estimate; loader, an exact measurement."""
    split: NotRequired[str]
    """Which data were measured: train, where it is not there; test, val, ..."""
    layers: list[LayerNumbers]
    train: Train
    """Loss and accuracy on the data that were measured."""
    why: NotRequired[str]
    """Where there are no layers: what could not be measured."""


class SampleRecord(TypedDict):
    """A moment of the layer-peeled model; beside these, every field of a `ulpm.Sample`."""

    kind: Literal["sample"]
    step: int
    log_time: float | None
    layer: str
    """Whose curves the numbers belong to: the features, or one of several descents in a run."""


class GeometryRecord(TypedDict):
    """Features, class means, classifiers and simplex in three dimensions, see `geometry`."""

    kind: Literal["geometry"]
    step: int
    epoch: float
    layer: NotRequired[str]
    share: float
    classes: int
    points: list[list[float]]
    labels: list[int]
    means: list[list[float]]
    weights: list[list[float]]
    etf: list[list[float]]


class AlarmRecord(TypedDict):
    """What a monitor warned of."""

    kind: Literal["alarm"]
    step: int
    epoch: float
    name: str
    layer: str
    classes: list[int]
    value: float
    message: str
    severe: bool
    split: NotRequired[str]
    names: NotRequired[list[str]]
    """Of the classes."""


class EndRecord(TypedDict):
    """The last line of a run that ended; beside these, its summary."""

    kind: Literal["end"]
    state: Literal["finished", "failed"]
    why: NotRequired[str | None]
    outcome: NotRequired[str]
    """What was found, in a word or a line."""


class StateFile(TypedDict):
    """`state.json`, the heartbeat; beside these, what else the writer tells."""

    state: State
    step: NotRequired[int]
    total: NotRequired[int | None]
    why: NotRequired[str | None]
    journal_length: NotRequired[int]
    """Bytes, where the writer has left the run: what is shorter has lost lines since."""
    pid: int
    updated: float


class CheckpointAbout(TypedDict):
    """The metadata of a checkpoint."""

    checksum: str
    schema: int
    step: int
    journal_length: int
    journal_checksum: int
    identity: NotRequired[str]
    """Of the run, as its manifest has it; older runs have none."""
    extra: dict[str, Any]


class NumbersHeading(TypedDict):
    """How `numbers.json` begins; the numbers of the experiment are beside it."""

    experiment: str
    preset: str
    seeds: list[int]
    settings: dict[str, Any]
    nclab: str
    manifest: NotRequired[dict[str, Any]]
    """Commit, versions and command."""


class ClaimRow(TypedDict):
    """A claim with its finding."""

    id: str
    kind: str
    text: str
    ours: NotRequired[bool]
    """Whether it is a finding of ours, not counted among the statements of its source."""
    source: str
    quote: str
    verdict: str
    mark: str
    tone: str
    evidence: str
    numbers: dict[str, Any]
    size: str
    """At which the numbers were obtained; empty for statements."""
    here: NotRequired[dict[str, Any]]
    """What this machine's own runs say beside the recorded verdict."""
    needs: str
    links: dict[str, str | None]


class ExperimentRow(TypedDict):
    """What an experiment is about, for those who have not read the paper."""

    title: str
    says: str
    """What the paper says; empty where it says nothing that could be judged."""
    source: str
    about: NotRequired[str]
    """How it was done, in a sentence or two."""


class ErratumRow(TypedDict):
    """A place of a paper put right."""

    where: str
    printed: str
    correct: str
    why: str
    confidence: str
    claims: list[str]
    """Ids of the claims that show it."""


class ClaimsFile(TypedDict):
    """`claims.json`; in older folders the list of claims alone."""

    preset: NotRequired[str]
    code: NotRequired[str]
    judged_from: dict[str, str]
    """The digest of the numbers of every experiment that was judged."""
    papers: dict[str, dict[str, Any]]
    claims: list[ClaimRow]
    stories: NotRequired[dict[str, ExperimentRow]]
    """By the name of the experiment."""
    errata: NotRequired[list[ErratumRow]]


def layers_of(record: Mapping[str, Any] | None) -> Sequence[LayerNumbers]:
    """The measured layers of a record, without what is none.

    >>> layers_of({"layers": [{"layer": "fc"}, 5]}), layers_of({"layers": 5}), layers_of(None)
    ([{'layer': 'fc'}], [], [])
    """
    layers = record.get("layers") if record else None
    return [one for one in layers if type(one) is dict] if type(layers) is list else []


def split_of(record: Mapping[str, Any] | None) -> str:
    """Which data a record is about; records of older journals are about those of training.

    >>> split_of({"split": "test"}), split_of({"step": 1}), split_of({"split": 5})
    ('test', 'train', 'train')
    """
    split = record.get("split") if record else None
    return split if type(split) is str and split else TRAIN


def last_layer(record: Mapping[str, Any] | None) -> LayerNumbers:
    """The layer that the classifier reads, empty where a record has none.

    >>> last_layer({"layers": [{"layer": "conv"}, {"layer": "fc"}]}), last_layer({"layers": []})
    ({'layer': 'fc'}, {})
    """
    layers = layers_of(record)
    return layers[-1] if layers else {}


def title_of_layer(layer: Mapping[str, Any], place: int) -> str:
    """The name of a layer, or which one it is.

    >>> title_of_layer({"layer": "fc"}, 0), title_of_layer({}, 1)
    ('fc', 'layer 2')
    """
    return str(layer.get("layer") or f"layer {place + 1}")
