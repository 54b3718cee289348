"""Results: `numbers.json` of an experiment and `claims.json` beside it, read and written here."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from nclab import __version__
from nclab.errors import NclabError
from nclab.files import write_whole

NUMBERS = "numbers.json"
CLAIMS = "claims.json"
SKIPPED = "skipped.json"
UNREADABLE = "unreadable"
"""In place of an experiment's numbers: why those on disk cannot be read."""


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


def read_numbers(runs: Path, names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """RUNS/<experiment>/numbers.json of every named experiment that is there.

    A file that cannot be read, or holds another experiment, gives the reason under "unreadable".

    >>> read_numbers(Path("no-such-folder"), ["tour"])
    {}
    """
    found = {}
    for name in names:
        try:
            found[name] = _numbers((runs / name / NUMBERS).read_text(), name)
        except FileNotFoundError:
            continue
        except (OSError, ValueError, RecursionError) as error:
            found[name] = {UNREADABLE: f"{type(error).__name__}: {error}"}
    return found


def digest(runs: Path, name: str) -> str:
    """Of the numbers of an experiment, by which its verdicts know what they were judged from."""
    try:
        return hashlib.sha256((runs / name / NUMBERS).read_bytes()).hexdigest()
    except OSError:
        return ""


def _numbers(text: str, name: str) -> dict[str, Any]:
    numbers = json.loads(text)
    if not isinstance(numbers, dict):
        return {UNREADABLE: f"a JSON {type(numbers).__name__}, not an object"}
    if numbers.get("experiment", name) != name:
        return {UNREADABLE: f"it holds the numbers of {numbers['experiment']!r}"}
    return numbers
