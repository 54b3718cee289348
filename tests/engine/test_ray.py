"""Jobs on a real Ray cluster behave as on the cores of this machine."""

import importlib
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import uuid4

import pytest

pytest.importorskip("ray", reason="ray is not installed")
import ray
from ray.exceptions import OutOfMemoryError

import nclab.engine.ray as engine
from nclab.engine import Job, JobResult, Progress, cores
from nclab.engine.ray import Cluster
from nclab.errors import MissingExtra, NclabError
from nclab.training.sweep import train, train_sweep
from tests.engine import jobs
from tests.engine.test_local import ROOT, wait_until_gone
from tests.training.sweep.small import contents, small

NEEDS_PROC = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")


def run_jobs(work: list[Job], *, address: str | None = None, **options: Any) -> list[JobResult]:
    with Cluster(address) as cluster:
        return cluster.run_jobs(work, **options)


@pytest.mark.usefixtures("ray_cluster")
def test_results_are_in_order_and_failures_stop_no_other_job() -> None:
    steps: list[Progress] = []
    done: dict[int, JobResult] = {}
    work = [
        Job("a", jobs.square, (2,)),
        Job("raises", jobs.square, ("x",)),
        Job("killed", jobs.kill_itself),
        Job("left", jobs.leave),
        Job("unpicklable", jobs.square, (threading.Lock(),)),
        Job("unanswerable", jobs.keep_a_lock),
        Job("tensor", jobs.tensor),
        Job("z", jobs.square, (4,), {"steps": 1}),
    ]
    outcomes = run_jobs(work, on_progress=steps.append, on_done=done.__setitem__)
    assert [outcome.name for outcome in outcomes] == [job.name for job in work]
    assert done == dict(enumerate(outcomes))
    a, raises, killed, left, unpicklable, unanswerable, tensor, z = outcomes
    assert (a.value, tensor.value.tolist(), z.value) == (4, [0, 1, 2, 3], 16)
    assert (raises.error or "").startswith("TypeError: can't multiply")
    assert "return value * value" in (raises.trace or "")
    assert (killed.error or "").startswith("The process of killed died.")
    assert killed.trace is None
    assert left.error == "SystemExit: 3"
    assert "pickle" in (unpicklable.error or "")
    assert "pickle" in (unanswerable.error or "")
    assert all("\n" not in (outcome.error or "") for outcome in outcomes)
    assert {Progress(0, "a", 3, 3), Progress(7, "z", 1, 1)} <= set(steps)
    assert not ray.is_initialized()  # what was joined is left


@pytest.mark.usefixtures("ray_cluster")
def test_the_number_of_workers_is_respected_and_jobs_have_one_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    path = str(tmp_path / "path")
    with Cluster() as cluster:
        assert cluster.slots() == 2
        lonely = cluster.run_jobs([Job("", jobs.alone, (path,))] * 4, workers=1)
        assert [outcome.error for outcome in lonely] == [None] * 4
        [setting] = cluster.run_jobs([Job("setting", jobs.setting)])
        assert setting.value[:2] == ("1", 1)
        assert cluster.run_jobs([]) == []
    assert os.environ["OMP_NUM_THREADS"] == "7"


@pytest.fixture
def other_machine(ray_cluster: Any) -> Iterator[Callable[[], None]]:
    """Function that removes a second node, which exists during the test."""
    node = ray_cluster.add_node(num_cpus=1)

    def lose() -> None:
        if node in ray_cluster.worker_nodes:
            ray_cluster.remove_node(node, allow_graceful=False)

    yield lose
    lose()


def test_a_lost_machine_fails_only_its_jobs(
    other_machine: Callable[[], None], tmp_path: Path
) -> None:
    work = [Job(name, jobs.wait_for, (str(tmp_path), name)) for name in "abc"]

    def lose(_: Progress) -> None:
        if len(list(tmp_path.iterdir())) == 3:
            other_machine()

    def let_go(_: int, outcome: JobResult) -> None:
        assert not outcome.ok or (tmp_path / "go").exists()
        (tmp_path / "go").touch()

    outcomes = run_jobs(work, on_progress=lose, on_done=let_go)
    [lost] = [outcome for outcome in outcomes if not outcome.ok]
    assert (lost.error or "").startswith(f"The process of {lost.name} died.")
    assert [outcome.value for outcome in outcomes if outcome.ok] == sorted({*"abc"} - {lost.name})


@pytest.mark.usefixtures("ray_cluster")
def test_the_bytes_of_runs_do_not_depend_on_the_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["nclab", "sweep"])
    with Cluster() as cluster:
        remote = train_sweep(small(), Path("remote"), engine=cluster)
    assert remote == train_sweep(small(), Path("here"), workers=0)
    assert contents(Path("remote")) == contents(Path("here"))
    assert not list(Path("remote").glob(".*"))
    for manifest in Path("remote").glob("*/manifest.json"):
        assert json.loads(manifest.read_text())["command"] == "nclab sweep"
    with Cluster("nobody:1") as nowhere:  # what is there already needs no cluster
        assert train_sweep(small(), Path("remote"), engine=nowhere) == remote


