"""Keeps what an experiment found: its numbers as JSON, its pictures as data, SVG, PNG and PDF."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from nclab import __version__
from nclab.errors import MissingExtra, NclabError
from nclab.experiments import Experiment
from nclab.files import write_whole

NUMBERS = "numbers.json"


def make_folder(folder: Path) -> None:
    """Make a folder, or say in one line why it cannot be made."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise NclabError(f"Cannot make the folder {folder}: {error.strerror}.") from error


def write_json(path: Path, value: Any) -> None:
    """Plain JSON, whole or not at all; a number that is not finite is a bug, not an output."""
    text = json.dumps(value, allow_nan=False, ensure_ascii=False, indent=1)
    write_whole(path, text.encode())


def read_json(path: Path) -> dict[str, Any]:
    """The object in a file; an empty one where there is none or it is damaged."""
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def heading(name: str, *, preset: str, seeds: Sequence[int], config: Any) -> dict[str, Any]:
    """What tells one result from another; a result with the same heading need not be redone."""
    return {
        "experiment": name,
        "preset": preset,
        "seeds": list(seeds),
        "settings": json.loads(json.dumps(asdict(config))),  # tuples come back as lists
        "nclab": __version__,
    }


def kept_numbers(folder: Path, wanted: Mapping[str, Any]) -> dict[str, Any] | None:
    """The numbers in a folder if their heading is the one that is wanted, else None."""
    numbers = read_json(folder / NUMBERS)
    return numbers if all(numbers.get(key) == wanted[key] for key in wanted) else None


def keep(experiment: Experiment, numbers: Mapping[str, Any], folder: Path) -> list[str]:
    """Write numbers and figures; one line for each figure, or for why there is none."""
    make_folder(folder)
    lines = [f"wrote {folder / NUMBERS}"]
    try:
        lines += _draw(experiment, numbers, folder)
    except MissingExtra as error:
        lines.append(f"no figures: {error}")
    # Last, because whoever finds it takes the folder as complete.
    write_json(folder / NUMBERS, numbers)
    return lines


def is_drawn(experiment: Experiment, numbers: Mapping[str, Any], folder: Path) -> bool:
    """Whether every figure of a result is there; they may be missing from a time without plots."""
    return all((folder / f"{one.name}.svg").exists() for one in experiment.pictures(numbers))


def _draw(experiment: Experiment, numbers: Mapping[str, Any], folder: Path) -> list[str]:
    from nclab.figures.draw import save
    from nclab.figures.picture import to_json

    lines = []
    for picture in experiment.pictures(numbers):
        write_json(folder / f"{picture.name}.picture.json", to_json(picture))
        kinds = ",".join(path.suffix[1:] for path in save(picture, folder))
        lines.append(f"drew {folder / picture.name}.{{{kinds}}}")
    return lines
