"""Comparison of runs: the settings in which they differ, and their last measurements."""

import json
from collections.abc import Mapping
from typing import Any

from nclab.records.schema import EPOCH, FLEET, OMITTED_DEFAULTS, last_layer
from nclab.report.columns import AXES
from nclab.report.run_data import FIRST, FIRST_OF_SAMPLES, describe, round_values, summary
from nclab.report.run_follower import RunFollower, without_huge_numbers

POINTS = 200
"""Points of a curve in a written report."""
MAX_LIST = 4
"""Longest list that counts as a setting; longer ones are no hyperparameters."""
MAX_TEXT = 60
"""Longest text that counts as a setting; digests are longer."""
SEED = "seed"
CHOSEN = ("accuracy", "loss", "min_intra", "max_inter", "nc1_trace_pinv", "nc3_self_duality")
"""Metrics that tables and figures show before the user selects others."""

Value = float | int | str | bool | None


def table(runs: Mapping[str, RunFollower]) -> dict[str, Any]:
    """Return a row for every run, the settings in which runs differ, and all metrics."""
    rows = [row_of(slug, run) for slug, run in runs.items()]
    return with_axes(rows, describe_all(runs))


def with_axes(rows: list[dict[str, Any]], metrics: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the rows with only the settings in which they differ, under short names."""
    rows = _with_defaults(rows)
    configs = [row["config"] for row in rows]
    names = differing(configs)
    same = {
        key: value
        for key, value in (configs[0] if configs else {}).items()
        if key not in names and all(key in config for config in configs)
    }
    shown = [
        {**row, "config": {names[key]: v for key, v in row["config"].items() if key in names}}
        for row in rows
    ]
    return {"runs": shown, "axes": list(names.values()), "same": same, "metrics": metrics}


def _with_defaults(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows in which sweeps also name the defaults of settings that others name."""
    named = {key for row in rows for key in row["config"]}
    wanted = {key: value for key, value in OMITTED_DEFAULTS.items() if key in named}
    if not wanted:
        return rows
    completed = []
    for row in rows:
        config = row["config"]
        parts = {key.partition(".")[0] for key in config} if row.get("kind") == FLEET else set()
        omitted = {key: value for key, value in wanted.items() if key.partition(".")[0] in parts}
        if omitted.get("shape.features", 0) is None:
            omitted["shape.features"] = config.get("shape.width")
        completed.append({**row, "config": {**omitted, **config}})
    return completed


def differing(configs: list[Mapping[str, Value]]) -> dict[str, str]:
    """Return the settings with more than one value and their shortest unique names.

    The seed comes last.

    >>> differing([{"m.seed": 0, "m.decay": 1}, {"m.seed": 1, "m.decay": 2}, {"x": 5}])
    {'m.decay': 'decay', 'm.seed': 'seed'}
    """
    values_by_key: dict[str, dict[int, str]] = {}
    for index, config in enumerate(configs):
        for key, value in config.items():
            values_by_key.setdefault(key, {})[index] = json.dumps(value)
    distinct: dict[str, str] = {}
    for key, values in values_by_key.items():  # settings that change together are shown once
        if len(set(values.values())) > 1:
            distinct.setdefault(f"{key.rpartition('.')[2]} {values}", key)
    keys = list(distinct.values())
    ends = [key.rpartition(".")[2] for key in keys]
    names = {key: end if ends.count(end) == 1 else key for key, end in zip(keys, ends, strict=True)}
    return dict(sorted(names.items(), key=lambda item: item[1] == SEED))


def row_of(slug: str, run: RunFollower) -> dict[str, Any]:
    """Return the row of a run: its state, its configuration and its last values."""
    counts = (columns.count for kind, columns in run.columns.items() if kind != EPOCH)
    return {
        "slug": slug,
        **summary(run),
        "epoch": run.last_measurement().get("epoch"),
        "measured": max(counts, default=0),
        "config": settings(run),
        "values": last_values(run),
    }


def settings(run: RunFollower) -> dict[str, Value]:
    """Return the configuration of a run as a flat dictionary.

    The seed of the manifest is added if the configuration does not contain it.
    """
    flat: dict[str, Value] = {}
    _flatten(without_huge_numbers(run.manifest.config), "", flat)
    seeds = [value for key, value in flat.items() if key.rpartition(".")[2] == SEED]
    if run.manifest.seed is not None and run.manifest.seed not in seeds:
        flat[SEED] = run.manifest.seed
    return flat


def _flatten(value: Any, path: str, into: dict[str, Value]) -> None:
    if isinstance(value, dict):
        for name, item in value.items():
            _flatten(item, f"{path}.{name}" if path else str(name), into)
    elif isinstance(value, list):
        if len(value) <= MAX_LIST and not any(isinstance(item, dict | list) for item in value):
            into[path] = ", ".join(map(str, value))
    elif path and not (isinstance(value, str) and len(value) > MAX_TEXT):
        into[path] = value


def last_values(run: RunFollower) -> dict[str, float | int | None]:
    """Return the newest value of every metric, for the last layer and for the whole network.

    The names of metrics on other data than the training data end with the name of the split.
    """
    values: dict[str, float | None] = {}
    last = run.last_layers()
    for key in sorted(run.names(), key=lambda key: not key[0]):  # layers before the whole
        layer, metric = key
        data = layer.rpartition(" · ")[2] if " · " in layer else ""
        if layer in last or (not layer and metric not in values):
            values[f"{metric} · {data}" if data else metric] = run.newest(key)
    return dict(zip(values, round_values(list(values.values())), strict=True))


def describe_all(runs: Mapping[str, RunFollower]) -> list[dict[str, Any]]:
    """Return every metric of the runs with its meaning, the most common ones first."""
    names = (metric for run in runs.values() for _, metric in run.names())
    classes = {last_layer(run.last_measurement()).get("num_classes") for run in runs.values()}
    classes -= {None}
    metrics = describe(names, classes.pop() if len(classes) == 1 else None)
    rank = {name: index for index, name in enumerate((*CHOSEN, *FIRST, *FIRST_OF_SAMPLES))}
    return sorted(metrics, key=lambda metric: rank.get(metric["name"], len(rank)))


def curves(runs: Mapping[str, RunFollower]) -> dict[str, dict[str, Any]]:
    """Return all curves of the last layers by metric; shared axes are stored once.

    `at` lists the values on the axes; every curve refers to entries of this list.
    """
    files: dict[str, dict[str, Any]] = {}
    for slug, run in runs.items():
        last = ("", *run.last_layers())
        shown = run.axes()
        for columns in run.columns.values():
            axes, values = columns.table(POINTS)
            at = {name: round_values(axes[name], 9) for name in shown if columns.has(name)}
            for (layer, metric), y in values.items():
                if layer not in last or not any(value is not None for value in y):
                    continue
                file = files.setdefault(metric, {"at": [], "known": {}, "runs": {}})
                indices = {AXES[name]: _index(file, column) for name, column in at.items()}
                by_layer = file["runs"].setdefault(slug, {})
                # Keep the kind of records with the most points.
                if layer not in by_layer or len(by_layer[layer]["y"]) < len(y):
                    by_layer[layer] = {"layer": layer, "at": indices, "y": round_values(y)}
    return {
        metric: {
            "at": file["at"],
            "runs": {slug: list(by_layer.values()) for slug, by_layer in file["runs"].items()},
        }
        for metric, file in files.items()
    }


def _index(file: dict[str, Any], column: list[float | int | None]) -> int:
    """Return the index of a column of axis values, which is stored once for all curves."""
    key = tuple(column)
    if key not in file["known"]:
        file["known"][key] = len(file["at"])
        file["at"].append(column)
    return int(file["known"][key])
