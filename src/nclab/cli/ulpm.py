"""`nclab ulpm`: train the unconstrained layer-peeled model, whose features are free variables."""

from pathlib import Path
from typing import Annotated

import typer

from nclab.cli.options import Configs, Options, with_options
from nclab.cli.shared import JsonOption, print_json, print_table


def _configs() -> dict[str, Options]:
    from nclab.ulpm.runs import UlpmConfig

    return {"ulpm": Options(UlpmConfig, "Model and method")}


@with_options(_configs)
def command(
    configs: Configs,
    as_json: JsonOption = False,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="<folder>", help="New folder for the run, its last point and figures."
        ),
    ] = None,
) -> None:
    """Train the unconstrained layer-peeled model by descent, normalised descent or gradient flow.

    Example: [bold]nclab ulpm --classes 5 --method flow --log-time 1000 --out runs/flow[/bold]
    """
    from nclab.ulpm.runs import prepare_folder, solve, to_dict, write_solution

    config = configs["ulpm"].build()
    folder = None if out is None else prepare_folder(out)
    solution = solve(config)
    lines = [] if folder is None else write_solution(solution, folder)
    if as_json:
        print_json(to_dict(solution))
    else:
        print_table(*solution.show(), *lines)
