"""A monitor in several processes of torch.distributed: one estimate, and one that writes."""

from nclab.measurement.ranks import SharedData
from nclab.monitor.running_estimate import RunningEstimate
from nclab.statistics.ranks import Ranks


def is_first() -> bool:
    """Whether this process is the one that writes."""
    return Ranks().rank == 0


def join(running: RunningEstimate) -> None:
    """Make every process's running estimate that of all; empty where none has read a batch."""
    shared = SharedData.over(None)
    if shared is None or not bool(shared.ranks.gather([len(running.streams)]).any()):
        return
    if running.layers.found:
        running.start()
    shared.moments(running.streams)
