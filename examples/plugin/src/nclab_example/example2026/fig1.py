"""Figure 1: noise around the class means takes collapse away; one experiment and its claim."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

import nclab
from nclab.claims.claim import Finding, Kind, claim
from nclab.claims.effects import Part
from nclab.claims.judging import judge_effects
from nclab.claims.tables import Table
from nclab.figures.picture import Panel, Picture, Series


@dataclass(frozen=True)
class Config:
    """Sizes; fixed before the numbers are seen."""

    samples: int = 200
    noises: tuple[float, ...] = (0.1, 0.3)


PRESETS = {"quick": Config(), "paper": Config(samples=2000)}


def run(config: Config, *, seeds: Sequence[int], out: Path, engine: Any = None) -> dict[str, Any]:
    """Plain numbers: a row for each seed and noise."""
    labels = torch.arange(config.samples) % 4
    rows = []
    for seed in seeds:
        generator = torch.Generator().manual_seed(seed)
        cloud = torch.randn(config.samples, 4, generator=generator)
        for noise in config.noises:
            found = nclab.measure_features(torch.eye(4)[labels] + noise * cloud, labels)
            rows.append({"seed": seed, "noise": noise, "spread": found.nc1_trace_ratio})
    return {"config": asdict(config), "rows": rows}


def tables(numbers: dict[str, Any]) -> list[Table]:
    """What the page shows."""
    found = _rows(numbers)
    cells = [(str(row["noise"]), str(row["seed"]), f"{row['spread']:.3g}") for row in found]
    return [Table("Spread within classes", ("noise", "seed", "tr Σ_W/tr Σ_B"), cells)]


def pictures(numbers: dict[str, Any]) -> list[Picture]:
    """One figure, from the numbers alone."""
    first = [row for row in _rows(numbers) if row["seed"] == _rows(numbers)[0]["seed"]]
    line = Series("spread", [row["noise"] for row in first], [row["spread"] for row in first])
    return [Picture("spread", "Spread against noise", (Panel("", "noise", "spread", (line,)),))]


@claim(
    "example2026/fig-1",
    Kind.RESULT,
    "More noise spreads the classes.",
    "example2026, Fig. 1 “spreads”",
    needs="example2026_fig1",
)
def noise_spreads(numbers: Mapping[str, Any]) -> Finding:
    """The difference between the most and the least noise, paired by seed."""
    low, high = min(row["noise"] for row in _rows(numbers)), max(r["noise"] for r in _rows(numbers))
    by = {(row["seed"], row["noise"]): row["spread"] for row in _rows(numbers)}
    effect = {seed: by[seed, high] - by[seed, low] for seed, noise in by if noise == low}
    part = Part("rise of the spread from the least to the most noise", effect)
    return judge_effects([part], margin=0.01)


def _rows(numbers: Mapping[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = numbers["rows"]
    return found
