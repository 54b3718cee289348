"""`nclab reproduce`: run the experiments."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from nclab.cli.output import print_json, print_table


class Preset(StrEnum):
    """How much to run."""

    quick = "quick"
    paper = "paper"


def command(
    targets: Annotated[
        list[str] | None, typer.Argument(help="Experiments to run; all of them by default.")
    ] = None,
    preset: Annotated[
        Preset, typer.Option(help="quick: minutes on two cores; paper: full size.")
    ] = Preset.quick,
    seed: Annotated[int, typer.Option(help="Seed of every random number.", min=0, max=2**31)] = 0,
    out: Annotated[Path, typer.Option(help="Folder for figures and numbers.")] = Path("runs"),
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Run the experiments, print what they found and keep figures and numbers.

    Example: [bold]nclab reproduce pan2023_guarantees --preset quick[/bold]
    """
    from nclab.experiments import find
    from nclab.experiments.keep import keep, make_folder

    results = {}
    chosen = find(targets or [])
    for experiment in chosen:
        make_folder(out / experiment.name)
    for experiment in chosen:
        result = experiment.run(preset=preset.value, seed=seed)
        results[experiment.name] = result.to_dict()
        kept = keep(result, out / experiment.name)
        if not as_json:
            print_table(*result.show(), *kept, "")
    if as_json:
        print_json(results)
