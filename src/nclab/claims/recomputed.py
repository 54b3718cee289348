"""Numbers on disk against what they were made of: records, networks, summaries and verdicts.

A checksum says that a file is as it was written; this says that what was written is right.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from nclab.claims.ledger import judge_needing
from nclab.claims.registry import experiments
from nclab.errors import NclabError
from nclab.records.fleet_config import FLEET
from nclab.records.read import RunView, read_run
from nclab.records.results import CLAIMS, NUMBERS, digest, read_json, read_numbers
from nclab.records.schema import MEASUREMENT, TRAIN, layers_of, split_of
from nclab.records.verify import Verified
from nclab.training.sweep.recompute import measured_again
from nclab.training.sweep.rows import TEST, summary

RELATIVE, ABSOLUTE = 1e-3, 1e-6
"""Two measurements of one network are the same if they differ by less: another CPU or another
version of torch rounds features in float32 otherwise."""
ROUNDING = 1e-9
"""The same for numbers that one record holds twice."""
AGAIN = "Delete the run and make it again."


def recompute_run(folder: Path) -> list[Verified]:
    """Every number of a run that can be made again, from its records and its last checkpoint."""
    view = read_run(folder)
    found = [_within(view)]
    if view.manifest.kind == FLEET:
        found.append(_network(view))
        if view.end is not None:
            found.append(_summary(view))
    return found


def recompute_claims(root: Path) -> list[Verified]:
    """The verdicts of `claims.json`, judged again from the numbers beside it."""
    told = read_json(root / CLAIMS)
    rows = {row["id"]: row for row in told.get("claims", []) if isinstance(row, dict)}
    numbers = read_numbers(root, experiments())
    found = []
    for name, own in numbers.items():
        if told.get("judged_from", {}).get(name) != digest(root, name):
            why = f"{NUMBERS} changed after it was judged, or was not judged"
            found.append(Verified(f"{name}: verdicts", "differs", why, f"nclab reproduce {name}"))
            continue
        wrong = [
            f"{again['id']}: {part} was {rows.get(again['id'], {}).get(part)!r}, is {again[part]!r}"
            for again in judge_needing(name, own)
            for part in ("verdict", "evidence")
            if rows.get(again["id"], {}).get(part) != again[part]
        ]
        file, judged = f"{name}: verdicts", sum(row.get("needs") == name for row in rows.values())
        if wrong:
            found.append(Verified(file, "differs", wrong[0], f"nclab reproduce {name}"))
        else:
            found.append(Verified(file, "good", f"{judged} claims judged again, all the same"))
    return found


def _within(view: RunView) -> Verified:
    """Scalars of records against the arrays that the same records hold."""
    checked = 0
    for record in view.of_kind(MEASUREMENT):
        for layer in layers_of(record):
            for name, again in _derived(layer):
                checked += 1
                told = layer[name]
                if not math.isclose(told, again, rel_tol=ROUNDING, abs_tol=ROUNDING):
                    where = f"step {record.get('step')}, {layer.get('layer')}"
                    words = f"{name} is {told:.6g} at {where}, from its own record {again:.6g}"
                    return Verified("records", "differs", words, AGAIN)
    if not checked:
        return Verified("records", "unchecked", "no record holds a number twice")
    return Verified("records", "good", f"{checked} numbers follow from their own records")


def _derived(layer: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """What a layer's per-class values say of its scalars, where all are there."""
    counts = layer.get("class_counts")
    for name, source, rule in RULES:
        values = layer.get(source)
        if not isinstance(values, list) or None in values or not values:
            continue
        if isinstance(layer.get(name), float):
            again = rule(values, counts)
            if again is not None:
                yield name, again
    parts = [layer.get(name) for name in ("excess_loss", "balanced_loss", "optimal_loss")]
    if all(isinstance(part, float) for part in parts):
        yield "excess_loss", parts[1] - parts[2]  # type: ignore[operator]


def _weighted(values: list[float], counts: Any) -> float | None:
    if not isinstance(counts, list) or len(counts) != len(values):
        return None
    return sum(v * n for v, n in zip(values, counts, strict=True)) / sum(counts)


def _mean(values: list[float], counts: Any) -> float:
    return math.fsum(values) / len(values)


def _rms(values: list[float], counts: Any) -> float:
    return math.sqrt(math.fsum(value**2 for value in values) / len(values))


def _largest_pair(rows: list[list[float]], counts: Any) -> float | None:
    pairs = [x for i, row in enumerate(rows) for j, x in enumerate(row) if i != j]
    return None if None in pairs else max(pairs)


Rule = Callable[[Any, Any], float | None]
RULES: tuple[tuple[str, str, Rule], ...] = (
    ("min_intra", "intra_cosine", lambda values, _: min(values)),
    ("mean_intra", "intra_cosine", _mean),
    ("max_inter", "inter_cosine", _largest_pair),
    ("nc3_alignment_min", "nc3_alignment", lambda values, _: min(values)),
    ("nc3_alignment_mean", "nc3_alignment", _mean),
    ("balanced_loss", "class_loss", _mean),
    ("loss", "class_loss", _weighted),
    ("alpha", "class_alpha", _rms),
)
"""A scalar, the values of classes it follows from, and how."""


def _network(view: RunView) -> Verified:
    """The last measurement of a fleet's network, made again."""
    try:
        epoch, layers = measured_again(view.folder, view.manifest)
    except NclabError as error:
        why = str(error).rstrip(".")
        return Verified("network", "unchecked", f"it cannot be measured again: {why}")
    record = next((one for one in view.of_kind(MEASUREMENT) if _is_at(one, epoch)), None)
    if record is None:
        return Verified("network", "unchecked", f"nothing was measured at epoch {epoch:g}")
    worst, name, checked = 0.0, "", 0
    for told, again in zip(layers_of(record), layers, strict=False):
        for metric, value in again.items():
            if type(value) is not float or type(told.get(metric)) is not float:
                continue
            checked += 1
            scale = max(abs(value), abs(told[metric]))
            off = abs(value - told[metric]) / (ABSOLUTE + RELATIVE * scale)
            if off > worst:
                worst, name = off, f"{metric} was {told[metric]:.6g}, is {value:.6g}"
    if worst > 1:
        return Verified("network", "differs", f"measured again at epoch {epoch:g}, {name}", AGAIN)
    same = "the same to the last bit" if worst == 0 else f"at worst {name}"
    words = f"{checked} numbers measured again at epoch {epoch:g}, {same}"
    return Verified("network", "good", words)


def _is_at(record: Mapping[str, Any], epoch: float) -> bool:
    return record.get("epoch") == epoch and split_of(record) == TRAIN


def _summary(view: RunView) -> Verified:
    """What the end of a fleet's run says, from its last measurements."""
    last = {split_of(record): record for record in view.of_kind(MEASUREMENT)}
    end = view.end or {}
    for name, value in summary(last.get(TRAIN), last.get(TEST)).items():
        if name in end and name != "why" and end[name] != value:
            words = f"{name} is {end[name]!r}, in the last measurement {value!r}"
            return Verified("summary", "differs", words, AGAIN)
    return Verified("summary", "good", "as the last measurement has it")
