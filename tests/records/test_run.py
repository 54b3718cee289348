"""A run that is stopped at any moment continues as if it had not been stopped."""

import json
import re
import shutil
from pathlib import Path

import pytest
import torch

import nclab
from nclab.errors import NclabError, NclabWarning
from nclab.records import Run, open_run, read_run
from nclab.records.encoding import dump_checked_json
from nclab.records.manifest import commit, cpu

CONFIG = {"rate": 0.1, "shape": {"width": 64, "norm": "affine"}}


def start(folder: Path, **changes: object) -> Run:
    options = {"kind": "demo", "config": CONFIG, "seed": 0} | changes
    return open_run(folder, **options)  # type: ignore[arg-type]


def weights(step: int) -> dict[str, torch.Tensor]:
    return {"weight": torch.full((3, 2), float(step)), "state": torch.arange(5).byte()}


def three_checkpoints(folder: Path) -> bytes:
    """Write steps 10, 20 and 30 with a record each; return the bytes of the journal."""
    with start(folder) as run:
        for step in (10, 20, 30):
            run.append({"kind": "measurement", "step": step, "loss": 1 / step})
            run.checkpoint(step, weights(step), {"best": 0.1 * step})
    return (folder / "journal.jsonl").read_bytes()


def test_the_manifest_records_the_environment(tmp_path: Path) -> None:
    with start(tmp_path / "one") as run:
        manifest = run.manifest
    stored = json.loads((tmp_path / "one" / "manifest.json").read_text())
    assert stored.pop("check")
    assert stored == manifest.to_dict()
    assert stored["schema"] == 3
    assert stored["name"] == "one"
    assert (stored["kind"], stored["config"], stored["seed"]) == ("demo", CONFIG, 0)
    assert stored["created"].endswith("+00:00")
    assert {"python", "torch", "numpy", "nclab"} <= set(stored["versions"])
    assert {"commit", "device", "command"} <= set(stored)


def test_reopening_keeps_the_manifest(tmp_path: Path) -> None:
    start(tmp_path).close()
    before = (tmp_path / "manifest.json").read_bytes()
    start(tmp_path, config={**CONFIG, "rate": 0.1}).close()
    assert (tmp_path / "manifest.json").read_bytes() == before


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"config": {**CONFIG, "rate": 0.2}}, "config.rate: 0.1 before, 0.2 now"),
        ({"config": {"rate": 0.1}}, "config.shape: .* before, absent now"),
        ({"config": {**CONFIG, "new": 1}}, "config.new: absent before, 1 now"),
        ({"seed": 1}, "seed: 0 before, 1 now"),
        ({"kind": "other"}, 'kind: "demo" before, "other" now'),
    ],
)
def test_another_run_is_refused(tmp_path: Path, changes: dict[str, object], words: str) -> None:
    start(tmp_path).close()
    with pytest.raises(NclabError, match=words):
        start(tmp_path, **changes)
    start(tmp_path).close()  # a refusal leaves the lock free


def test_a_run_resumes_at_its_last_checkpoint(tmp_path: Path) -> None:
    three_checkpoints(tmp_path)
    with start(tmp_path) as run:
        run.append({"kind": "measurement", "step": 35, "loss": 0.0})
        assert run.steps() == [20, 30]  # the last two are kept
        found = run.resume(30)
    assert found is not None
    assert (found.step, found.extra) == (30, {"best": 3.0})
    assert torch.equal(found.tensors["weight"], weights(30)["weight"])
    assert found.tensors["state"].dtype == torch.uint8
    assert [r["step"] for r in read_run(tmp_path).records] == [10, 20, 30]


def test_resuming_an_older_checkpoint_deletes_newer_ones(tmp_path: Path) -> None:
    whole = three_checkpoints(tmp_path)
    with start(tmp_path) as run:
        assert run.resume(20) is not None
        assert run.steps() == [20]
        run.append({"kind": "measurement", "step": 30, "loss": 1 / 30})
        run.checkpoint(30, weights(30), {"best": 3.0})
    assert (tmp_path / "journal.jsonl").read_bytes() == whole


def test_starting_again_deletes_everything(tmp_path: Path) -> None:
    three_checkpoints(tmp_path)
    with start(tmp_path) as run:
        assert run.resume(None) is None
        assert run.steps() == []
    assert read_run(tmp_path).records == []


def test_equal_checkpoints_are_equal_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        three_checkpoints(tmp_path / name)
    for file in ("step-000000020", "step-000000030"):
        first, second = (tmp_path / n / "checkpoints" / f"{file}.safetensors" for n in "ab")
        assert first.read_bytes() == second.read_bytes()


def test_views_of_one_tensor_are_stored(tmp_path: Path) -> None:
    stack = torch.randn(4, 3, 3)
    with start(tmp_path) as run:
        run.checkpoint(1, {"a": stack[0], "b": stack[1].T, "c": stack[0], "one": torch.tensor(2.0)})
        found = run.resume_latest()
    assert found is not None
    assert torch.equal(found.tensors["b"], stack[1].T)
    assert torch.equal(found.tensors["c"], stack[0])
    assert found.tensors["one"] == 2.0


