"""`nclab reproduce`: run the experiments, judge the claims, write the report."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from nclab.cli.engine import AddressOption, EngineName, EngineOption, chosen
from nclab.cli.output import print_json, print_table


class PresetName(StrEnum):
    """How much to run."""

    quick = "quick"
    paper = "paper"


def command(
    targets: Annotated[
        list[str] | None,
        typer.Argument(help="Experiments, or keys of papers; everything if none."),
    ] = None,
    preset: Annotated[
        str,
        typer.Option(
            help="quick: minutes on two cores; paper: full size; or one that an experiment has.",
            metavar="<quick|paper|…>",
        ),
    ] = PresetName.quick.value,
    seeds: Annotated[
        int | None, typer.Option(help="How many seeds: 2 for quick, else 3.", min=1, max=1000)
    ] = None,
    seed: Annotated[int, typer.Option(help="The first seed.", min=0, max=2**31)] = 0,
    out: Annotated[Path, typer.Option(help="Folder for runs, numbers and figures.")] = Path("runs"),
    fresh: Annotated[
        bool, typer.Option(help="Make all numbers and figures again; finished networks are reused.")
    ] = False,
    recorded: Annotated[
        bool,
        typer.Option(
            "--recorded",
            help="With --preset paper: take the networks that ship with the evidence as trained, "
            "to add seeds to it.",
        ),
    ] = False,
    engine: EngineOption = EngineName.local,
    address: AddressOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Reproduce the papers: every figure, every claim judged, one report.

    What is finished is not run again, and what was interrupted goes on where it stopped.

    Example: [bold]nclab reproduce pan2023_fig31 --preset paper --seeds 5 --out runs[/bold]
    """
    from nclab.errors import NclabError
    from nclab.papers.main_job import MORE_SEEDS, SEEDS, MainJob

    if recorded and preset == PresetName.quick.value:
        raise NclabError(
            f"Expected --preset paper beside --recorded, got {preset}: only networks of a paper's "
            "size are recorded. Add --preset paper."
        )
    count = seeds or SEEDS.get(preset, MORE_SEEDS)
    with chosen(engine, address) as place:
        job = MainJob(preset, tuple(range(seed, seed + count)), out, fresh, place, recorded)
        job.run(targets or [], (lambda *_: None) if as_json else print_table)
    result = {**job.finish(whole=not targets), "experiments": job.numbers}
    if as_json:
        print_json(result)
    else:
        print_table(*job.summary())
