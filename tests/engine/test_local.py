"""Jobs in processes: a dead job harms no other, and no worker outlives its parent."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nclab.engine import Job, JobResult, Progress, cores, run_jobs
from nclab.errors import NclabError
from tests.engine import jobs

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("workers", [0, 2])
def test_results_are_in_order_and_failures_stop_no_other_job(workers: int) -> None:
    steps: list[Progress] = []
    done: dict[int, JobResult] = {}
    work = [
        Job("a", jobs.square, (2,)),
        Job("b", jobs.square, ("x",)),
        Job("c", jobs.square, (4,), {"steps": 1}),
    ]
    outcomes = run_jobs(work, workers=workers, on_progress=steps.append, on_done=done.__setitem__)
    assert [outcome.name for outcome in outcomes] == ["a", "b", "c"]
    assert [outcome.value for outcome in outcomes] == [4, None, 16]
    assert [outcome.ok for outcome in outcomes] == [True, False, True]
    assert outcomes[1].error is not None
    assert outcomes[1].error.startswith("TypeError: can't multiply")
    assert "return value * value" in (outcomes[1].trace or "")
    assert Progress(0, "a", 3, 3) in steps
    assert Progress(2, "c", 1, 1) in steps
    assert done == dict(enumerate(outcomes))


def test_a_worker_that_dies_fails_only_its_job() -> None:
    work = [
        Job("killed", jobs.kill_itself),
        Job("crashed", jobs.crash),
        Job("left", jobs.leave),
        Job("local", lambda report: None),
        Job("unanswerable", jobs.unanswerable),
        Job("fine", jobs.square, (3,)),
    ]
    killed, crashed, left, local, unanswerable, fine = run_jobs(work, workers=2)
    assert killed.error == "The process of killed was killed by SIGKILL."
    assert crashed.error == "The process of crashed was killed by SIGSEGV."
    assert left.error == "The process of left exited with code 3."
    assert "pickle" in (local.error or "")
    assert "pickle" in (unanswerable.error or "")
    assert fine.value == 9


def test_workers_are_reused_and_have_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    first, second, values, child = run_jobs(
        [
            Job("one", jobs.setting),
            Job("two", jobs.setting),
            Job("tensor", jobs.tensor),
            Job("child", jobs.with_child),
        ],
        workers=1,
    )
    assert first.value[:2] == ("1", 1)
    assert first.value == second.value
    assert first.value[2] != os.getpid()
    assert values.value.tolist() == [0, 1, 2, 3]
    assert child.value == 7
    assert os.environ["OMP_NUM_THREADS"] == "7"


def test_a_job_that_kills_its_receivers_fails() -> None:
    deadly, fine = run_jobs(
        [Job("deadly", jobs.square, (jobs.Deadly(),)), Job("fine", jobs.square, (3,))], workers=1
    )
    assert (deadly.error or "").startswith("The process of deadly")
    assert fine.value == 9


def test_an_empty_list_of_jobs_returns_nothing() -> None:
    assert run_jobs([]) == []
    assert cores() >= 1


def test_bad_numbers_raise() -> None:
    with pytest.raises(NclabError, match="got -1"):
        run_jobs([], workers=-1)


def test_a_script_without_guard_gets_one_line(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from nclab.engine import Job, run_jobs\n"
        "from nclab.errors import NclabError\n"
        "def job(report): return 1\n"
        "try:\n    run_jobs([Job('a', job)])\n"
        "except NclabError as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False
    )
    assert "__main__" in done.stdout


def start_sleepers(folder: Path) -> tuple["subprocess.Popen[str]", list[int]]:
    """Start a parent with two workers; return it with the workers' process ids."""
    parent = subprocess.Popen(
        [sys.executable, "-m", "tests.engine.jobs", str(folder)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": f"{ROOT / 'src'}"},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + 60
    while len(list(folder.iterdir())) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return parent, [int(note.name) for note in folder.iterdir()]


def wait_until_gone(pids: list[int]) -> None:
    deadline = time.monotonic() + 20
    while any(alive(pid) for pid in pids):
        assert time.monotonic() < deadline, "an orphan survives"
        time.sleep(0.02)


def alive(pid: int) -> bool:
    """Whether a process runs; zombies do not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state not in "ZX"


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
@pytest.mark.parametrize("signal_number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_worker_outlives_its_parent(tmp_path: Path, signal_number: signal.Signals) -> None:
    parent, workers = start_sleepers(tmp_path)
    assert all(alive(pid) for pid in workers)
    if signal_number == signal.SIGINT:  # Ctrl-C goes to the whole group
        os.killpg(parent.pid, signal_number)
    else:
        parent.send_signal(signal_number)
    _, error_text = parent.communicate(timeout=20)
    wait_until_gone(workers)
    assert parent.returncode == -signal_number
    if signal_number == signal.SIGINT:
        assert error_text.count("Traceback") == 1  # the parent's; the workers are silent
        assert "KeyboardInterrupt" in error_text


def test_lost_jobs_are_started_again_and_failed_jobs_are_not(tmp_path: Path) -> None:
    progress_calls: list[Progress] = []
    done: dict[int, JobResult] = {}
    work = [
        Job("a", jobs.square, (2,)),
        Job("raises", jobs.square, ("x",)),
        Job("lost", jobs.once, (str(tmp_path / "lives"),)),
        Job("always", jobs.kill_itself),
    ]
    outcomes = run_jobs(
        work, workers=2, tries=3, on_progress=progress_calls.append, on_done=done.__setitem__
    )
    assert done == dict(enumerate(outcomes))
    assert [outcome.value for outcome in outcomes] == [4, None, 2, None]
    assert outcomes[1].trace is not None
    assert outcomes[3].lost
    assert sum(progress == Progress(3, "always", 1, 2) for progress in progress_calls) == 3
    assert {progress.index for progress in progress_calls if progress.name == "a"} == {0}
    assert not JobResult("it", error="OutOfMemoryError: Task was killed.").lost
