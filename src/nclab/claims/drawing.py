"""Draws what an experiment found: its pictures as data, SVG, PNG and PDF."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nclab.errors import MissingExtra
from nclab.figures.picture import Picture
from nclab.records.results import NUMBERS, make_folder, write_json


def keep(pictures: Sequence[Picture], numbers: Mapping[str, Any], folder: Path) -> list[str]:
    """Write numbers and figures; one line for each figure, or for why there is none."""
    make_folder(folder)
    lines = [f"wrote {folder / NUMBERS}"]
    try:
        lines += _draw(pictures, folder)
    except MissingExtra as error:
        lines.append(f"no figures: {error}")
    # Last, because whoever finds it takes the folder as complete.
    write_json(folder / NUMBERS, numbers)
    return lines


def is_drawn(pictures: Sequence[Picture], folder: Path) -> bool:
    """Whether every figure of a result is there; they may be missing from a time without plots."""
    return all((folder / f"{one.name}.svg").exists() for one in pictures)


def _draw(pictures: Sequence[Picture], folder: Path) -> list[str]:
    from nclab.figures.matplotlib_renderer import save
    from nclab.figures.picture import to_json

    lines = []
    for picture in pictures:
        write_json(folder / f"{picture.name}.picture.json", to_json(picture))
        kinds = ",".join(path.suffix[1:] for path in save(picture, folder))
        lines.append(f"drew {folder / picture.name}.{{{kinds}}}")
    return lines
