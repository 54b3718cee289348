"""Recomputation of numbers on disk: records, networks, summaries and verdicts.

A checksum shows that a file is unchanged since it was written. Recomputation shows that the
written numbers follow from their sources.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from nclab.claims.ledger import judge_experiment
from nclab.claims.registry import experiments
from nclab.errors import NclabError
from nclab.records.read import RunView, read_run
from nclab.records.results import CLAIMS, NUMBERS, digest, read_json, read_numbers
from nclab.records.schema import FLEET, MEASUREMENT, TRAIN, layers_of, split_of
from nclab.records.verify import Verified
from nclab.training.sweep.measure import remeasure
from nclab.training.sweep.rows import TEST, summary

RELATIVE, ABSOLUTE = 1e-3, 1e-6
"""Tolerances between two measurements of one network: another CPU or version of torch rounds the
float32 features differently."""
ROUNDING = 1e-9
"""Tolerance between numbers that one record contains twice."""
REMEDY = "Delete the run and make it again."


def recompute_run(folder: Path) -> list[Verified]:
    """Recompute the numbers of a run from its records and its last checkpoint."""
    view = read_run(folder)
    results = [_check_records(view)]
    if view.manifest.kind == FLEET:
        results.append(_check_network(view))
        if view.end is not None:
            results.append(_check_summary(view))
    return results


def recompute_claims(root: Path) -> list[Verified]:
    """Judge the claims in `claims.json` again from the numbers in the same folder."""
    content = read_json(root / CLAIMS)
    rows = {row["id"]: row for row in content.get("claims", []) if isinstance(row, dict)}
    results = []
    for name, numbers in read_numbers(root, experiments()).items():
        file, remedy = f"{name}: verdicts", f"nclab reproduce {name}"
        if content.get("judged_from", {}).get(name) != digest(root, name):
            reason = f"{NUMBERS} changed after it was judged, or was never judged"
            results.append(Verified(file, "differs", reason, remedy))
            continue
        differences = [
            f"{again['id']}: {key} was {before.get(key)!r}, is {after[key]!r}"
            for again in judge_experiment(name, numbers, recorded=True)
            for before, after in [(_judgement(rows.get(again["id"], {})), _judgement(again))]
            for key in after
            if before.get(key) != after[key]
        ]
        if differences:
            results.append(Verified(file, "differs", differences[0], remedy))
        else:
            count = sum(row.get("needs") == name for row in rows.values())
            results.append(Verified(file, "good", f"{count} claims judged again, no difference"))
    return results


def _judgement(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the verdict on a claim and the numbers of its weakest effect, without any words."""
    numbers = row.get("numbers", {})
    effect = {key: numbers.get(key) for key in ("estimate", "interval", "margin", "seeds")}
    return {"verdict": row.get("verdict"), **effect}


def _check_records(view: RunView) -> Verified:
    """Compare scalars of records with the arrays in the same records."""
    checked = 0
    for record in view.of_kind(MEASUREMENT):
        for layer in layers_of(record):
            for name, expected in _derived_scalars(layer):
                checked += 1
                written = layer[name]
                if not math.isclose(written, expected, rel_tol=ROUNDING, abs_tol=ROUNDING):
                    reason = (
                        f"{name} is {written:.6g} at step {record.get('step')}, layer "
                        f"{layer.get('layer')}; its record implies {expected:.6g}"
                    )
                    return Verified("records", "differs", reason, REMEDY)
    if not checked:
        return Verified("records", "unchecked", "no record contains a number twice")
    return Verified("records", "good", f"{checked} numbers follow from their records")


def _derived_scalars(layer: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield the scalars of a layer that its arrays imply, with the implied values."""
    counts = layer.get("class_counts")
    for name, source, rule in RULES:
        values = layer.get(source)
        if not isinstance(values, list) or None in values or not values:
            continue
        if isinstance(layer.get(name), float):
            expected = rule(values, counts)
            if expected is not None:
                yield name, expected
    losses = [layer.get(name) for name in ("excess_loss", "balanced_loss", "optimal_loss")]
    if all(isinstance(loss, float) for loss in losses):
        yield "excess_loss", losses[1] - losses[2]  # type: ignore[operator]


def _weighted_mean(values: list[float], counts: Any) -> float | None:
    if not isinstance(counts, list) or len(counts) != len(values):
        return None
    return sum(v * n for v, n in zip(values, counts, strict=True)) / sum(counts)


def _mean(values: list[float], counts: Any) -> float:
    return math.fsum(values) / len(values)


def _largest_off_diagonal(rows: list[list[float]], counts: Any) -> float | None:
    entries = [x for i, row in enumerate(rows) for j, x in enumerate(row) if i != j]
    return None if None in entries else max(entries)


Rule = Callable[[Any, Any], float | None]
RULES: tuple[tuple[str, str, Rule], ...] = (
    ("min_intra", "intra_cosine", lambda values, _: min(values)),
    ("mean_intra", "intra_cosine", _mean),
    ("max_inter", "inter_cosine", _largest_off_diagonal),
    ("nc3_alignment_min", "nc3_alignment", lambda values, _: min(values)),
    ("nc3_alignment_mean", "nc3_alignment", _mean),
    ("balanced_loss", "class_loss", _mean),
    ("loss", "class_loss", _weighted_mean),
    ("alpha", "class_alpha", lambda norms, _: math.sqrt(_mean([x**2 for x in norms], None))),
)
"""Scalar, array that implies it, and function of the array and the class counts."""


def _check_network(view: RunView) -> Verified:
    """Measure the network of the last checkpoint again and compare with its record."""
    try:
        epoch, layers = remeasure(view.folder, view.manifest)
    except NclabError as error:
        reason = str(error).rstrip(".")
        return Verified("network", "unchecked", f"it cannot be measured again: {reason}")
    records = (
        record
        for record in view.of_kind(MEASUREMENT)
        if record.get("epoch") == epoch and split_of(record) == TRAIN
    )
    record = next(records, None)
    if record is None:
        return Verified("network", "unchecked", f"nothing was measured at epoch {epoch:g}")
    worst, description, checked = 0.0, "", 0
    for written, measured in zip(layers_of(record), layers, strict=False):
        for metric, value in measured.items():
            before = written.get(metric)
            if type(value) is not float or type(before) is not float:
                continue
            checked += 1
            scale = max(abs(value), abs(before))
            error_in_tolerances = abs(value - before) / (ABSOLUTE + RELATIVE * scale)
            if error_in_tolerances > worst:
                worst = error_in_tolerances
                description = f"{metric} was {before:.6g}, is {value:.6g}"
    if worst > 1:
        reason = f"measured again at epoch {epoch:g}: {description}"
        return Verified("network", "differs", reason, REMEDY)
    agreement = "identical to the last bit" if worst == 0 else f"largest difference: {description}"
    summary_text = f"{checked} numbers measured again at epoch {epoch:g}, {agreement}"
    return Verified("network", "good", summary_text)


def _check_summary(view: RunView) -> Verified:
    """Compare the summary at the end of a sweep's run with the last measurements."""
    last = {split_of(record): record for record in view.of_kind(MEASUREMENT)}
    end = view.end or {}
    for name, value in summary(last.get(TRAIN), last.get(TEST)).items():
        if name in end and name != "why" and end[name] != value:
            reason = f"{name} is {end[name]!r}; the last measurement has {value!r}"
            return Verified("summary", "differs", reason, REMEDY)
    return Verified("summary", "good", "equals the last measurement")
