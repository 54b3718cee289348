"""Data for the pages of runs: of one run, and the comparison of all runs of a folder.

The page of a run draws curves, cosines between classes, a 3-D picture and guarantees. The page of
all runs compares the settings in which they differ, and their last measurements.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from nclab.metrics.catalogue import TARGET_MEANINGS, target_progress
from nclab.records.schema import EPOCH, FLEET, OMITTED_DEFAULTS, SAMPLE, health_of, last_layer
from nclab.report.run_follower import AXES, NOT_CURVES, RunFollower, evenly, without_huge_numbers
from nclab.text import is_number

FIRST = (
    *("train loss", "loss", "min_intra", "max_inter", "nc1_trace_pinv", "nc1_within_variation"),
    *("nc2_equiangularity_means", "nc3_self_duality", "nc4_ncc_accuracy", "excess_loss"),
)
"""Metrics that the page of a run draws before the user selects others."""
FIRST_OF_SAMPLES = (
    *("log_loss", "margin", "normalised_margin", "alignment", "nc2_norm_variation_means"),
    *("nc1_within_variation", "nc2_equiangularity_means", "nc3_self_duality", "kkt_epsilon"),
)
"""Metrics that the page of a run of the layer-peeled model draws first."""
SHOWN_FIRST = 9
FINE = 1000
"""Coordinates and cosines are multiplied by this number and stored as integers, to save space."""
MAX_CLASSES = 40
MAX_ALARMS = 50
NO_GUARANTEE = "This loss guarantees nothing for a single class: all its samples could be wrong."
NO_CERTIFICATE = "No certificate: this run was recorded by a version without certificates."
BOUNDS = (
    ("cosine of classifier row and mean ≥", "alignment_lower", "nc3_alignment_min"),
    ("cosine within classes ≥", "intra_lower", "min_intra"),
    ("cosine between classes ≤", "inter_upper", "max_inter"),
)
"""For each bound of a certificate: its text on the page, its key, and the metric it bounds."""
POINTS = 200
"""Largest number of points of a curve on the page that compares runs."""
MAX_LIST = 4
"""Longest list that counts as a setting; longer lists are usually data."""
MAX_TEXT = 60
"""Longest text that counts as a setting; checksums, for example, are longer."""
SEED = "seed"
COMPARED_FIRST = (
    *("accuracy", "loss", "min_intra", "max_inter", "nc1_trace_pinv", "nc3_self_duality"),
)
"""Metrics that the comparison of runs lists first."""

Value = float | int | str | bool | None


class PageLimits(NamedTuple):
    """Limits for the amount of data on the page of a run."""

    points: int = 400
    """Largest number of points of a curve."""
    frames: int = 60
    """Largest number of frames of an animation (cosines or 3-D picture)."""
    samples: int = 200
    """Largest number of samples in the 3-D picture."""


def page_limits(runs: int) -> PageLimits:
    """Return the `PageLimits` of every page; the more runs a report has, the smaller they are."""
    if runs <= 12:
        return PageLimits()
    return PageLimits(points=max(30, 3600 // runs), frames=24, samples=60)


def run_data(run: RunFollower, *, slug: str, limits: PageLimits | None = None) -> dict[str, Any]:
    """Return everything that the page of a run draws, as plain JSON values."""
    limits = limits or PageLimits()
    last = run.last_measurement()
    metrics = describe((name for _, name in run.names()), last_layer(last).get("num_classes"))
    names = [metric["name"] for metric in metrics]
    wanted = FIRST_OF_SAMPLES if SAMPLE in run.columns else FIRST
    layer = next(iter(run.last_layers()), "")
    to_target, to_etf = (
        run.curve((layer, name), "step")[1] for name in ("target_distance", "etf_distance")
    )
    return {
        "slug": slug,
        **summary(run),
        "layers": run.layers(),
        "metrics": [  # the meanings are in a script that all pages share
            {key: metric[key] for key in ("name", "ideal") if metric[key] is not None}
            for metric in metrics
        ],
        "first": [name for name in wanted if name in names][:SHOWN_FIRST] or names[:6],
        "tables": _tables(run, limits),
        "cosines": _cosines(run, limits),
        "geometry": _geometry(run, limits),
        "certificate": guarantees(last),
        "toward": target_progress(to_target, to_etf),
        "warnings": run.alarms[-MAX_ALARMS:],
    }


def summary(run: RunFollower) -> dict[str, Any]:
    """Return name, state, health and progress of a run, for tables."""
    state = run.state
    return {
        "name": run.name,
        "path": run.path,
        "kind": run.manifest.kind,
        "state": state,
        "health": health_of(run.last_measurement() or None, state=state, alarms=run.alarms),
        "alarms": sum(bool(alarm.get("severe", True)) for alarm in run.alarms),
        "progress": run.progress,
        "why": str((run.end or {}).get("why") or ""),
        "records": sum(columns.count for columns in run.columns.values()),
    }


def describe(names: Iterable[str], classes: Any) -> list[dict[str, Any]]:
    """Return metrics in the order of the tables, with their meanings and values at collapse.

    >>> describe(["zeta", "min_intra"], 4)[0]
    {'name': 'min_intra', 'meaning': 'smallest mean cosine within a class', 'ideal': 1.0}
    """
    from nclab.metrics.catalogue import every_metric

    rank = {name: index for index, name in enumerate(every_metric())}
    rows = []
    for name in sorted(dict.fromkeys(names), key=lambda name: rank.get(name, len(rank))):
        metric = every_metric().get(name)
        ideal = None
        if metric and metric.ideal and isinstance(classes, int) and classes > 1:
            ideal = metric.ideal(classes)
        meaning = metric.meaning if metric else TARGET_MEANINGS.get(name, "")
        rows.append({"name": name, "meaning": meaning, "ideal": ideal})
    return rows


def _tables(run: RunFollower, limits: PageLimits) -> list[dict[str, Any]]:
    tables = []
    shown = run.axes()
    for kind, columns in run.columns.items():
        axes, values = columns.table(limits.points)
        shown_columns = [
            {"layer": layer, "metric": metric, "y": round_values(y)}
            for (layer, metric), y in values.items()
            if metric not in NOT_CURVES and any(value is not None for value in y)
        ]
        at = {AXES[name]: round_values(axes[name], 9) for name in AXES if name in shown}
        tables.append({"kind": kind, **at, "columns": shown_columns})
    return tables


def _cosines(run: RunFollower, limits: PageLimits) -> dict[str, Any] | None:
    """Return an animation of the cosines between classes in the last layer: a matrix per frame."""
    frames: list[dict[str, Any]] = []
    for record in run.measurements.records(limits.frames):
        matrix = last_layer(record).get("inter_cosine") or []
        flat = _fine(matrix, allow_none=True)
        if flat is not None and 0 < len(matrix) <= MAX_CLASSES:
            frames.append({**_moment(record), "values": flat})
    if not frames:
        return None
    size = round(len(frames[-1]["values"]) ** 0.5)
    names = list(class_names(last_layer(run.last_measurement())).values())
    named = {"names": names} if len(names) == size else {}
    return {"classes": size, "fine": FINE, "frames": frames, **named}


def _geometry(run: RunFollower, limits: PageLimits) -> list[dict[str, Any]]:
    """Return the animated 3-D pictures, one for each layer that has them."""
    by_layer: dict[str, list[dict[str, Any]]] = {}
    for record in run.geometry.records():
        by_layer.setdefault(str(record.get("layer") or ""), []).append(record)
    most = max(2, limits.frames // max(1, len(by_layer)))
    names = class_names(last_layer(run.last_measurement()))
    named = {"names": names} if names else {}
    return [
        {"layer": layer, "fine": FINE, "frames": frames, **named}
        for layer, records in by_layer.items()
        if (frames := _frames([records[n] for n in evenly(len(records), most)], limits.samples))
    ]


def _frames(records: list[dict[str, Any]], samples: int) -> list[dict[str, Any]]:
    """Return the frames of an animation; records with damaged or not finite numbers are skipped."""
    frames = []
    for record in records:
        labels, points = (record.get(name) or [] for name in ("labels", "points"))
        if not (isinstance(labels, list) and isinstance(points, list)):
            continue
        step = max(1, -(-len(points) // samples))
        vectors = {name: _fine(record.get(name) or []) for name in ("means", "weights", "etf")}
        vectors = {"points": _fine(points[::step]), **vectors}
        if None not in vectors.values():
            moment = {**_moment(record), "share": without_huge_numbers(record.get("share"))}
            frames.append({**moment, "labels": without_huge_numbers(labels[::step]), **vectors})
    return frames


def _moment(record: dict[str, Any]) -> dict[str, Any]:
    return {name: without_huge_numbers(record.get(name)) for name in ("epoch", "step")}


def _fine(rows: Any, *, allow_none: bool = False) -> list[int | None] | None:
    """Return the numbers of a matrix times `FINE` as one list of integers; None if it is invalid.

    >>> _fine([[0.5, 1.0]]), _fine([[0.5, None]]), _fine([[None]], allow_none=True), _fine([1])
    ([500, 1000], None, [None], None)
    """
    if not isinstance(rows, list) or not all(isinstance(row, list) for row in rows):
        return None
    flat = [value for row in rows for value in row]
    if not all(is_number(value) or (allow_none and value is None) for value in flat):
        return None
    return [None if value is None else round(value * FINE) for value in flat]


def round_values(values: Sequence[float | None], digits: int = 6) -> list[float | int | None]:
    """Return the values with as many digits as a screen can show.

    >>> round_values([0.123456789, 3.0, None])
    [0.123457, 3, None]
    """
    rounded: list[float | int | None] = []
    for value in values:
        if value is None or not math.isfinite(value):
            rounded.append(None)
            continue
        short = float(f"{value:.{digits}g}")
        rounded.append(int(short) if short.is_integer() and abs(short) < 1e15 else short)
    return rounded


def guarantees(measurement: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the certificate of the last layer as rows for a page, next to the measured values."""
    layer = last_layer(measurement)
    if _number(layer.get("balanced_loss")) is None:
        return None
    certificate, classes = layer.get("certificate"), _number(layer.get("num_classes"))
    if not isinstance(certificate, dict) or classes is None or classes < 2:
        notes = layer.get("notes")
        reason = notes.get("certificate") if isinstance(notes, dict) else None
        return {"rows": [], "words": str(reason or NO_CERTIFICATE), "classes": None}
    reasons = certificate.get("reasons")
    searched = not isinstance(reasons, dict) or reasons.get("inter_upper") != "not searched"
    rows = [
        {
            "quantity": name,
            "guaranteed": _number(certificate.get(bound)),
            "otherwise": "nothing" if searched or bound != "inter_upper" else "not searched",
            "measured": _number(layer.get(metric)),
            "thesis": _number(certificate.get(f"thesis_{bound}")),
            "collapse": -1 / (classes - 1) if bound == "inter_upper" else 1.0,
        }
        for name, bound, metric in BOUNDS
    ]
    if (within := _number(certificate.get("within_upper"))) is not None:
        rows.append(
            {
                "quantity": "within-class share of the variance ≤",
                "guaranteed": within,
                "otherwise": "nothing",
                "measured": _number(certificate.get("within_share")),
                "thesis": None,
                "collapse": 0.0,
            }
        )
    bounds, measured = certificate.get("class_intra_lower"), layer.get("intra_cosine")
    numbers = map(_number, bounds if isinstance(bounds, list) else [])
    guaranteed = [value for value in numbers if value is not None]
    by_class: dict[str, Any] | None = None
    if guaranteed and measured:
        by_class = {"guaranteed": guaranteed, "measured": measured}
        names = list(class_names(layer).values())
        by_class |= {"names": names} if len(names) == len(guaranteed) else {}
    return {"rows": rows, "words": _explain(certificate, guaranteed), "classes": by_class}


