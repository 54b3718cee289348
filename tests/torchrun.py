"""Start processes of torch.distributed on this machine and collect their results."""

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
    """Return an environment with one thread per process and the source on the path."""
    paths = os.pathsep.join([str(ROOT), *sys.path])
    return os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}


def torchrun(module: str, processes: int, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run `torchrun --nproc-per-node PROCESSES -m module ARGUMENTS` and wait for it."""
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
    """Return what each rank wrote to `FOLDER/<rank>.json`."""
    done = torchrun(module, processes, folder, *arguments)
    assert done.returncode == 0, done.stderr[-4000:]
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(processes)]


def without_launcher(module: str, processes: int, argument: str) -> list[subprocess.Popen[str]]:
    """Start the same processes without a launcher that ends the others when one of them dies."""
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
