"""Results of experiments on disk: `numbers.json`, `claims.json` and `skipped.json`."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from nclab import __version__
from nclab.errors import NclabError, RecordError
from nclab.files import read_regular, translate_os_errors, write_whole
from nclab.records.encoding import dump_checked_json, load_checked_json
from nclab.records.schema import NumbersHeading

NUMBERS = "numbers.json"
CLAIMS = "claims.json"
SKIPPED = "skipped.json"
UNREADABLE = "unreadable"
"""Key under which `read_numbers` returns why the numbers of an experiment cannot be read."""


def make_folder(folder: Path) -> None:
    """Create a folder and those above it."""
    with translate_os_errors("make the folder", folder, NclabError):
        folder.mkdir(parents=True, exist_ok=True)


def write_json(path: Path, value: Any) -> None:
    """Write JSON atomically; an object gets a checksum. Numbers must be finite."""
    if isinstance(value, Mapping):
        content = dump_checked_json(value)
    else:
        content = json.dumps(value, allow_nan=False, ensure_ascii=False, indent=1).encode()
    write_whole(path, content)


def parse_json(path: Path, *, root: Path | None = None) -> Any:
    """Return the value of a JSON file, with None for numbers that are not finite.

    Raise `RecordError` if the file cannot be read or is damaged. With `root`, no link below that
    folder is followed.
    """
    try:
        value, has_checksum = load_checked_json(read_regular(path, root=root))
    except OSError as error:
        raise RecordError(str(error.strerror)) from error
    if has_checksum:
        del value["schema"]
    return value


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file, or an empty one if the file is missing or damaged."""
    try:
        content = parse_json(path)
    except RecordError:
        return {}
    return content if isinstance(content, dict) else {}


def heading(name: str, *, preset: str, seeds: Sequence[int], config: Any) -> NumbersHeading:
    """Return the settings of a result; a result with equal settings need not be computed again."""
    return {
        "experiment": name,
        "preset": preset,
        "seeds": list(seeds),
        "settings": json.loads(json.dumps(asdict(config))),  # tuples come back as lists
        "nclab": __version__,
    }


def kept_numbers(folder: Path, wanted: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the numbers in a folder if they have the wanted heading, else None."""
    numbers = read_json(folder / NUMBERS)
    return numbers if all(numbers.get(key) == wanted[key] for key in wanted) else None


def read_numbers(runs: Path, names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return RUNS/<experiment>/numbers.json of every named experiment that has this file.

    If a file cannot be read or holds another experiment, the reason is under "unreadable".

    >>> read_numbers(Path("no-such-folder"), ["tour"])
    {}
    """
    results = {}
    for name in names:
        path = runs / name / NUMBERS
        if not path.exists():
            continue
        try:
            numbers = parse_json(path, root=runs)
        except RecordError as error:
            results[name] = {UNREADABLE: str(error)}
            continue
        if not isinstance(numbers, dict):
            results[name] = {UNREADABLE: f"a JSON {type(numbers).__name__}, not an object"}
        elif numbers.get("experiment", name) != name:
            results[name] = {UNREADABLE: f"it holds the numbers of {numbers['experiment']!r}"}
        else:
            results[name] = numbers
    return results


def digest(runs: Path, name: str) -> str:
    """Return the SHA-256 of the numbers of an experiment, empty if they cannot be read."""
    try:
        return hashlib.sha256(read_regular(runs / name / NUMBERS, root=runs)).hexdigest()
    except OSError:
        return ""
