"""The heartbeat: how far a run is, for whoever looks; no part of its numbers."""

import json
import os
import time
from pathlib import Path
from typing import Any

from nclab.files import read_regular, write_whole
from nclab.records.lines import to_json

FILE = "state.json"
PERIOD_SECONDS = 1.0
MOST_BYTES = 1 << 20


class Heartbeat:
    """Writes `state.json`, at most once a second unless the state changes."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        self._last = -PERIOD_SECONDS
        self._known: dict[str, Any] = {}

    def beat(self, state: str, **facts: Any) -> None:
        """Remember the facts; write them if it is time or the state is a new one."""
        changed = self._known.get("state") != state
        self._known.pop("journal_length", None)  # true only of the moment when it is told
        self._known |= {**facts, "state": state}
        now = time.monotonic()
        if changed or now - self._last >= PERIOD_SECONDS:
            self._last = now
            known = {**self._known, "pid": os.getpid(), "updated": round(time.time(), 3)}
            write_whole(self._path, to_json(known).encode(), flush=False)


def read_state(folder: Path, *, root: Path | None = None) -> dict[str, Any]:
    """The last heartbeat; empty where there is none that can be read."""
    try:
        found = json.loads(read_regular(folder / FILE, root=root, max_bytes=MOST_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
