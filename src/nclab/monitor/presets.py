"""Presets of the monitor, ordered by what they cost."""

from collections.abc import Sequence
from typing import NamedTuple

from nclab.errors import NclabError


class MonitorPreset(NamedTuple):
    """What is watched in the training batches."""

    layers: str
    scatter: bool | None
    """The d x d scatter: False for never, None for d up to 4096."""
    meaning: str


PRESETS = {
    "economy": MonitorPreset("last", False, "what the classifier reads, without the d x d scatter"),
    "standard": MonitorPreset("last", None, "what the classifier reads, all that one pass gives"),
    "full": MonitorPreset("all", None, "every layer, all that one pass gives"),
}
"""From cheap to dear: one copy of the features; half a GEMM B x d x d a batch; that for each layer
and the pooling of its maps."""


def choose(preset: str, layers: str | Sequence[str] | None) -> MonitorPreset:
    """The preset of that name, with other layers if they are given.

    >>> choose("economy", "all").layers
    'all'
    """
    if preset not in PRESETS:
        raise NclabError(f"Expected preset={' or '.join(map(repr, PRESETS))}, got {preset!r}.")
    chosen = PRESETS[preset]
    return chosen if layers is None else chosen._replace(layers=layers)  # type: ignore[arg-type]
