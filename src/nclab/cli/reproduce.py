"""`nclab reproduce`: run the experiments, judge the claims, write the report."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from nclab.cli.engine import AddressOption, EngineName, EngineOption, chosen
from nclab.cli.output import print_json, print_table
from nclab.cli.seeds import MOST, listed_seeds
from nclab.errors import NclabError


class PresetName(StrEnum):
    """How much to run."""

    quick = "quick"
    paper = "paper"


def command(
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TARGET]...", help="Experiments, or keys of papers; everything if none."
        ),
    ] = None,
    preset: Annotated[
        str,
        typer.Option(
            help="quick: minutes on two cores; paper: full size; or one that an experiment has.",
            metavar="<quick|paper|…>",
        ),
    ] = PresetName.quick.value,
    seeds: Annotated[
        str | None,
        typer.Option(
            metavar="<int|list|first:end>",
            help="How many seeds: 5; or which: 0,3 or 4:7. 2 for quick, else 3.",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            metavar="<int>",
            help="The first seed, beside a number of seeds; 0 by default.",
            min=0,
            max=2**31,
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option(metavar="<folder>", help="Folder for runs, numbers and figures.")
    ] = Path("runs"),
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
    from nclab.claims.reproduce import MORE_SEEDS, SEEDS, Reproduction
    from nclab.errors import NclabError

    if recorded and preset == PresetName.quick.value:
        raise NclabError(
            f"Expected --preset paper beside --recorded, got {preset}: only networks of a paper's "
            "size are recorded. Add --preset paper."
        )
    chosen_seeds = _seeds(seeds, seed, SEEDS.get(preset, MORE_SEEDS))
    with chosen(engine, address) as place:
        job = Reproduction(preset, chosen_seeds, out, fresh, place, recorded)
        job.run(targets or [], (lambda *_: None) if as_json else print_table)
    result = {**job.finish(all_claims=not targets), "experiments": job.numbers}
    if as_json:
        print_json(result)
    else:
        print_table(*job.summary())


def _seeds(given: str | None, first: int | None, usual: int) -> tuple[int, ...]:
    """So many from the first on, or those that are listed."""
    listed = None if given is None else listed_seeds(given)
    if listed is not None:
        if first is not None:
            raise NclabError(f"Expected --seed beside a number of seeds, got --seeds {given}.")
        return listed
    count = usual if given is None else int(given)
    if not 1 <= count <= MOST:
        raise NclabError(f"Expected --seeds from 1 to {MOST}, or a list as 0,3; got {given}.")
    return tuple(range(first or 0, (first or 0) + count))
