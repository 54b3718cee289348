"""Results: `numbers.json` of an experiment, `claims.json` and `skipped.json` beside it."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from nclab import __version__
from nclab.errors import NclabError, RecordError
from nclab.files import read_regular, translate_os_errors, write_whole
from nclab.records.schema import NumbersHeading
from nclab.records.seals import open_json, seal_json

NUMBERS = "numbers.json"
CLAIMS = "claims.json"
SKIPPED = "skipped.json"
UNREADABLE = "unreadable"
"""In place of an experiment's numbers: why those on disk cannot be read."""


def make_folder(folder: Path) -> None:
    """Make a folder, or say in one line why it cannot be made."""
    with translate_os_errors("make the folder", folder, NclabError):
        folder.mkdir(parents=True, exist_ok=True)


def write_json(path: Path, value: Any) -> None:
    """Plain JSON, whole or not at all; a number that is not finite is a bug, not an output.

    An object is sealed, so that a changed byte is noticed.
    """
    if isinstance(value, Mapping):
        content = seal_json(value)
    else:
        content = json.dumps(value, allow_nan=False, ensure_ascii=False, indent=1).encode()
    write_whole(path, content)


def parse_json(path: Path, *, root: Path | None = None) -> Any:
    """What a file holds, None for a number that is not finite; RecordError where it is damaged.

    With a root no link below it is followed.
    """
    try:
        value, sealed = open_json(read_regular(path, root=root))
    except OSError as error:
        raise RecordError(str(error.strerror)) from error
    if sealed:
        del value["schema"]
    return value


def read_json(path: Path) -> dict[str, Any]:
    """The object in a file; an empty one where there is none or it is damaged."""
    try:
        content = parse_json(path)
    except RecordError:
        return {}
    return content if isinstance(content, dict) else {}


def heading(name: str, *, preset: str, seeds: Sequence[int], config: Any) -> NumbersHeading:
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
        path = runs / name / NUMBERS
        if path.exists():
            try:
                found[name] = _numbers(parse_json(path, root=runs), name)
            except RecordError as error:
                found[name] = {UNREADABLE: str(error)}
    return found


def digest(runs: Path, name: str) -> str:
    """Of the numbers of an experiment, by which its verdicts know what they were judged from."""
    try:
        return hashlib.sha256(read_regular(runs / name / NUMBERS, root=runs)).hexdigest()
    except OSError:
        return ""


def _numbers(numbers: Any, name: str) -> dict[str, Any]:
    if not isinstance(numbers, dict):
        return {UNREADABLE: f"a JSON {type(numbers).__name__}, not an object"}
    if numbers.get("experiment", name) != name:
        return {UNREADABLE: f"it holds the numbers of {numbers['experiment']!r}"}
    return numbers
