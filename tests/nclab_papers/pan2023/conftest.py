"""The experiments of chapter 3, run once at a tiny size for all tests."""

import json
from pathlib import Path
from typing import Any

import pytest

from nclab_papers.pan2023 import complexity, conjectures, fig31, fig33, norms
from tests.nclab_papers.pan2023.tiny import DECAYS, TINY


@pytest.fixture(scope="session")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="session")
def numbers(out: Path) -> dict[str, dict[str, Any]]:
    """Run all five experiments in one folder."""
    both: dict[str, Any] = {"seeds": (0, 1), "out": out}
    small: dict[str, Any] = {"networks": TINY, "layers": 4, "weight_decays": DECAYS}
    places = [conjectures.ConjectureSetting(TINY, data, 4, DECAYS) for data in ("teacher", "conic")]
    found = {
        "pan2023_fig31": fig31.run(fig31.Config(**small), **both),
        "pan2023_fig33": fig33.run(fig33.Config(**{**small, "layers": 6}), **both),
        "pan2023_norms": norms.run(norms.Config(**small), **both),
        "pan2023_complexity": complexity.run(
            complexity.Config(**small, teacher_depths=(1, 3)), **both
        ),
        "pan2023_conjectures": conjectures.run(conjectures.Config(tuple(places)), **both),
    }
    return {name: json.loads(json.dumps(value, allow_nan=False)) for name, value in found.items()}
