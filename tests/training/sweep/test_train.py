"""Sweeps over worker processes: reuse, equal groups, error messages."""

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import nclab
from nclab.engine import Job, ReportStep, run_jobs
from nclab.errors import MissingExtra, NclabError
from nclab.records import open_run, read_run
from nclab.training.data.artificial import ConicHull
from nclab.training.data.selection import SampleSelection
from nclab.training.fleet import Recipe
from nclab.training.models.mlp import Shape
from nclab.training.sweep import train, train_sweep
from nclab.training.sweep.train import deal
from tests.training.sweep.small import contents, small

KEYS = ["norm", "weight_decay", "seed", "accuracy", "loss", "min_intra", "max_inter", "alpha"]
KEYS += ["beta", "converged", "run", "data", "mean_intra", "centred_max_inter", "excess_loss"]


@pytest.mark.usefixtures("forked_workers")
def test_numbers_do_not_depend_on_the_number_of_workers(tmp_path: Path) -> None:
    config = small()
    serial = train_sweep(config, tmp_path / "serial", workers=0)
    parallel = train_sweep(config, tmp_path / "parallel", workers=2)
    assert serial == parallel
    assert contents(tmp_path / "serial") == contents(tmp_path / "parallel")
    members = [(member.norm, member.weight_decay, member.seed) for member in config.members]
    assert [(row["norm"], row["weight_decay"], row["seed"]) for row in serial] == members
    assert all(set(KEYS) <= set(row) for row in serial)


def test_ended_runs_are_reused_and_new_ones_added(tmp_path: Path) -> None:
    first = train_sweep(small(weight_decays=(1e-3,)), tmp_path, workers=0)
    before = contents(tmp_path)
    times = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*.safetensors")}
    time.sleep(0.02)
    both = train_sweep(small(), tmp_path, workers=0)
    assert [row for row in both if row["weight_decay"] == 1e-3] == first
    assert {name: contents(tmp_path)[name] for name in before} == before
    assert all(file.stat().st_mtime_ns == moment for file, moment in times.items())


def test_easy_data_converge_and_collapse(tmp_path: Path) -> None:
    config = small(
        data=ConicHull(samples=400, inputs=4),
        shape=Shape(layers=3, width=32),
        norms=("affine",),
        weight_decays=(5e-3, 0.5),
        recipe=Recipe(epochs=40, batch=50),
        moments=1,
        checkpoint_every=None,
    )
    good, crushed = train_sweep(config, tmp_path, workers=0)
    assert good["converged"] is True
    assert good["min_intra"] > 0.5 > 0 > good["max_inter"]
    assert crushed["converged"] is False
    assert crushed["why"] is None


def test_a_folder_in_use_raises_one_line(tmp_path: Path) -> None:
    config = small()
    plan = config.plan(config.data.draw())[0]
    with (
        open_run(tmp_path / plan.name, kind="fleet", config=plan.config, seed=plan.member.seed),
        pytest.raises(nclab.NclabError, match="in use") as caught,
    ):
        train_sweep(config, tmp_path, workers=0)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("device", ["tpu", "cuda:99:1"])
def test_an_unknown_device_raises(tmp_path: Path, device: str) -> None:
    with pytest.raises(nclab.NclabError, match="Expected device"):
        train_sweep(small(), tmp_path, device=device)


def test_last_batches_of_one_sample_raise_before_any_run(tmp_path: Path) -> None:
    with pytest.raises(nclab.NclabError, match="leave one of 1"):
        train_sweep(small(recipe=Recipe(epochs=1, batch=43)), tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("members", "group_count", "sizes"), [(7, 2, [4, 3]), (2, 5, [1, 1]), (0, 2, [])]
)
def test_groups_are_of_equal_size(members: int, group_count: int, sizes: list[int]) -> None:
    config = small(norms=("affine",), weight_decays=tuple(float(n) for n in range(1, 8)))
    plans = config.plan(config.data.draw())[:members]
    dealt = deal(plans, group_count)
    assert [len(members_of_group) for members_of_group in dealt] == sizes
    assert {plan.name for members_of_group in dealt for plan in members_of_group} == {
        plan.name for plan in plans
    }


def test_groups_are_small_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train, "group_size", lambda shape: 3)
    groups = []
    monkeypatch.setattr(train, "train_group", lambda report, group: groups.append(len(group.plans)))
    with pytest.raises(NclabError, match="has no manifest"):
        train_sweep(small(seeds=(0, 1)), tmp_path / "runs", workers=0)
    assert groups == [3, 3, 2]


def test_options_appear_in_the_name_and_the_row(tmp_path: Path) -> None:
    recipe = {"optimizer": "adamw", "loss": "mse", "schedule": "cosine", "head_bias_decay": 0.1}
    config = small(
        data=ConicHull(samples=60, inputs=4),
        selection=SampleSelection(imbalance=2, label_noise=0.1, test_share=0.2),
        shape=Shape(layers=3, width=8, features=3, activation="gelu"),
        norms=("affine",),
        weight_decays=(1e-3,),
        recipe=Recipe(epochs=8, batch=16, rate=1e-3, **recipe),  # type: ignore[arg-type]
    )
    [row] = train_sweep(config, tmp_path, workers=0)
    expected = {"features": 3, "activation": "gelu", "imbalance": 2, "label_noise": 0.1, **recipe}
    expected["objective"] = expected.pop("loss")  # `loss` is measured, whatever is trained
    assert {name: row[name] for name in expected} == expected
    assert type(row["loss"]) is float
    assert row["run"].startswith("conic_L3_w8_adamw_mse_affine_wd1e-3_s0_")
    assert 0 <= row["test_accuracy"] <= 1
    assert row["trained_loss"] != row["loss"]
    run = read_run(tmp_path / row["run"])
    splits = [record.get("split") for record in run.of_kind("measurement")]
    assert splits == [None, "test"] * len(config.measured_epochs)
    plain = small(data=ConicHull(samples=60, inputs=4))
    [usual, *_] = train_sweep(plain, tmp_path, workers=0)
    assert not {"test_accuracy", "trained_loss", "optimizer", "imbalance"} & set(usual)


def too_large_for_torch(report: ReportStep) -> None:
    torch.empty(1 << 60)


def too_large_for_numpy(report: ReportStep) -> None:
    np.empty(1 << 57)


def lacks_a_package(report: ReportStep) -> None:
    raise MissingExtra("The job", package="lightning")


@pytest.mark.parametrize(
    ("job", "text"),
    [
        (too_large_for_torch, "Expected enough memory for it"),
        (too_large_for_numpy, "Expected enough memory for it"),
        (lacks_a_package, "^The job needs lightning. Run"),
    ],
)
def test_errors_that_a_user_can_correct_are_one_line(job: Callable[..., None], text: str) -> None:
    [result] = run_jobs([Job("it", job)], workers=0)
    with pytest.raises(NclabError, match=text) as caught:
        train._raise_failure(result)
    assert "\n" not in str(caught.value)
