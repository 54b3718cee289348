"""Recorded evidence: the numbers of an experiment at the size of its paper, kept in its folder.

Rows, not weights. Verdicts about experiments come from here; what this machine trains at a
reduced size is a check of the machinery and stands beside them.
"""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from nclab.claims.registry import experiments
from nclab.files import write_whole
from nclab.text import counted

FOLDER = "evidence"
SIZES = ("classes", "layers", "width", "samples", "epochs", "batch", "per_class", "dim")
"""What a reader wants to know of a configuration."""


def evidence_file(name: str) -> Path:
    """Where the evidence of an experiment lies, or would."""
    module = experiments()[name]
    return Path(str(module.__file__)).parent / FOLDER / f"{name}.json"  # type: ignore[attr-defined]


@cache
def recorded(name: str) -> dict[str, Any] | None:
    """The recorded numbers of an experiment; None if there are none."""
    file = evidence_file(name)
    if not file.exists():
        return None
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def on_the_way(name: str) -> dict[str, Any] | None:
    """Numbers in the form of an experiment's, from the largest size below it that is recorded.

    An experiment that climbs towards another one's size says so by `LEADS_TO`, and gives them by
    `furthest`; None where nothing does.
    """
    for other, module in experiments().items():
        way = recorded(other) if getattr(module, "LEADS_TO", None) == name else None
        if way is not None:
            return module.furthest(way)  # type: ignore[attr-defined]
    return None


def best_evidence(name: str) -> dict[str, Any] | None:
    """The recorded numbers of an experiment, or those of the largest size on the way to it."""
    return recorded(name) or on_the_way(name)


def record(name: str, numbers: Mapping[str, Any], **provenance: Any) -> Path:
    """Keep the numbers of an experiment as its evidence, compact, with where they come from."""
    file = evidence_file(name)
    file.parent.mkdir(exist_ok=True)
    manifest = {**numbers.get("manifest", {}), **provenance}
    content = json.dumps(
        {**numbers, "manifest": manifest},
        allow_nan=False,
        ensure_ascii=False,
        separators=(",", ":"),
    )
    write_whole(file, (content.replace("},{", "},\n{") + "\n").encode())
    recorded.cache_clear()
    return file


def size_of(numbers: Mapping[str, Any]) -> str:
    """The size at which numbers were obtained, in a few words: their own `size`, or of the config.

    >>> size_of({"preset": "paper", "config": {"width": 300, "layers": 6}, "seeds": [0, 1]})
    'preset paper: layers 6, width 300; 2 seeds'
    """
    config, seeds = numbers.get("config"), numbers.get("seeds")
    config = config if isinstance(config, dict) else {}  # what a file holds may be anything
    if isinstance(config.get("network"), dict):
        config = {**config, **config["network"]}
    words = [f"{name} {config[name]}" for name in SIZES if isinstance(config.get(name), int)]
    words = [str(numbers["size"])] if "size" in numbers else words
    preset = numbers.get("preset")
    text = f"preset {preset}" if isinstance(preset, str) else "of unknown preset"
    text += f": {', '.join(words)}" if words else ""
    return text + (f"; {counted(len(seeds), 'seed')}" if isinstance(seeds, list) and seeds else "")