def class_names(layer: Mapping[str, Any]) -> dict[str, str]:
    """Return the names of the measured classes by number; empty if the record has no names.

    >>> class_names({"classes": [0, 2], "class_names": ["cat", "fox"]})
    {'0': 'cat', '2': 'fox'}
    """
    numbers, names = layer.get("classes"), layer.get("class_names")
    if not (isinstance(numbers, list) and isinstance(names, list) and len(numbers) == len(names)):
        return {}
    return {str(number): str(name) for number, name in zip(numbers, names, strict=True)}


def _explain(certificate: Mapping[str, Any], class_bounds: list[float]) -> str:
    """Explain a certificate in sentences; `class_bounds` bound the cosines within each class."""
    excess = _number(certificate.get("excess_loss")) or 0.0
    loss = f"The loss is {excess:.3g} above the lowest loss that these norms allow"
    if (by_samples := _number(certificate.get("samples_excess_loss"))) is not None:
        loss += " if every class has equal weight, "
        loss += f"and at most {by_samples:.3g} above it if every sample has"
    rho, alignment = _number(certificate.get("alignment_lower")), NO_GUARANTEE
    if rho is not None:
        alignment = f"Every class mean has a cosine of at least {rho:.4f} with its classifier row."
    text = f"{loss}. {alignment}"
    mean = sum(class_bounds) / max(len(class_bounds), 1)
    if mean > 0:
        text += " From the loss of each class follows a cosine within the class of at least "
        text += f"{mean:.4f} on average over classes."
    return text


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) else None


