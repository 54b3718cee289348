"""Recomputation of numbers on disk: measurements of networks, and verdicts.

A checksum shows that a file is unchanged since it was written. Recomputation shows that the
written numbers follow from their sources.
"""

from collections.abc import Mapping
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

RELATIVE, ABSOLUTE = 1e-3, 1e-6
"""Tolerances between two measurements of one network: another CPU or version of torch rounds the
float32 features differently."""
REMEDY = "Delete the run and make it again."


def recompute_run(folder: Path) -> list[Verified]:
    """Measure the last checkpoint of a sweep's run again; return nothing for other runs."""
    view = read_run(folder)
    return [_check_network(view)] if view.manifest.kind == FLEET else []


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
