"""ConsoleSink: one line for every measurement, as a training shows its losses."""

import sys
from collections.abc import Collection
from typing import TextIO

from nclab.measurement.collapse import Collapse
from nclab.metrics.catalogue import every_metric
from nclab.monitor.event import Event, chosen_metrics
from nclab.records.schema import TRAIN
from nclab.text import number

SHOWN = ("loss", "accuracy", "nc1_trace_ratio", "nc2_equiangularity_means", "nc3_self_duality")
"""What a line shows by default: what is trained, and one number of each kind."""


class ConsoleSink:
    """Prints a line for each measurement and one for each alarm.

    Args:
        metrics: what the line shows, in this order.
        layers: "last", what the classifier reads, or "all", a line for each.
        stream: where to; standard output by default.

    >>> import torch, nclab
    >>> loader = [(torch.eye(2).repeat(3, 1), torch.tensor([0, 1] * 3))]
    >>> monitor = nclab.Monitor(torch.nn.Linear(2, 2), alarms=[], sinks=ConsoleSink("cdnv"))
    >>> _ = monitor.measure(loader, epoch=3, step=12)
    epoch 3, step 12 | input | cdnv 0
    """

    def __init__(
        self,
        metrics: str | Collection[str] | None = None,
        *,
        layers: str = "last",
        stream: TextIO | None = None,
    ) -> None:
        self.metrics = chosen_metrics(SHOWN if metrics is None else metrics) or ()
        self.every_layer = layers == "all"
        self.stream = stream

    def __call__(self, event: Event) -> None:
        stream = self.stream or sys.stdout
        shown = event.layers if self.every_layer else event.layers[-1:]
        lines = [f"{_when(event)} | {self._line(event, layer)}" for layer in shown]
        if not shown:
            lines = [f"{_when(event)} | nothing could be measured"]
        lines += [f"  {'!' if alarm.severe else '*'} {alarm}" for alarm in event.alarms]
        stream.write("\n".join(lines) + "\n")
        stream.flush()

    def _line(self, event: Event, layer: Collapse) -> str:
        known, row = every_metric(), layer.to_row()
        parts = [str(layer.layer)] + ([] if event.split == TRAIN else [event.split])
        for name in self.metrics:
            ideal = known[name].ideal if name in known else None
            if row.get(name) is not None:
                near = None if ideal is None else ideal(layer.num_classes)
                parts.append(f"{name} {number(row[name], near=near)}")
        return " | ".join(parts)


def _when(event: Event) -> str:
    """The moment, and how many there will be where that is known."""
    epochs = "" if event.total_epochs is None else f"/{event.total_epochs}"
    steps = "" if event.total_steps is None else f"/{event.total_steps}"
    return f"epoch {event.epoch:g}{epochs}, step {event.step}{steps}"