def with_axes(rows: list[dict[str, Any]], metrics: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the table that compares runs: rows with the settings in which runs differ."""
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
    """Add defaults to the settings of runs of a sweep.

    A manifest omits an option that has its default value. The default is added if another run in
    the table names the option.
    """
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
    """Return the settings with more than one value, each with its shortest unique name.

    If settings always change together, only the first is returned. The seed comes last.

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
    for key in sorted(run.names(), key=lambda key: not key[0]):  # layers before the whole network
        layer, metric = key
        data = layer.rpartition(" · ")[2] if " · " in layer else ""
        if layer in last or (not layer and metric not in values):
            values[f"{metric} · {data}" if data else metric] = run.newest(key)
    return dict(zip(values, round_values(list(values.values())), strict=True))


def describe_all(runs: Mapping[str, RunFollower]) -> list[dict[str, Any]]:
    """Return every metric of the runs with its meaning, the most common metrics first."""
    names = (metric for run in runs.values() for _, metric in run.names())
    classes = {last_layer(run.last_measurement()).get("num_classes") for run in runs.values()}
    classes -= {None}
    metrics = describe(names, classes.pop() if len(classes) == 1 else None)
    rank = {name: index for index, name in enumerate((*COMPARED_FIRST, *FIRST, *FIRST_OF_SAMPLES))}
    return sorted(metrics, key=lambda metric: rank.get(metric["name"], len(rank)))


def curves(runs: Mapping[str, RunFollower]) -> dict[str, dict[str, Any]]:
    """Return all curves of the last layers by metric.

    Many curves share their x values. Each list of x values is stored once, under `at`, and curves
    contain its index.
    """
    files: dict[str, dict[str, Any]] = {}
    for slug, run in runs.items():
        last = ("", *run.last_layers())
        shown = run.axes()
        for columns in run.columns.values():
            axes, values = columns.table(POINTS)
            at = {name: tuple(round_values(axes[name], 9)) for name in shown if columns.has(name)}
            for (layer, metric), y in values.items():
                if layer not in last or not any(value is not None for value in y):
                    continue
                # `at` maps each list of x values to its index.
                file = files.setdefault(metric, {"at": {}, "runs": {}})
                indices = {
                    AXES[name]: file["at"].setdefault(column, len(file["at"]))
                    for name, column in at.items()
                }
                by_layer = file["runs"].setdefault(slug, {})
                # Keep the kind of records with the most points.
                if layer not in by_layer or len(by_layer[layer]["y"]) < len(y):
                    by_layer[layer] = {"layer": layer, "at": indices, "y": round_values(y)}
    for file in files.values():
        file["at"] = list(file["at"])
        file["runs"] = {slug: list(by_layer.values()) for slug, by_layer in file["runs"].items()}
    return files
