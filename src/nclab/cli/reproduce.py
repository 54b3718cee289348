"""`nclab reproduce`: run the experiments, judge the claims and write the report."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from nclab.cli.shared import (
    MOST_SEEDS,
    AddressOption,
    EngineName,
    EngineOption,
    JsonOption,
    open_engine,
    print_json,
    print_table,
    read_seeds,
)
from nclab.errors import NclabError


class PresetName(StrEnum):
    """Sizes of experiments."""

    quick = "quick"
    paper = "paper"


def command(
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TARGET]...", help="Experiments or keys of papers; everything by default."
        ),
    ] = None,
    preset: Annotated[
        str,
        typer.Option(
            help="quick (minutes on two cores), paper (full size) or a preset of an experiment.",
            metavar="<quick|paper|…>",
        ),
    ] = PresetName.quick.value,
    seeds: Annotated[
        str | None,
        typer.Option(
            metavar="<int|list|first:end>",
            help="Number of seeds, 5, or the seeds, 0,3 or 4:7. Default: 2 for quick, else 3.",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            metavar="<int>",
            help="First seed if --seeds is a number; 0 by default.",
            min=0,
            max=2**31,
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option(metavar="<folder>", help="Folder for runs, numbers and figures.")
    ] = Path("runs"),
    fresh: Annotated[
        bool, typer.Option(help="Recompute all numbers and figures; finished networks are reused.")
    ] = False,
    recorded: Annotated[
        bool,
        typer.Option(
            "--recorded",
            help="With --preset paper: reuse the recorded networks that nclab ships, for example "
            "to add seeds.",
        ),
    ] = False,
    engine: EngineOption = EngineName.local,
    address: AddressOption = None,
    as_json: JsonOption = False,
) -> None:
    """Reproduce the papers: run the experiments, draw the figures, judge the claims.

    Finished runs are reused, and interrupted runs continue where they stopped.

    Example: [bold]nclab reproduce pan2023_fig31 --preset paper --seeds 5 --out runs[/bold]
    """
    from nclab.claims.reproduce import MORE_SEEDS, SEEDS, Reproduction

    if recorded and preset == PresetName.quick.value:
        raise NclabError(
            f"Expected --preset paper with --recorded, got {preset}. Add --preset paper, because "
            "only networks of a paper's size are recorded."
        )
    chosen_seeds = None if seeds is None else read_seeds(seeds)
    if chosen_seeds is not None and seed is not None:
        raise NclabError(f"Expected --seed only with a number as --seeds, got --seeds {seeds}.")
    if chosen_seeds is None:
        count = SEEDS.get(preset, MORE_SEEDS) if seeds is None else int(seeds)
        if not 1 <= count <= MOST_SEEDS:
            raise NclabError(
                f"Expected --seeds from 1 to {MOST_SEEDS}, or a list as 0,3; got {seeds}."
            )
        chosen_seeds = tuple(range(seed or 0, (seed or 0) + count))
    with open_engine(engine, address) as opened:
        job = Reproduction(preset, chosen_seeds, out, fresh, opened, recorded)
        job.run(targets or [], (lambda *_: None) if as_json else print_table)
    result = {**job.finish(all_claims=not targets), "experiments": job.numbers}
    if as_json:
        print_json(result)
    else:
        print_table(*job.summary())
