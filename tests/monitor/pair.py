"""Two processes that run one module together, and what each of them printed."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def run_pair(module: str, meeting: Path) -> list[dict[str, Any]]:
    """Start `python -m module RANK MEETING` twice; the JSON of each one's last line."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", module, str(rank), str(meeting)],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    results = []
    for process in processes:
        output, errors = process.communicate(timeout=240)
        assert process.returncode == 0, errors
        results.append(json.loads(output.splitlines()[-1]))
    return results
