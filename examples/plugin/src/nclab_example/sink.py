"""A sink: a callable that takes an Event; it gets the text after the colon of its name."""

import json
from pathlib import Path

from nclab.monitor import Event


class LinesSink:
    """Sink that appends the scalars of each event to a file, one JSON object per line."""

    def __init__(self, target: str = "collapse.jsonl") -> None:
        self.file = Path(target)

    def __call__(self, event: Event) -> None:
        line = {"step": event.step, "epoch": event.epoch, **event.scalars()}
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with self.file.open("a") as stream:
            stream.write(json.dumps(line) + "\n")
