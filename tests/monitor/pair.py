"""Runs a module in two processes of torch.distributed."""

import json
from pathlib import Path
from typing import Any

from tests.forked import Program


def run_pair(module: str, meeting: Path) -> list[dict[str, Any]]:
    """Run `python -m module RANK MEETING` twice; return the JSON that each process printed."""
    folders = [meeting.with_name(f"rank-{rank}") for rank in range(2)]
    programs = [
        Program(module, rank, meeting, folder=folder) for rank, folder in enumerate(folders)
    ]
    results = []
    for program in programs:
        done = program.wait()
        assert done.returncode == 0, done.stderr
        results.append(json.loads(done.stdout.splitlines()[-1]))
    return results
