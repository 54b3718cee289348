"""Sweeps with several values: combinations, resuming, extending, the table of results."""

import csv
import dataclasses
import itertools
from pathlib import Path
from typing import Any

import pytest

from nclab.engine import ReportStep
from nclab.errors import NclabError
from nclab.records.schema import OMITTED_DEFAULTS, completed, stored
from nclab.training.data.artificial import ConicHull, Teacher
from nclab.training.sweep import (
    Axes,
    SweepConfig,
    plan_sweep,
    results,
    train,
    train_sweep,
    write_results,
)
from nclab.training.sweep.config import ALWAYS_STORED
from nclab.training.sweep.group import Group, train_group
from tests.training.sweep.small import contents, small

ONE: dict[str, Any] = {"norms": ("affine",), "weight_decays": (1e-3,)}
VALUES: dict[str, Any] = {
    "recipe.optimizer": ("sgd", "adamw"),
    "recipe.loss": ("cross_entropy", "focal"),
    "shape.width": (4, 8),
    "selection.imbalance": (1.0, 2.0),
}


def test_every_combination_is_a_config() -> None:
    combinations = [
        (fleet.recipe.optimizer, fleet.recipe.loss, fleet.shape.width, fleet.selection.imbalance)
        for fleet in Axes(small(), VALUES).configs
    ]
    assert combinations == list(itertools.product(*VALUES.values()))
    assert Axes(small()).configs == [small()]


def test_data_vary_as_sources_and_by_field() -> None:
    axes = {"data.samples": (130, 140), "data": (Teacher(inputs=8), ConicHull(inputs=8))}
    sources = [config.data for config in Axes(small(), axes).configs]
    combinations = [(type(data), data.samples) for data in sources]  # type: ignore[union-attr]
    kinds = (Teacher, ConicHull)
    assert combinations == [(kind, size) for size in (130, 140) for kind in kinds]


def test_fields_that_are_not_read_are_no_axes() -> None:
    values = {"recipe.optimizer": ("sgd", "adam"), "recipe.beta2": (0.9, 0.99)}
    combinations = [
        (config.recipe.optimizer, config.recipe.beta2) for config in Axes(small(), values).configs
    ]
    assert combinations == [("sgd", 0.999), ("adam", 0.9), ("adam", 0.99)]
    plain = small().plan(small().data.draw())[0].name
    first = Axes(small(), values).configs[0]
    assert first.plan(first.data.draw())[0].name == plain
    tails = {"selection.imbalance": (1.0, 3.0), "selection.tail": ("step", "exponential")}
    assert len(Axes(small(), tails).configs) == 3
    moving = {"recipe.nesterov": (True, False), "recipe.momentum": (0.0, 0.9)}
    with pytest.raises(NclabError, match="nesterov with sgd or sgdw and a momentum"):
        Axes(small(), moving)
    assert len(Axes(small(), {**moving, "recipe.momentum": (0.5, 0.9)}).configs) == 4


@pytest.mark.parametrize(
    ("values", "pattern"),
    [
        (
            {"rate": (0.1,)},
            "fields of data, selection, shape, recipe, for example 'recipe.rate'; got 'rate'",
        ),
        ({"seeds": (1, 2)}, "got 'seeds'"),
        ({"recipe": (1, 2)}, "got 'recipe'"),
        ({"recipe.speed": (1, 2)}, "field of Recipe .*, got 'speed'"),
        ({"data.cones": (1, 2)}, "field of Teacher .*, got 'cones'"),
        ({"shape.classes": (2, 3)}, "Expected 'data.classes' as an axis"),
        ({"recipe.rate": ()}, "list of values of recipe.rate"),
        ({"recipe.rate": 0.1}, "list of values of recipe.rate, got 0.1"),
        ({"recipe.loss": "mse"}, "list of values of recipe.loss, got 'mse'"),
        ({"recipe.rate": (0.1, 0.1)}, "without repetition"),
        ({"recipe.optimizer": ("sgd", "lion")}, "got 'lion'"),
        ({"shape.width": (8, 0)}, "width to be an integer of at least 1, got 0"),
    ],
)
def test_bad_axes_raise_one_clear_line(values: dict[str, Any], pattern: str) -> None:
    with pytest.raises(NclabError, match=pattern) as caught:
        Axes(small(), values)
    assert "\n" not in str(caught.value)


