"""`make fuzz`, or `python -m tests.fuzz [CAMPAIGN …] [--count N] [--again NUMBER]`.

Attack number N of a campaign is the same wherever it is made. What was done is kept in the folder
`fuzz`, so that a campaign goes on where it was stopped, with the numbers of the attacks that found
something and what they found.
"""

import argparse
import json
import random
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nclab.progress import track
from tests.fuzz import files, numbers, records, reports, structure

KEPT = Path("fuzz")
EVERY_SECONDS = 5.0
"""Between two notes of how far it is."""

Campaign = Callable[[Path], Callable[[random.Random], bool]]
CAMPAIGNS: dict[str, Campaign] = {
    "records": records.campaign,
    "files": files.campaign,
    "reports": reports.campaign,
    "structure": structure.campaign,
    "numbers": numbers.campaign,
}


def main(arguments: list[str]) -> int:
    """Run the campaigns; 1 where one of them found something."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("campaign", nargs="*", choices=[[], *CAMPAIGNS], help="default: all")
    parser.add_argument("--count", type=int, default=10_000, help="attacks of each campaign")
    parser.add_argument("--again", type=int, help="make this one attack once more")
    given = parser.parse_args(arguments)
    found = 0
    for name in given.campaign or CAMPAIGNS:
        with tempfile.TemporaryDirectory() as folder:
            attack = CAMPAIGNS[name](Path(folder))
            if given.again is not None:
                attack(random.Random(f"{name} {given.again}"))
            else:
                found += _run(name, attack, given.count)
    return int(found > 0)


def _run(name: str, attack: Callable[[random.Random], bool], count: int) -> int:
    KEPT.mkdir(exist_ok=True)
    file = KEPT / f"{name}.json"
    state: dict[str, Any] = {"done": 0, "noticed": 0, "bad": {}}
    state |= json.loads(file.read_text()) if file.exists() else {}
    first, noted = state["done"], time.monotonic()
    for number in track(range(first, first + count), f"{name}, from {first}"):
        try:
            state["noticed"] += attack(random.Random(f"{name} {number}"))
        except Exception:  # noqa: BLE001 - whatever it is, it is what we look for
            state["bad"][str(number)] = traceback.format_exc(limit=-3)
        state["done"] = number + 1
        if time.monotonic() - noted > EVERY_SECONDS or state["done"] == first + count:
            file.write_text(json.dumps(state, indent=1))
            noted = time.monotonic()
    told = f"{state['done']} attacks, {state['noticed']} noticed, {len(state['bad'])} bad"
    print(f"{name}: {told}")
    return len(state["bad"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
