"""The numbers that finished experiments left in a folder of runs, for the claims that need them."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from nclab.claims.claim import UNREADABLE, Claim


def read_numbers(runs: Path, claims: Iterable[Claim]) -> dict[str, dict[str, Any]]:
    """RUNS/<experiment>/numbers.json of every experiment that the claims need and that is there.

    A file that cannot be read, or holds another experiment, gives the reason under "unreadable".

    >>> read_numbers(Path("no-such-folder"), [])
    {}
    """
    found = {}
    for name in sorted({claim.needs for claim in claims if claim.needs}):
        try:
            found[name] = _numbers((runs / name / "numbers.json").read_text(), name)
        except FileNotFoundError:
            continue
        except (OSError, ValueError, RecursionError) as error:
            found[name] = {UNREADABLE: f"{type(error).__name__}: {error}"}
    return found


def _numbers(text: str, name: str) -> dict[str, Any]:
    numbers = json.loads(text)
    if not isinstance(numbers, dict):
        return {UNREADABLE: f"a JSON {type(numbers).__name__}, not an object"}
    if numbers.get("experiment", name) != name:
        return {UNREADABLE: f"it holds the numbers of {numbers['experiment']!r}"}
    return numbers
