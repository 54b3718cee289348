"""Format of all records and files that nclab writes: their kinds, fields and types.

A run is a folder with a `Manifest`, a journal of records, a `StateFile` and checkpoints whose
metadata is `CheckpointAbout`. A folder of experiments has a `numbers.json` for each experiment,
which begins with `NumbersHeading`, and next to them a `ClaimsFile` and a file of skipped
experiments with reasons. Writers fill these dictionaries, so that the type checker finds wrong
names. Readers also meet damaged and foreign files, and use the functions at the end of this module.
A new field leaves `SCHEMA` as it is; a field with a new meaning increases it.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NotRequired, TypedDict

SCHEMA: Final = 3
"""Version of the format in manifests, journals and checkpoints; newer versions are refused.

Since 2, lines of journals and JSON files have checksums. Since 3, the lines, the manifest and the
checkpoints of a run share an identity."""
START: Final = "start"
EPOCH: Final = "epoch"
MEASUREMENT: Final = "measurement"
SAMPLE: Final = "sample"
GEOMETRY: Final = "geometry"
ALARM: Final = "alarm"
END: Final = "end"

TRAIN: Final = "train"
"""Split of the data in records that name no split."""

State = Literal["running", "finished", "failed", "stopped"]
Train = dict[str, float | None]
"""Loss, accuracy and learning rate of the training itself."""
LayerNumbers = dict[str, Any]
"""Numbers of one measured layer from `Collapse.to_dict`; its name is under `layer`."""


class StartRecord(TypedDict):
    """First line of every journal."""

    kind: Literal["start"]
    schema: int
    identity: NotRequired[str]
    """Identity of the run, as in its manifest; journals of older versions have none."""


class EpochRecord(TypedDict):
    """Loss, accuracy and learning rate of one epoch, as the training itself computes them."""

    kind: Literal["epoch"]
    step: int
    epoch: int
    loss: float
    accuracy: float
    rate: float


class MeasurementRecord(TypedDict):
    """All measured layers at one step; the last one is the input of the classifier."""

    kind: Literal["measurement"]
    step: int
    epoch: NotRequired[float]
    log_time: NotRequired[float | None]
    """Logarithm of the time of the layer-peeled model, instead of epochs; None at time 0."""
    source: NotRequired[str]
    """Source of a monitor: `training` (running estimate) or `loader` (exact measurement)."""
    split: NotRequired[str]
    """Data that were measured: train (default), test, val, ..."""
    layers: list[LayerNumbers]
    train: Train
    """Loss and accuracy on the measured data."""
    why: NotRequired[str]
    """Why no layer could be measured."""


class SampleRecord(TypedDict):
    """State of the layer-peeled model at one time; also holds every field of a `ulpm.Sample`."""

    kind: Literal["sample"]
    step: int
    log_time: float | None
    layer: str
    """Name of the curves: the features, or one of several descents in a run."""


class GeometryRecord(TypedDict):
    """Features, class means, classifier and simplex, projected to three dimensions."""

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
    """A warning of a monitor."""

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
    """Names of the classes."""


class EndRecord(TypedDict):
    """Last line of a run that ended; also holds its summary."""

    kind: Literal["end"]
    state: Literal["finished", "failed"]
    why: NotRequired[str | None]
    outcome: NotRequired[str]
    """Result of the run in a word or a line."""


class StateFile(TypedDict):
    """Content of `state.json`, the heartbeat; may hold further facts of the writer."""

    state: State
    step: NotRequired[int]
    total: NotRequired[int | None]
    why: NotRequired[str | None]
    journal_length: NotRequired[int]
    """Length in bytes when the writer closed the journal; a shorter one has lost lines."""
    pid: int
    updated: float


class CheckpointAbout(TypedDict):
    """Metadata of a checkpoint."""

    checksum: str
    schema: int
    step: int
    journal_length: int
    journal_checksum: int
    identity: NotRequired[str]
    """Identity of the run, as in its manifest; runs of older versions have none."""
    extra: dict[str, Any]


class NumbersHeading(TypedDict):
    """First entries of `numbers.json`, which also holds the numbers of the experiment."""

    experiment: str
    preset: str
    seeds: list[int]
    settings: dict[str, Any]
    nclab: str
    manifest: NotRequired[dict[str, Any]]
    """Commit, versions and command."""


class ClaimRow(TypedDict):
    """A claim with its verdict and evidence."""

    id: str
    kind: str
    text: str
    ours: NotRequired[bool]
    """True if the claim is our own finding and no statement of its source."""
    source: str
    quote: str
    verdict: str
    mark: str
    tone: str
    evidence: str
    numbers: dict[str, Any]
    size: str
    """Size of the experiment that gave the numbers; empty for proved statements."""
    here: NotRequired[dict[str, Any]]
    """Result of the runs on this machine, shown next to the recorded verdict."""
    needs: str
    links: dict[str, str | None]


class ExperimentRow(TypedDict):
    """Description of an experiment for readers who do not know the paper."""

    title: str
    says: str
    """Statement of the paper; empty if there is none that could be judged."""
    source: str
    about: NotRequired[str]
    """Method, in a sentence or two."""


class ErratumRow(TypedDict):
    """Correction of an error in a paper."""

    where: str
    printed: str
    correct: str
    why: str
    confidence: str
    claims: list[str]
    """Ids of the claims that show the error."""


class ClaimsFile(TypedDict):
    """Content of `claims.json`; folders of older versions hold only the list of claims."""

    preset: NotRequired[str]
    code: NotRequired[str]
    judged_from: dict[str, str]
    """SHA-256 of the numbers of every experiment that was judged."""
    papers: dict[str, dict[str, Any]]
    claims: list[ClaimRow]
    stories: NotRequired[dict[str, ExperimentRow]]
    """By the name of the experiment."""
    errata: NotRequired[list[ErratumRow]]


def layers_of(record: Mapping[str, Any] | None) -> Sequence[LayerNumbers]:
    """Return the measured layers of a record; entries of other types are skipped.

    >>> layers_of({"layers": [{"layer": "fc"}, 5]}), layers_of({"layers": 5}), layers_of(None)
    ([{'layer': 'fc'}], [], [])
    """
    layers = record.get("layers") if record else None
    return [layer for layer in layers if type(layer) is dict] if type(layers) is list else []


def split_of(record: Mapping[str, Any] | None) -> str:
    """Return the split of the data that a record describes; `train` if it names none.

    >>> split_of({"split": "test"}), split_of({"step": 1}), split_of({"split": 5})
    ('test', 'train', 'train')
    """
    split = record.get("split") if record else None
    return split if type(split) is str and split else TRAIN


def last_layer(record: Mapping[str, Any] | None) -> LayerNumbers:
    """Return the layer that is the input of the classifier, or an empty one.

    >>> last_layer({"layers": [{"layer": "conv"}, {"layer": "fc"}]}), last_layer({"layers": []})
    ({'layer': 'fc'}, {})
    """
    layers = layers_of(record)
    return layers[-1] if layers else {}


def title_of_layer(layer: Mapping[str, Any], index: int) -> str:
    """Return the name of a layer, or its number if it has no name.

    >>> title_of_layer({"layer": "fc"}, 0), title_of_layer({}, 1)
    ('fc', 'layer 2')
    """
    return str(layer.get("layer") or f"layer {index + 1}")
