"""Keeps what an experiment found: its numbers as JSON, its figures as PNG and PDF."""

import json
from pathlib import Path

from nclab.errors import NclabError
from nclab.experiments import Result
from nclab.files import write_whole


def make_folder(folder: Path) -> None:
    """Make a folder, or say in one line why it cannot be made."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise NclabError(f"Cannot make the folder {folder}: {error.strerror}.") from error


def keep(result: Result, folder: Path) -> list[str]:
    """Write numbers and figures; one line for each file, or for why there is no figure."""
    make_folder(folder)
    numbers = folder / "numbers.json"
    text = json.dumps(result.to_dict(), allow_nan=False, ensure_ascii=False, indent=1)
    write_whole(numbers, text.encode())
    lines = [f"wrote {numbers}"]
    try:
        figures = result.figures()
    except NclabError as error:  # the extra is not installed
        return [*lines, f"no figures: {error}"]
    for name, figure in figures.items():
        from nclab.figures.canvas import save

        lines += [f"wrote {path}" for path in save(figure, folder / name)]
    return lines
