"""RecordSink: the events of a monitor as a run on disk, which pages and commands read."""

import argparse
import dataclasses
import logging
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Protocol, get_args

from nclab.errors import NclabWarning, RecordError
from nclab.monitor.event import Event
from nclab.records import Run, open_run
from nclab.records.lines import exact
from nclab.records.places import claim_folder, delete_run, refuse_folder_of_runs
from nclab.records.run import refuse_other
from nclab.records.schema import ALARM

KIND = "monitor"
"""Of the runs that a sink opens."""
Exist = Literal["new", "resume", "replace"]
"""What to do where the folder holds a run."""
log = logging.getLogger("nclab.monitor")


class RecordWriter(Protocol):
    """What can append a record, such as a `nclab.records.Run`."""

    def append(self, record: dict[str, Any], /) -> object:
        """Add one record."""


class RecordSink:
    """Writes every event, and every alarm after it, to the journal of a run.

    Given a folder it opens a run there at the first event, so that under torch.distributed only
    the first process does, and ends it with the monitor. `sink.place` is the run's folder then.

    Args:
        target: a folder; or a run, or whatever appends records, that is open and the caller's to
            end.
        config: what the run was told, as plain values: a dictionary, a dataclass or what argparse
            gives. It stands in the manifest; `nclab runs`, reports and pages compare runs by it.
        exist: where the folder holds a run already, "new" begins another beside it, `mine-2`;
            "resume" goes on with it if it was stopped or failed, and takes back what it holds from
            the first event's step on; "replace" deletes it. One that has finished, or that had
            another config, is not resumed but refused at once.

    >>> import tempfile
    >>> RecordSink(tempfile.mkdtemp() + "/mine", config={"rate": 0.1}).run is None
    True
    """

    def __init__(
        self,
        target: str | os.PathLike[str] | RecordWriter,
        *,
        config: Mapping[str, Any] | argparse.Namespace | Any = None,
        exist: Exist = "new",
    ) -> None:
        if exist not in get_args(Exist):
            raise RecordError(f"Expected exist='new', 'resume' or 'replace', got {exist!r}.")
        self.folder = target if isinstance(target, (str, os.PathLike)) else None
        self.journal = None if isinstance(target, (str, os.PathLike)) else target
        self.config: dict[str, Any] = exact(_as_config(config), what="the config of a run")
        self.exist = exist
        self.run: Run | None = None
        self.place: Path | None = None
        if self.folder is not None:
            self._refuse(Path(self.folder))

    def __call__(self, event: Event) -> None:
        journal = self._journal(event.step)
        journal.append(event.to_record())
        if (picture := event.picture_record()) is not None:
            journal.append(picture)
        for alarm in event.alarms:
            about = {**alarm._asdict(), "classes": list(alarm.classes), "names": list(alarm.names)}
            when = {"step": event.step, "epoch": event.epoch}
            journal.append({"kind": ALARM, **when, **about, **when})
        if self.run is not None:
            self.run.beat(step=event.step, total=event.total_steps)

    def close(self, error: BaseException | None = None) -> None:
        """End the run that was opened here; after an error it is marked as failed."""
        if self.run is None:
            return
        run, self.run = self.run, None
        try:
            if error is None:
                run.finish()
            elif isinstance(error, Exception):
                run.fail(str(error))
        finally:
            run.close()

    def _refuse(self, folder: Path) -> None:
        """Before the training, not after hours of it."""
        if folder.exists() and not folder.is_dir():
            raise RecordError(f"Expected a folder for the run, but {folder} is a file.")
        if self.exist != "new":
            refuse_folder_of_runs(folder)
        if self.exist == "resume":
            refuse_other(folder, kind=KIND, config=self.config)

    def _journal(self, step: int) -> RecordWriter:
        if self.journal is not None:
            return self.journal
        if self.run is None:
            assert self.folder is not None
            # A second training of the same sink goes on in the folder of its first.
            folder = self.place or Path(self.folder)
            if self.exist == "new" and self.place is None:
                folder = claim_folder(folder)
                if folder != Path(self.folder):
                    log.info("%s holds runs already; this one is %s", self.folder, folder)
            elif self.exist == "replace" and self.place is None:
                delete_run(folder)
            self.run = open_run(folder, kind=KIND, config=self.config)
            self.place = folder
            if self.run.rewind(step):
                warnings.warn(
                    f"{folder} holds a training that was stopped; its records "
                    f"from step {step} on are taken back.",
                    NclabWarning,
                    stacklevel=2,
                )
        return self.run


def _as_config(given: Any) -> dict[str, Any]:
    """Plain values by name; paths become texts.

    >>> _as_config(argparse.Namespace(rate=0.1, data=Path("mine.npz")))
    {'rate': 0.1, 'data': 'mine.npz'}
    """
    if given is None:
        return {}
    if dataclasses.is_dataclass(given) and not isinstance(given, type):
        given = dataclasses.asdict(given)
    elif isinstance(given, argparse.Namespace):
        given = vars(given)
    if not isinstance(given, Mapping):
        raise RecordError(
            f"Expected config= a dictionary, a dataclass or a Namespace, got "
            f"{type(given).__name__}."
        )
    return {name: _plain(value) for name, value in given.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    return value
