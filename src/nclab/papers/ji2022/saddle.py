"""The saddle of Example 3.1: what the point is, and which kinds of descent leave it.

Claim: plain gradient descent stays on the ray of a suboptimal KKT point; noise leaves it.
Source: ji2022, Example 3.1
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nclab.engine import LOCAL, Engine
from nclab.figures import ulpm
from nclab.figures.picture import Picture
from nclab.papers.ji2022.example import findings
from nclab.papers.tables import Table, as_rich, plus_minus, verdicts
from nclab.progress import track
from nclab.text import number
from nclab.threads import one_thread
from nclab.ulpm.examined import EXAMPLE, escape_samples, find, slice_below, survey
from nclab.ulpm.examples import run_escape

SLICE_DIGITS = 5
"""Of the loss around the point, which is only looked at."""


@dataclass(frozen=True)
class Config:
    """The scales examined and the lengths of the runs; the paper has no run of its own."""

    scales: tuple[float, ...] = (0.5, 1.0, 1.5)
    """Of the point; the runs begin at 1."""
    steps: int = 10_000
    noisy_steps: int = 3_000
    rate: float = 0.1
    """On the sum of the losses."""
    noise: float = 0.1
    """Standard deviation of the noise in every coordinate of the gradient."""


PRESETS = {"quick": Config(), "paper": Config()}


def run(
    *, preset: str = "quick", seeds: Sequence[int] = (0,), out: Path, engine: Engine = LOCAL
) -> dict[str, Any]:
    """Run a preset."""
    return saddle(PRESETS[preset], seeds=seeds)


def saddle(config: Config, *, seeds: Sequence[int] = (0,)) -> dict[str, Any]:
    """The experiment at any size; samples for the figures are kept of the first seed.

    A seed draws the samples of stochastic descent and the noise.
    """
    lengths = {"steps": config.steps, "noisy_steps": config.noisy_steps}
    per_seed = []
    with one_thread():
        points = [
            {"scale": scale, **survey(find(None, EXAMPLE, scale=scale)).to_dict()}
            for scale in config.scales
        ]
        piece = slice_below(find(None, EXAMPLE))
        for seed in track(seeds, "runs from the saddle"):
            runs = run_escape(**lengths, rate=config.rate, noise=config.noise, seed=seed)
            per_seed.append({"seed": seed, **runs.ends()})
            if seed == seeds[0]:
                samples = escape_samples(runs)
    numbers: dict[str, Any] = {
        "config": {**asdict(config), "seeds": list(seeds)},
        "points": points,
        "slice": {
            "angles": piece.angles.round(SLICE_DIGITS).tolist(),
            "log_losses": piece.log_losses.round(SLICE_DIGITS).tolist(),
        },
        "per_seed": per_seed,
        "samples": samples,
    }
    return {**numbers, "findings": findings(numbers)}


def tables(numbers: Mapping[str, Any]) -> list[Table]:
    """What the point is, where the runs end, and the verdicts."""
    points = [
        (
            f"{point['scale']:g}",
            point["kind"],
            f"{point['smallest_eigenvalue']:.6f}",
            f"{point['gap']:.6f}",
            f"{point['escape']['actual']:.4%}",
            f"{point['escape']['predicted']:.4%}",
        )
        for point in numbers["points"]
    ]
    ends = [
        (
            title,
            number(max(one[name]["off_ray"] for one in numbers["per_seed"])),
            number(max(one[name]["off_plane"] for one in numbers["per_seed"])),
            plus_minus((one[name]["normalised_margin"] for one in numbers["per_seed"]), ".4f"),
            plus_minus((one[name]["norm"] for one in numbers["per_seed"]), ".3f"),
        )
        for name, title in ulpm.ESCAPES.items()
    ]
    angle = numbers["points"][0]["escape"]["angle"]
    return [
        Table(
            f"The point of Example 3.1, and how the loss changes at an angle of {angle:g}",
            ("scale", "kind", "smallest eigenvalue", "gap to the optimum", "change", "predicted"),
            points,
        ),
        Table(
            "Where descent from it ends",
            ("run", "off the ray", "off the plane", "normalised margin", "norm"),
            ends,
        ),
        verdicts(numbers["findings"]),
    ]


def show(numbers: Mapping[str, Any]) -> list[Any]:
    """The tables, for the terminal."""
    return [as_rich(table) for table in tables(numbers)]


def pictures(numbers: Mapping[str, Any]) -> list[Picture]:
    """The escapes over time, and the loss around the point."""
    piece = numbers["slice"]
    around = ulpm.slice_map(np.array(piece["angles"]), np.array(piece["log_losses"]))
    return [
        ulpm.escape_picture(ulpm.escape_panels(numbers["samples"])),
        ulpm.slice_picture(around, title="The loss around the saddle of Example 3.1"),
    ]
