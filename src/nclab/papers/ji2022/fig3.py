"""VGG-13 on FashionMNIST without weight decay: collapse in a realistic training.

Claim: norms and angles come within 0.1 of collapse, and every quantity decreases or stays small.
Source: ji2022, Fig. 3
"""

import warnings
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from nclab.data import fashion_mnist
from nclab.engine import LOCAL, Engine, Job, Progress
from nclab.errors import NclabError, NclabWarning
from nclab.figures.picture import Picture
from nclab.papers.ji2022.fig3_picture import panels
from nclab.papers.ji2022.fig3_training import KIND, Config, read_rows, train
from nclab.papers.ji2022.training_claims import CLAIMED, by_seed, judge_all
from nclab.progress import bar
from nclab.records import read_run

QUICK = Config()
PRESETS = {
    "quick": QUICK,
    "accelerated": replace(QUICK, clip=1.0, power=0.25, most=20.0),
    "paper": Config(
        images=60_000,
        width=1.0,
        epochs=500,
        batch=128,
        rate=0.01,
        checkpoint_every=5,
        device="auto",
    ),
}
"""accelerated departs from the paper: clipped gradients and a rate that follows the loss."""

COLUMNS = {
    "epoch": "epoch",
    "accuracy": "accuracy",
    "loss": "loss",
    "nc2_norm_variation_means": "(a) M",
    "nc2_norm_variation_weights": "(a) W",
    "nc1_within_variation": "(b)",
    "nc2_equiangularity_means": "(c) M",
    "nc2_equiangularity_weights": "(c) W",
    "nc3_self_duality": "(d)",
}
"""M are the class means, W the classifiers."""


def run(
    *, preset: str = "quick", seeds: Sequence[int] = (0,), out: Path, engine: Engine = LOCAL
) -> dict[str, Any]:
    """Run a preset; finished runs below `out` are taken as they are, stopped ones go on."""
    if preset not in PRESETS:
        raise NclabError(f"Expected a preset, one of {', '.join(PRESETS)}; got {preset!r}.")
    return fig3(PRESETS[preset], seeds=seeds, out=out, engine=engine)


def fig3(
    config: Config,
    *,
    seeds: Sequence[int],
    out: Path,
    workers: int | None = None,
    engine: Engine = LOCAL,
) -> dict[str, Any]:
    """The experiment at any size, one process for each seed that is not finished."""
    if not seeds or len(set(seeds)) < len(seeds):
        raise NclabError(f"Expected different seeds, at least one; got {list(seeds)}.")
    folders = {seed: out / KIND / config.run_name(seed) for seed in seeds}
    missing = [seed for seed, folder in folders.items() if not _is_finished(folder)]
    if missing:
        fashion_mnist.load()  # here, so that one line says what is missing
        _warn_of_the_time(config)
        _train({seed: folders[seed] for seed in missing}, config, workers=workers, engine=engine)
    rows = [row for folder in folders.values() for row in read_rows(folder)]
    numbers: dict[str, Any] = {
        "config": asdict(config),
        "variant": config.variant,
        "seeds": list(seeds),
        "runs": [str(folder.relative_to(out)) for folder in folders.values()],
        "rows": rows,
    }
    numbers["findings"] = {name: found.to_dict() for name, found in judge_all(numbers).items()}
    return numbers


def show(numbers: dict[str, Any]) -> list[Any]:
    """Start and end of every seed, and the verdicts."""
    from rich.table import Table

    table = Table(header_style="bold")
    table.add_column("seed")
    for title in COLUMNS.values():
        table.add_column(title, justify="right")
    for seed, rows in by_seed(numbers["rows"]).items():
        for row in (rows[0], rows[-1]):
            table.add_row(str(seed), *(_three_digits(row[name]) for name in COLUMNS))
    lines = []
    for claimed in CLAIMED:
        found = numbers["findings"][claimed.name]
        lines.append(f"{claimed.source}: {claimed.text} {found['verdict']}: {found['evidence']}")
    return [
        f"{_title(numbers)}, first and last measurement of class means M and classifiers W:",
        table,
        *lines,
    ]


def pictures(numbers: dict[str, Any]) -> list[Picture]:
    """The paper's four panels."""
    name = "ji2022_fig3" if numbers["variant"] == "plain" else "ji2022_fig3_accelerated"
    return [panels(numbers["rows"], title=_title(numbers), name=name)]


def _title(numbers: dict[str, Any]) -> str:
    config = numbers["config"]
    how = "SGD" if numbers["variant"] == "plain" else "accelerated SGD (a departure)"
    width = "" if config["width"] == 1 else f" × {config['width']:g}"
    return f"VGG-13{width}, {config['images']} images of FashionMNIST, {how}, no weight decay"


def _three_digits(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"


def _is_finished(folder: Path) -> bool:
    return folder.exists() and read_run(folder).state == "finished"


def _warn_of_the_time(config: Config) -> None:
    if config.device == "auto" and config.place == "cpu":
        warnings.warn(
            "No GPU found: at full width this takes weeks on a CPU. It can be stopped and "
            "started again; preset quick takes minutes.",
            NclabWarning,
            stacklevel=4,
        )


def _train(
    folders: dict[int, Path], config: Config, *, workers: int | None, engine: Engine
) -> None:
    # Absolute, as a cluster's processes have working folders of their own.
    places = {seed: folder.absolute() for seed, folder in folders.items()}
    jobs = [Job(f"seed {seed}", train, (place, config, seed)) for seed, place in places.items()]
    done = dict.fromkeys(range(len(jobs)), 0)
    with bar("VGG-13", total=config.epochs * len(jobs)) as moving:

        def tell(progress: Progress) -> None:
            done[progress.index] = progress.step
            moving.update(sum(done.values()), f"{len(jobs)} seed(s)")

        if config.place != "cpu":  # a graphics card is fed by one process of its own machine
            engine = LOCAL
            workers = 1 if workers is None else workers
        folder = next(iter(places.values())).parent
        outcomes = engine.run_jobs(jobs, folder=folder, workers=workers, on_progress=tell)
    for outcome in outcomes:
        if not outcome.ok:
            raise NclabError(f"{outcome.name} failed: {outcome.error}")
