"""Processes of torch.distributed on this machine, and what each of them wrote."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PATIENCE_SECONDS = 240


def environment() -> dict[str, str]:
    """One thread a process, and everything importable."""
    paths = os.pathsep.join([str(ROOT), *sys.path])
    return os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}


def torchrun(module: str, processes: int, *arguments: object) -> subprocess.CompletedProcess[str]:
    """`torchrun --nproc-per-node PROCESSES -m module ARGUMENTS`, waited for."""
    how = ("--standalone", f"--nproc-per-node={processes}", "-m", module)
    return subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", *how, *map(str, arguments)],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )


def found_by(module: str, processes: int, folder: Path, *arguments: object) -> list[dict[str, Any]]:
    """What each rank wrote to `FOLDER/<rank>.json`."""
    done = torchrun(module, processes, folder, *arguments)
    assert done.returncode == 0, done.stderr[-4000:]
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(processes)]


def without_launcher(module: str, processes: int, argument: str) -> list[subprocess.Popen[str]]:
    """The same processes with nobody to end the others when one of them dies."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(processes)}
    return [
        subprocess.Popen(
            [sys.executable, "-m", module, argument],
            cwd=ROOT,
            env=environment() | place | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(processes)
    ]
