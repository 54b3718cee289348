"""`nclab landscape`: what a point is on its sphere."""

from pathlib import Path
from typing import Annotated

import typer

from nclab.cli.output import print_json, print_table
from nclab.cli.ulpm import Reduction


def command(
    point: Annotated[
        Path | None,
        typer.Argument(
            metavar="POINT", help=".npz or .safetensors with weight|W and features|X|H, by class."
        ),
    ] = None,
    example: Annotated[str | None, typer.Option(help="A point of the paper: 3.1.")] = None,
    scale: Annotated[float, typer.Option(help="Scale of the example's point.")] = 1.0,
    reduction: Annotated[
        Reduction, typer.Option(help="Of the loss; the paper's is the sum.")
    ] = Reduction.sum,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    out: Annotated[
        Path | None, typer.Option(metavar="RUN", help="New folder for the answer and figures.")
    ] = None,
) -> None:
    """Classify a point of the layer-peeled model: not critical, strict saddle or global minimum.

    Example: [bold]nclab landscape --example 3.1 --out runs/saddle[/bold]
    """
    from nclab.ulpm import examined as ulpm_landscape
    from nclab.ulpm.recorded import prepare_folder

    subject = ulpm_landscape.find(point, example, scale=scale, reduction=reduction.value)
    folder = None if out is None else prepare_folder(out)
    survey = ulpm_landscape.survey(subject)
    lines = [] if folder is None else ulpm_landscape.write_survey(survey, folder)
    if as_json:
        print_json(survey.to_dict())
    else:
        print_table(*survey.show(), *lines)
