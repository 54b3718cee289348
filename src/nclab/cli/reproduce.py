"""`nclab reproduce`: run the experiments."""

from enum import StrEnum
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
    seed: Annotated[int, typer.Option(help="Seed of every random number.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Run the experiments and print what they found.

    Example: [bold]nclab reproduce tour --preset quick[/bold]
    """
    from nclab.experiments import find

    results = {}
    for experiment in find(targets or []):
        result = experiment.run(preset=preset.value, seed=seed)
        results[experiment.name] = result.to_dict()
        if not as_json:
            print_table(*result.show())
    if as_json:
        print_json(results)
