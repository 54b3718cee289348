"""`nclab landscape`: what a point is on its sphere."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from nclab.cli.output import print_json, print_table


class Reduction(StrEnum):
    """The loss over samples."""

    mean = "mean"
    sum = "sum"


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
        Path | None, typer.Option(metavar="<folder>", help="New folder for the run and figures.")
    ] = None,
) -> None:
    """Classify a point of the layer-peeled model: not critical, strict saddle or global minimum.

    Example: [bold]nclab landscape --example 3.1 --out runs/saddle[/bold]
    """
    from nclab.ulpm.examination import examine, find_point
    from nclab.ulpm.runs import prepare_folder, write_examination

    subject = find_point(point, example, scale=scale, reduction=reduction.value)
    folder = None if out is None else prepare_folder(out)
    found = examine(subject)
    lines = [] if folder is None else write_examination(found, folder)
    if as_json:
        print_json(found.to_dict())
    else:
        print_table(*found.show(), *lines)
