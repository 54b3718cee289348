"""Damaged journals: no changed record is read, and every intact one is."""

import random
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nclab.errors import NclabWarning
from nclab.records import JournalReader, glance, read_run
from tests.fuzz.mutations import BYTES
from tests.records.test_run import start


def campaign(folder: Path) -> Callable[[random.Random], bool]:
    """Return an attack on one journal; it returns whether a byte changed."""
    truth = written(folder / "run")
    content = (folder / "run" / "journal.jsonl").read_bytes()
    return lambda chance: attack(chance, content, folder / "run", truth)


def moved_lines(chance: random.Random, content: bytes) -> bytes:
    lines = content.split(b"\n")[:-1]
    one, other = chance.randrange(len(lines)), chance.randrange(len(lines))
    change = chance.choice(("swap", "drop", "double"))
    if change == "swap":
        lines[one], lines[other] = lines[other], lines[one]
    elif change == "drop":
        del lines[one]
    else:
        lines.insert(other, lines[one])
    return b"\n".join([*lines, b""])


MUTATIONS = (*BYTES, moved_lines)


def written(folder: Path) -> list[dict[str, Any]]:
    """Write a run with some records; return the records."""
    with start(folder) as run:
        for step in range(6):
            layer = {"layer": "fc", "min_intra": 0.9 + step / 100, "intra": [0.9, 1.0]}
            train = {"loss": 1 / (step + 1), "accuracy": 0.9533, "rate": 0.1}
            run.append({"kind": "measurement", "step": step, "layers": [layer], "train": train})
        run.finish(accuracy=0.9533)
    return read_run(folder).records


def attack(chance: random.Random, content: bytes, folder: Path, truth: list[Any]) -> bool:
    """Change a journal; return whether a byte changed. Fail if a reader is deceived."""
    changed = chance.choice(MUTATIONS)(chance, content)
    (folder / "journal.jsonl").write_bytes(changed)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        view, reader = read_run(folder), JournalReader(folder)
        followed = reader.poll()
    assert all(record in truth for record in view.records), "a changed record was read"
    assert followed == view.records
    lost = truth[: len(view.records)] != view.records
    if lost:
        assert view.problem, "records are gone from the middle without a word"
        torn = not changed.endswith(b"\n")
        assert reader.problem == view.problem or (torn and "torn" in view.problem)
    assert bool(reader.problem) == any(one.category is NclabWarning for one in caught)
    good = {line for line in content.split(b"\n") if line}
    whole = [line for line in changed[: changed.rfind(b"\n") + 1].split(b"\n") if line in good]
    if len(set(whole)) == len(whole) and whole == sorted(whole, key=content.index):
        expected = len(whole) - (content.split(b"\n")[0] in whole)
        assert len(view.records) == expected, "a good record after the damage was not read"
    assert all(record in truth for record in glance(folder).records)
    return changed != content
