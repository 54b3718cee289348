"""Tests that a monitor does not grow, and that a batch lost to memory does not end training."""

import gc
import os
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import nclab
from nclab.errors import ModelError, NclabWarning
from nclab.monitor import RecordSink
from tests.monitor.loops import batches, network


def test_events_without_growth(tmp_path: Path) -> None:
    """Check that objects and file handles do not grow; see benchmarks/monitor_events.py."""
    model, loader, held = network(), batches(samples=9), []
    sink = RecordSink(tmp_path / "run")
    with nclab.Monitor(model, preset="economy", sinks=sink) as monitor:
        for epoch in range(60):
            for x, y in monitor.watch(loader):
                nn.functional.cross_entropy(model(x), y).backward()
            if epoch in (39, 59):
                monitor.history.rows.clear()
                gc.collect()
                held.append((len(os.listdir("/proc/self/fd")), len(gc.get_objects())))
    assert held[0][0] == held[1][0]
    assert held[1][1] - held[0][1] < 200  # an event that is kept would add a dozen objects


class Starved(nn.Module):
    """A model that runs out of memory in some passes."""

    def __init__(self, lost: set[int]) -> None:
        super().__init__()
        self.inner, self.lost, self.passes = network(), lost, -1

    def forward(self, x: Tensor) -> Tensor:
        self.passes += 1
        hidden = self.inner[:3](x)
        if self.passes in self.lost:
            raise torch.OutOfMemoryError("out of memory")
        out: Tensor = self.inner[3:](hidden)
        return out


def _train_on(model: nn.Module, monitor: nclab.Monitor) -> None:
    """Train with a loop that skips batches which run out of memory."""
    for x, y in monitor.watch(batches()):
        try:
            nn.functional.cross_entropy(model(x), y).backward()
        except torch.OutOfMemoryError:
            continue


def test_a_batch_lost_to_memory_does_not_end_the_training() -> None:
    model = Starved({3})
    warns = pytest.warns(NclabWarning, match="no complete forward pass")
    with nclab.Monitor(model) as monitor, warns:
        _train_on(model, monitor)
    assert monitor.last is not None
    assert monitor.last.report.last.samples == 50


def test_a_first_batch_without_a_forward_pass_raises() -> None:
    with (
        nclab.Monitor(network()) as monitor,
        pytest.raises(ModelError, match="no complete forward pass"),
    ):
        for _ in monitor.watch(batches()):
            pass
