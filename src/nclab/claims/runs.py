"""The numbers that finished experiments left in a folder of runs, for the claims that need them."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from nclab.claims.claim import Claim
from nclab.errors import NclabError


def read_numbers(runs: Path, claims: Iterable[Claim]) -> dict[str, dict[str, Any]]:
    """RUNS/<experiment>/numbers.json of every experiment that the claims need and that is there.

    >>> read_numbers(Path("no-such-folder"), [])
    {}
    """
    found = {}
    for name in sorted({claim.needs for claim in claims if claim.needs}):
        path = runs / name / "numbers.json"
        try:
            numbers = json.loads(path.read_text())
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            raise NclabError(
                f"Expected the numbers of {name} in {path}, got what cannot be read: {error}. "
                f"Run nclab reproduce {name} again."
            ) from error
        if not isinstance(numbers, dict):
            raise NclabError(f"Expected a JSON object in {path}, got {type(numbers).__name__}.")
        found[name] = numbers
    return found
