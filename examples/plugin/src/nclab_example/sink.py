"""A sink: a callable that takes an Event, made from what follows the colon in its name."""

import json
from pathlib import Path

from nclab.monitor import Event


class LinesSink:
    """Appends a line of JSON with the scalars of each event to a file."""

    def __init__(self, target: str = "collapse.jsonl") -> None:
        self.file = Path(target)

    def __call__(self, event: Event) -> None:
        line = {"step": event.step, "epoch": event.epoch, **event.scalars()}
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with self.file.open("a") as stream:
            stream.write(json.dumps(line) + "\n")