def test_a_sweep_equals_its_fleets_and_can_be_extended(tmp_path: Path) -> None:
    """Separate, joint and extended sweeps give equal bytes; only missing runs are trained."""
    config = small(**ONE)
    short = Axes(config, {"recipe.optimizer": ("sgd",), "shape.width": (4, 8)})
    long = Axes(config, {"recipe.optimizer": ("sgd", "adam"), "shape.width": (4, 8)})
    first = train_sweep(short, tmp_path / "a", workers=0)
    before = {file: file.stat().st_mtime_ns for file in (tmp_path / "a").rglob("*.safetensors")}
    plan = plan_sweep(long, tmp_path / "a")
    assert (len(plan.runs), len(plan.missing), len(plan.fleets)) == (4, 2, 4)
    rows = train_sweep(long, tmp_path / "a", workers=0)
    assert all(file.stat().st_mtime_ns == moment for file, moment in before.items())
    assert [(row["optimizer"], row["width"]) for row in rows] == [
        ("sgd", 4),
        ("sgd", 8),
        ("adam", 4),
        ("adam", 8),
    ]
    assert [row["run"] for row in rows[:2]] == [row["run"] for row in first]
    for config in long.configs:
        train_sweep(config, tmp_path / "b", workers=0)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    assert train_sweep([*short.configs, *long.configs], tmp_path / "a", workers=0) == rows


def test_a_stopped_sweep_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    axes = Axes(small(**ONE), {"recipe.optimizer": ("sgd", "adam")})
    undisturbed = train_sweep(axes, tmp_path / "undisturbed", workers=0)

    def interrupted(report: ReportStep, group: Group) -> None:
        def counted(steps: int, total: int) -> None:
            if steps > total // 2:
                raise NclabError("The lights went out.")
            report(steps, total)

        train_group(counted, group)

    with monkeypatch.context() as patched:
        patched.setattr(train, "train_group", interrupted)
        with pytest.raises(NclabError, match="lights"):
            train_sweep(axes, tmp_path / "cut", workers=0)
    assert len(plan_sweep(axes, tmp_path / "cut").missing) == 2
    assert all((tmp_path / "cut" / row["run"]).is_dir() for row in undisturbed)
    assert train_sweep(axes, tmp_path / "cut", workers=0) == undisturbed
    assert contents(tmp_path / "cut") == contents(tmp_path / "undisturbed")


def test_the_table_has_a_column_for_every_setting(tmp_path: Path) -> None:
    axes = Axes(small(**ONE), {"recipe.loss": ("cross_entropy", "mse")})
    train_sweep(axes, tmp_path, workers=0)
    rows = results(tmp_path)
    assert {row["objective"] for row in rows} == {"cross_entropy", "mse"}
    assert all(type(row["loss"]) is float for row in rows)
    assert {(row["optimizer"], row["imbalance"], row["data_depth"]) for row in rows} == {
        ("sgd", 1.0, 3)
    }
    assert set(rows[0]) == set(rows[1]) >= {"trained_loss", "seed", "norm", "milestones", "run"}
    files = write_results(tmp_path)
    read = list(csv.DictReader((tmp_path / "results.csv").read_text().splitlines()))
    assert [row["run"] for row in read] == [row["run"] for row in rows]
    assert [float(row["min_intra"]) for row in read] == [row["min_intra"] for row in rows]
    parquet = pytest.importorskip("pyarrow.parquet")
    assert [file.name for file in files] == ["results.csv", "results.parquet"]
    assert parquet.read_table(tmp_path / "results.parquet").to_pylist() == rows


def test_a_plan_is_printed_and_writes_nothing(tmp_path: Path) -> None:
    axes = Axes(small(seeds=(0, 1)), {"recipe.optimizer": ("sgd", "adamw")})
    plan = plan_sweep(axes, tmp_path / "runs")
    assert plan.to_dict() | {"axes": None} == {
        "networks": 16,
        "missing": 16,
        "fleets": 2,
        "axes": None,
    }
    assert plan.axes["optimizer"] == ["sgd", "adamw"]
    assert plan.axes["weight_decay"] == [1e-3, 1e-2]
    assert plan.axes["seed"] == [0, 1]
    assert str(plan).endswith("16 networks in 2 fleets")
    assert not (tmp_path / "runs").exists()
    train_sweep(axes, tmp_path / "runs", workers=0)
    again = str(plan_sweep(axes, tmp_path / "runs"))
    assert again.endswith("16 networks in 2 fleets, 16 already trained")


def test_omitted_options_have_the_defaults_of_the_format() -> None:
    """Names of runs are hashes of the stored options, so neither side may change."""
    config = SweepConfig()
    combinations: dict[str, Any] = {}
    parts: dict[str, Any] = {
        "shape": config.shape,
        "recipe": config.recipe,
        "data.selection": config.selection,
    }
    for part, config in parts.items():
        values = stored(dataclasses.asdict(config))
        combinations |= {
            f"{part}.{k}": v
            for k, v in stored(values).items()
            if k not in ALWAYS_STORED.get(part, ())
        }
    assert {**combinations, "shape.model": "mlp"} == OMITTED_DEFAULTS
    [first, *_] = small().plan(small().data.draw())
    assert completed(first.config)["recipe"]["loss"] == "cross_entropy"
    assert "loss" not in first.config["recipe"]
