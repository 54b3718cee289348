"""The entry point: system errors, Ctrl-C and bad arguments are one line."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import nclab.records
from tests.cli.runner import call

LONG = "x" * 300


@pytest.mark.parametrize(
    "arguments",
    [
        ("runs", LONG),
        ("sweep", "--data", f"{LONG}.npz", "--out", "runs"),
        ("sweep", "--samples", 100, "--width", 4, "--epochs", 1, "--out", LONG),
    ],
    ids=["runs", "data", "out"],
)
def test_a_name_that_is_too_long_is_one_line(
    arguments: tuple[object, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = call(*arguments)
    assert (done.code, done.out) == (2, "")
    assert len(done.err.splitlines()) == 1
    assert "File name too long" in done.err
    assert not list(tmp_path.iterdir())


def test_ctrl_c_prints_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(nclab.records, "find_runs", stopped)
    assert call("runs", tmp_path) == (130, "", "nclab: Stopped.\n")


INTERRUPTED = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # what runs in the background ignores it
class Finder:
    def find_spec(self, name, *_):
        if name == sys.argv[1]:
            os.kill(os.getpid(), signal.SIGINT)
import nclab.__main__
sys.meta_path.insert(0, Finder())
nclab.__main__.run()
"""


@pytest.mark.parametrize("module", ["typer", "nclab.cli.main", "nclab.cli.options"])
def test_ctrl_c_during_imports_prints_stopped(module: str) -> None:
    done = subprocess.run(
        (sys.executable, "-c", INTERRUPTED, module), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "nclab: Stopped.\n")


def test_a_mistyped_command_ends_in_one_question_mark() -> None:
    done = call("measur")
    assert done.code == 2
    assert done.err.endswith("Did you mean 'measure'? See nclab --help.\n")


def test_a_terminal_without_greek_letters(tmp_path: Path) -> None:
    file = tmp_path / "cloud.npz"
    np.savez(file, X=np.eye(4).repeat(3, 0), y=np.arange(4).repeat(3))
    command = (sys.executable, "-m", "nclab", "measure", str(file))
    env = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "tr ?_W / tr ?_B" in done.stdout
    done = subprocess.run((*command, "--json"), env=env, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["num_classes"] == 4


@pytest.mark.parametrize("flag", ["--version", "-V"])
def test_the_version_is_shown(flag: str) -> None:
    assert call(flag) == (0, f"nclab {nclab.__version__}\n", "")


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("nclab ver", {"verify"}),
        ("nclab sweep --weight", {"--weight-decay"}),  # an option that a config makes
        ("nclab measure --one", {"--one-pass"}),
    ],
)
def test_the_shell_completes(typed: str, expected: set[str]) -> None:
    arguments = {"COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1)}
    done = subprocess.run(
        [Path(sys.executable).with_name("nclab")],
        env={**os.environ, "_NCLAB_COMPLETE": "complete_bash", **arguments},
        capture_output=True,
        text=True,
        check=False,
    )
    assert set(done.stdout.split()) == expected, done.stderr


def test_all_options_describe_their_values_alike() -> None:
    """Files are <file>, folders <folder>, integers <int>."""
    from nclab.cli.main import app

    for command in app.registered_commands:
        lines = call(command.name, "--help").out.splitlines()
        for line in [text for text in lines if "--" in text and text.startswith("│")]:
            assert not re.search(r"<path>|range>|\b(PATH|TEXT|INTEGER|FILE|RUN)\b {2}", line), line


@pytest.mark.parametrize(
    ("arguments", "seeds"),
    [
        (("--seeds", "3"), (0, 1, 2)),
        (("--seeds", "2", "--seed", "5"), (5, 6)),
        (("--seeds", "4,1"), (4, 1)),
        (("--seeds", "2,"), (2,)),
        (("--seeds", "4:6"), (4, 5)),
        ((), (0, 1)),
    ],
)
def test_seeds_of_reproduce(
    arguments: tuple[str, ...], seeds: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    from nclab.claims import reproduce as main_job

    calls: list[tuple[int, ...]] = []

    def job(preset: str, chosen: tuple[int, ...], *_: object) -> None:
        calls.append(chosen)
        raise nclab.NclabError("Seen.")

    monkeypatch.setattr(main_job, "Reproduction", job)
    assert call("reproduce", "tour", *arguments).err == "nclab: Seen.\n"
    assert calls == [seeds]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--seeds", "0"), "Expected --seeds from 1 to 1000, or a list as 0,3; got 0"),
        (("--seeds", "two"), "Expected integers in --seeds, got 'two'"),
        (("--seeds", "1,2", "--seed", "3"), "Expected --seed only with a number as --seeds"),
    ],
)
def test_bad_seeds_are_one_line(arguments: tuple[str, ...], why: str) -> None:
    done = call("reproduce", "tour", *arguments)
    assert (done.code, done.out) == (2, "")
    assert why in done.err


def in_shell(arguments: str, *, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a shell command in which `nclab` is this checkout."""
    start = f'nclab() {{ "{sys.executable}" -c "from nclab.__main__ import run; run()" "$@"; }}; '
    return subprocess.run(
        ("sh", "-c", start + arguments), cwd=folder, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ("nclab runs nowhere 2>/dev/full", 2, ""),
        ("nclab runs . >/dev/full", 2, "No space left on device"),
        ("nclab export . >/dev/full", 2, "No space left on device"),
        ("nclab runs . <&- >/dev/null", 0, ""),
    ],
)
def test_streams_that_cannot_be_written(
    tmp_path: Path, arguments: str, code: int, message: str
) -> None:
    layers = [{"layer": "fc", "min_intra": 0.5}]
    with nclab.records.open_run(tmp_path / "line_", kind="demo", config={}) as run:
        run.append({"kind": "measurement", "step": 1, "layers": layers})
    done = in_shell(arguments, folder=tmp_path)
    assert done.returncode == code
    assert message in done.stderr
    assert (done.stdout, done.stderr.count("\n")) == ("", int(bool(message)))