@NEEDS_PROC
@pytest.mark.usefixtures("ray_cluster")
def test_a_folder_that_is_not_shared_raises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = Path("/proc/self/cwd/runs")  # ours is not that of the cluster's processes
    with (
        Cluster() as cluster,
        pytest.raises(NclabError, match="to be the same folder on every machine") as caught,
    ):
        train_sweep(small(), folder, engine=cluster)
    assert "\n" not in str(caught.value)
    assert not list((tmp_path / "runs").iterdir())


@NEEDS_PROC
@pytest.mark.parametrize(
    ("address", "signal_number"),
    [
        pytest.param("joined", signal.SIGINT, marks=pytest.mark.slow),
        ("joined", signal.SIGKILL),
        ("local", signal.SIGINT),
    ],
)
def test_no_job_outlives_its_parent(
    ray_cluster: Any, tmp_path: Path, address: str, signal_number: signal.Signals
) -> None:
    target = ray_cluster.address if address == "joined" else address
    parent = subprocess.Popen(
        [sys.executable, "-m", "tests.engine.jobs", str(tmp_path), target],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": f"{ROOT / 'src'}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 300
        while len(notes := list(tmp_path.iterdir())) < 2:
            assert parent.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        os.killpg(parent.pid, signal_number)
        out, message = parent.communicate(timeout=60)
    finally:
        if parent.poll() is None:  # it would keep the cores from the tests that follow
            os.killpg(parent.pid, signal.SIGKILL)
    wait_until_gone([int(note.name) for note in notes])
    assert (parent.returncode, out) == (-signal_number, "")
    assert message.count("Traceback") == (signal_number == signal.SIGINT)


@pytest.mark.usefixtures("ray_cluster")
def test_the_connection_of_the_program_is_kept() -> None:
    with ray.init(log_to_driver=False, logging_level=logging.ERROR):
        with Cluster("nobody:1") as cluster:
            assert cluster.slots() == 2
        assert ray.is_initialized()


@pytest.mark.usefixtures("ray_cluster")
def test_another_nclab_on_the_cluster_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("only_here")
    exec("def work(*_):\n    yield None", module.__dict__)
    monkeypatch.setitem(sys.modules, "only_here", module)
    monkeypatch.setattr(engine, "_work", module.work)
    [outcome] = run_jobs([Job("a", jobs.square, (2,))])
    with pytest.raises(NclabError, match=r"^Expected nclab .* on every machine.*'only_here'"):
        train._raise_failure(outcome)


def test_too_little_memory_raises() -> None:
    outcome = engine._dead(Job("it", jobs.square), OutOfMemoryError("Task was killed.\nMore."))
    with pytest.raises(NclabError, match="Expected enough memory for it"):
        train._raise_failure(outcome)


def closed_port() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("head", "got 'head'"),
        ("head:port", "got 'head:port'"),
        ("ray://127.0.0.1:10001", "got 'ray://127.0.0.1:10001'"),
        ("127.0.0.1:99999", "at 127.0.0.1:99999, but nothing answers"),
        ("no.such.host.invalid:6379", "at no.such.host.invalid:6379, but nothing answers"),
        (None, "but nothing answers there: Connection refused"),
    ],
)
def test_a_bad_address_raises_one_line(
    monkeypatch: pytest.MonkeyPatch, address: str | None, message: str
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    if address is None:
        monkeypatch.setenv("RAY_ADDRESS", closed_port())
    with pytest.raises(NclabError) as caught:
        run_jobs([Job("a", jobs.square, (2,))], address=address)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_cluster_is_started_where_none_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    init_calls: dict[str, Any] = {}

    def init(address: str, **options: Any) -> None:
        init_calls.update(options, address=address)
        raise Exception("The current node timed out during startup.\nAnd so on.")

    monkeypatch.setattr(ray, "init", init)
    with pytest.raises(NclabError, match=r"at local\. Exception: The current node timed") as caught:
        run_jobs([Job("a", jobs.square, (2,))])
    assert "\n" not in str(caught.value)
    assert "Set RAY_TMPDIR" in str(caught.value)
    assert init_calls["address"] == "local"
    assert init_calls["num_cpus"] == cores()
    assert init_calls["include_dashboard"] is False


@pytest.mark.usefixtures("ray_cluster")
def test_a_wrong_token_raises_with_advice(tmp_path: Path) -> None:
    script = "import sys; from nclab.cli.main import run; sys.argv[0] = 'nclab'; run()"
    options = ["sweep", "--engine", "ray", "--out", str(tmp_path / "runs"), "--samples", "130"]
    other = {
        "PYTHONPATH": f"{ROOT / 'src'}",
        "RAY_AUTH_TOKEN": uuid4().hex,
        "RAY_gcs_server_port_wait_time_s": "1",  # else it is tried for a while
    }
    done = subprocess.run(
        [sys.executable, "-c", script, *options],
        env=os.environ | other,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    line = done.stderr.splitlines()[-1]  # Ray may have complained before
    assert line.startswith("nclab: Cannot use the Ray cluster")
    assert "Set RAY_AUTH_MODE=token" in line


def test_bad_numbers_raise() -> None:
    with pytest.raises(NclabError, match="1 or more workers, got 0"):
        run_jobs([], workers=0)


def test_without_ray_one_line_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "nclab.engine.ray")
    with pytest.raises(MissingExtra, match=r"pip install nclab\[ray\]"):
        importlib.import_module("nclab.engine.ray")
