"""A group continues from the checkpoints of its members and ends with the same bytes."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nclab.engine import ReportStep
from nclab.errors import NclabWarning
from nclab.records import find_runs, read_run
from nclab.training.fleet import Recipe
from nclab.training.models.mlp import Shape
from nclab.training.sweep.config import SweepConfig
from nclab.training.sweep.group import Group, resume_points, train_group
from nclab.training.sweep.rows import rows_of
from tests.training.sweep.small import contents, small

STEPS = 5  # of an epoch: 130 samples in batches of 32


def ignore(*progress: object) -> None:
    """Ignore progress."""


class Stop(Exception):
    """Error that simulates a kill."""


def group_of(out: Path, config: SweepConfig | None = None) -> Group:
    """Return all members of a sweep in one group."""
    config = config or small()
    samples = config.data.draw()
    return Group(config, tuple(config.plan(samples)), samples, out)


def stop_after(epochs: int) -> ReportStep:
    """Return a callback that raises after some epochs; its first call reports resumed steps."""
    calls = []

    def report(steps: int, total: int) -> None:
        calls.append(steps)
        if len(calls) > epochs:
            raise Stop

    return report


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the small sweep, trained without interruption."""
    out = tmp_path_factory.mktemp("undisturbed")
    train_group(ignore, group_of(out))
    return out


def test_records_and_checkpoints_of_a_run(undisturbed: Path) -> None:
    group = group_of(undisturbed)
    run = read_run(undisturbed / group.plans[0].name)
    assert run.state == "finished"
    assert [record["epoch"] for record in run.of_kind("epoch")] == list(range(1, 9))
    measured = run.of_kind("measurement")
    assert [record["epoch"] for record in measured] == group.config.measured_epochs == [1, 3, 8]
    assert measured[-1]["step"] == 8 * STEPS
    assert measured[-1]["layers"][0]["layer"] == "hidden.1"
    assert set(measured[-1]["train"]) == {"loss", "accuracy", "rate"}
    pictures = run.of_kind("geometry")
    assert [record["epoch"] for record in pictures] == [1, 3, 8]
    assert pictures[0]["layer"] == "hidden.1"
    kept = sorted(file.name for file in (run.folder / "checkpoints").iterdir())
    assert kept == ["step-000000030.safetensors", "step-000000040.safetensors"]
    assert run.end is not None
    assert run.end["min_intra"] == measured[-1]["layers"][0]["min_intra"]


@pytest.mark.parametrize("epochs", [0, 1, 4, 7])
def test_a_stopped_group_resumes_to_the_same_bytes(
    undisturbed: Path, tmp_path: Path, epochs: int
) -> None:
    with pytest.raises(Stop):
        train_group(stop_after(epochs), group_of(tmp_path))
    train_group(ignore, group_of(tmp_path))
    assert contents(tmp_path) == contents(undisturbed)


def test_members_may_resume_in_other_groups(undisturbed: Path, tmp_path: Path) -> None:
    group = group_of(tmp_path)
    with pytest.raises(Stop):
        train_group(stop_after(7), replace(group, plans=group.plans[:2]))
    with pytest.raises(Stop):
        train_group(stop_after(3), replace(group, plans=group.plans[2:3]))
    train_group(ignore, group)
    assert contents(tmp_path) == contents(undisturbed)


def test_a_damaged_checkpoint_is_skipped_with_a_warning(undisturbed: Path, tmp_path: Path) -> None:
    group = group_of(tmp_path)
    with pytest.raises(Stop):
        train_group(stop_after(7), group)
    file = tmp_path / group.plans[1].name / "checkpoints" / "step-000000030.safetensors"
    content = bytearray(file.read_bytes())
    content[-3] ^= 0xFF
    file.write_bytes(content)
    with pytest.warns(NclabWarning, match="damaged"):
        train_group(ignore, group)
    assert contents(tmp_path) == contents(undisturbed)


def test_runs_killed_just_before_their_end(undisturbed: Path, tmp_path: Path) -> None:
    shutil.copytree(undisturbed, tmp_path, dirs_exist_ok=True)
    group = group_of(tmp_path)
    for plan in group.plans:
        journal = tmp_path / plan.name / "journal.jsonl"
        lines = journal.read_bytes().splitlines(keepends=True)
        assert b'"kind":"end"' in lines[-1]
        journal.write_bytes(b"".join(lines[:-1]))
    train_group(ignore, group)
    assert contents(tmp_path) == contents(undisturbed)


@pytest.fixture(scope="module")
def divergent(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, SweepConfig]:
    """Folder and config of a sweep with a member that diverges by its large weight decay."""
    recipe = Recipe(epochs=8, batch=32, milestones=())
    config = small(norms=("affine",), weight_decays=(1e-3, 700.0), recipe=recipe)
    out = tmp_path_factory.mktemp("divergent")
    train_group(ignore, group_of(out, config))
    return out, config


def test_a_diverged_member_has_a_reason_and_the_others_continue(
    divergent: tuple[Path, SweepConfig],
) -> None:
    out, config = divergent
    good, bad = rows_of(out, [plan.name for plan in group_of(out, config).plans])
    assert bad["converged"] is False
    assert "became" in bad["why"]
    assert 0 < bad["epoch"] < 8
    assert bad["loss"] is not None
    assert good["why"] is None
    assert good["epoch"] == 8


def test_a_diverged_member_resumes_to_the_same_end(
    divergent: tuple[Path, SweepConfig], tmp_path: Path
) -> None:
    out, config = divergent
    group = group_of(tmp_path, config)
    shutil.copytree(out, tmp_path, dirs_exist_ok=True)
    journal = tmp_path / group.plans[1].name / "journal.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:-1]))  # killed between checkpoint and end
    train_group(ignore, replace(group, plans=group.plans[1:]))
    assert contents(tmp_path) == contents(out)
    shutil.rmtree(tmp_path / group.plans[1].name)
    train_group(ignore, replace(group, plans=group.plans[1:]))  # and alone it diverges likewise
    assert contents(tmp_path) == contents(out)


def test_features_without_geometry_have_a_reason(tmp_path: Path) -> None:
    config = small(shape=Shape(layers=3, width=1), norms=("none",), weight_decays=(1e-3,))
    group = group_of(tmp_path, config)
    train_group(ignore, group)
    [row] = rows_of(tmp_path, [group.plans[0].name])
    assert "On a line" in row["why"]
    assert row["min_intra"] is None
    assert row["converged"] is False


def test_the_callback_gets_all_model_steps(tmp_path: Path) -> None:
    group = group_of(tmp_path)
    calls: list[tuple[int, int]] = []
    train_group(lambda *progress: calls.append(progress), group)
    assert calls[-1] == (group.total, group.total)
    assert group.total == 4 * 8 * STEPS


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([[], []], [(0, [0, 1])]),
        ([[10], []], [(0, [1]), (10, [0])]),
        ([[10, 20], [10, 15]], [(10, [0, 1])]),
        ([[5], [7], [7]], [(5, [0]), (7, [1, 2])]),
    ],
)
def test_resume_points(steps: list[list[int]], expected: Any) -> None:
    assert list(resume_points(steps)) == expected


def test_the_backend_is_recorded_outside_the_config(undisturbed: Path) -> None:
    manifests = [read_run(folder).manifest for folder in find_runs(undisturbed)]
    assert {manifest.backend for manifest in manifests} <= {"kernel", "torch"}
    assert not any("backend" in manifest.config for manifest in manifests)