def test_a_finished_run_accepts_no_records(tmp_path: Path) -> None:
    three_checkpoints(tmp_path)
    with start(tmp_path) as run:
        assert not run.finished
        run.finish(accuracy=1.0)
        assert run.finished
    with start(tmp_path) as run:
        assert run.finished
        assert run.end == {"kind": "end", "state": "finished", "accuracy": 1.0}
        with pytest.raises(NclabError, match="is finished"):
            run.append({"kind": "measurement", "step": 40})
        run.resume(30)  # unless it is taken back
        run.append({"kind": "measurement", "step": 40})


def test_a_failed_run_is_not_finished(tmp_path: Path) -> None:
    with start(tmp_path) as run:
        run.fail("the loss is not finite", step=7)
        assert not run.finished
    assert read_run(tmp_path).state == "failed"
    assert read_run(tmp_path).records[-1]["why"] == "the loss is not finite"


def test_numbers_that_are_not_finite_become_null(tmp_path: Path) -> None:
    with start(tmp_path) as run:
        run.append({"kind": "m", "loss": float("nan"), "layers": [{"a": [1.0, float("inf")]}]})
        run.append({"kind": "m", "loss": torch.tensor([0.5, float("nan")])})
    assert read_run(tmp_path).records == [
        {"kind": "m", "loss": None, "layers": [{"a": [1.0, None]}]},
        {"kind": "m", "loss": [0.5, None]},
    ]


def test_nan_is_refused_in_config_and_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(NclabError, match="finite"):
        start(tmp_path / "a", config={"rate": float("nan")})
    with start(tmp_path / "b") as run, pytest.raises(NclabError, match="finite"):
        run.checkpoint(1, weights(1), {"best": float("inf")})


def test_a_record_needs_a_kind_and_plain_values(tmp_path: Path) -> None:
    with start(tmp_path) as run:
        with pytest.raises(NclabError, match="kind"):
            run.append({"step": 1})
        with pytest.raises(NclabError, match=r"got set in a\.b"):
            run.append({"kind": "m", "a": {"b": {1, 2}}})
    assert read_run(tmp_path).records == []


def test_a_closed_run_is_closed(tmp_path: Path) -> None:
    run = start(tmp_path)
    run.close()
    run.close()
    with pytest.raises(NclabError, match="closed"):
        run.append({"kind": "m"})


def test_the_commit_is_that_of_the_source_tree(tmp_path: Path) -> None:
    tree = Path(nclab.__file__).resolve().parents[2]
    found = commit()
    if (tree / ".git").exists() and shutil.which("git"):
        assert found is None or re.fullmatch(r"[0-9a-f]{40,64}(-dirty)?", found)
    else:
        assert found is None


def test_a_tree_without_git_has_no_commit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    commit.cache_clear()
    assert commit() is None
    commit.cache_clear()


def test_another_version_is_warned_of(tmp_path: Path) -> None:
    start(tmp_path).close()
    path = tmp_path / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["versions"]["torch"] = "1.0"
    del manifest["check"]
    path.write_bytes(dump_checked_json(manifest))
    with pytest.warns(NclabWarning, match='torch: "1.0" before'):
        start(tmp_path).close()


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ({"device": "cuda"}, 'device: "cpu" before, "cuda" now'),
        ({"backend": "torch"}, 'backend: "kernel" before, "torch" now'),
    ],
)
def test_another_device_or_backend_is_warned_of(
    tmp_path: Path, part: dict[str, str], words: str
) -> None:
    start(tmp_path, backend="kernel").close()
    with pytest.warns(NclabWarning, match=words):
        start(tmp_path, **{"backend": "kernel", **part}).close()
    start(tmp_path, backend="kernel").close()


def test_another_cpu_is_warned_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other vector instructions round differently; the run continues with a warning."""

    def start_with(instructions: str) -> None:
        monkeypatch.setenv("ATEN_CPU_CAPABILITY", instructions)
        cpu.cache_clear()
        try:
            start(tmp_path).close()
        finally:
            cpu.cache_clear()

    start_with("avx2")
    begun = str(read_run(tmp_path).manifest.cpu)
    assert begun.endswith(", avx2")
    with pytest.warns(NclabWarning, match=re.escape(f'cpu: "{begun}" before')):
        start_with("default")
    start_with("avx2")


def test_a_run_older_than_backends_is_resumed(tmp_path: Path) -> None:
    start(tmp_path, backend="kernel").close()
    path = tmp_path / "manifest.json"
    manifest = json.loads(path.read_text())
    assert manifest.pop("backend") == "kernel"
    manifest["versions"].pop("numba", None)
    del manifest["check"]
    path.write_text(json.dumps({**manifest, "schema": 1}))
    start(tmp_path, backend="torch").close()
    assert read_run(tmp_path).manifest.backend is None


def test_a_checkpoint_that_could_not_be_read_back_is_refused(tmp_path: Path) -> None:
    with start(tmp_path) as run:
        with pytest.raises(NclabError, match="step 0 or later, got -1"):
            run.checkpoint(-1, weights(0))
        with pytest.raises(NclabError, match="rate of a checkpoint to be a tensor, got a float"):
            run.checkpoint(1, {"rate": 0.1})  # type: ignore[dict-item]
        assert run.steps() == []
