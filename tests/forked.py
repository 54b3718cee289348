"""Programs that start as copies of a process which has imported torch, to save time."""

import multiprocessing
import os
import runpy
import sys
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import NamedTuple

HEAVY = ["torch", "torch.distributed", "torch.utils.data", "scipy.optimize", "scipy.sparse.linalg"]
"""What is imported once. nclab is not, so that every program finds its own imports."""


def context() -> ForkServerContext:
    """Return the context that starts such processes."""
    found = multiprocessing.get_context("forkserver")
    found.set_forkserver_preload(HEAVY)
    return found


class Done(NamedTuple):
    """Exit code and output of a program."""

    returncode: int
    stdout: str
    stderr: str


class Program:
    """`python FILE ARGUMENTS` or `python -m MODULE ARGUMENTS`, with the environment of this one."""

    def __init__(self, program: Path | str, *arguments: object, folder: Path) -> None:
        """Start the program; its output goes to files in the folder."""
        folder.mkdir(exist_ok=True)
        self._outputs = folder / "stdout", folder / "stderr"
        words = [str(program), *map(str, arguments)]
        given = (words, isinstance(program, Path), self._outputs, dict(os.environ))
        self._process = context().Process(target=_run, args=given)
        self._process.start()

    def wait(self, seconds: float = 600.0) -> Done:
        """Wait for the end of the program."""
        self._process.join(seconds)
        if self._process.is_alive():
            self._process.kill()
            raise TimeoutError(self._outputs[1].read_text())
        return Done(self._process.exitcode or 0, *(one.read_text() for one in self._outputs))


def _run(
    words: list[str], is_file: bool, outputs: tuple[Path, Path], environment: dict[str, str]
) -> None:
    for number, output in enumerate(outputs, start=1):
        os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT), number)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = words
    if is_file:
        sys.path.insert(0, str(Path(words[0]).parent))
        runpy.run_path(words[0], run_name="__main__")
    else:
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
