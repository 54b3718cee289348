"""`nclab landscape`: examine whether a point (W, H) of the layer-peeled model is critical."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from nclab.cli.shared import JsonOption, print_json, print_table


class Reduction(StrEnum):
    """Reduction of the loss over samples."""

    mean = "mean"
    sum = "sum"


def command(
    point: Annotated[
        Path | None,
        typer.Argument(
            metavar="POINT",
            help=".npz or .safetensors with weight|W and features|X|H, sorted by class.",
        ),
    ] = None,
    example: Annotated[
        str | None, typer.Option(help="Example of ji2022 to classify instead of a file: 3.1.")
    ] = None,
    scale: Annotated[
        float, typer.Option(help="Factor that multiplies W and H of the example.")
    ] = 1.0,
    reduction: Annotated[
        Reduction, typer.Option(help="Reduction of the loss over samples; ji2022 takes the sum.")
    ] = Reduction.sum,
    as_json: JsonOption = False,
    out: Annotated[
        Path | None, typer.Option(metavar="<folder>", help="New folder for the run and figures.")
    ] = None,
) -> None:
    """Classify a point of the layer-peeled model: not critical, strict saddle or global minimum.

    The point is compared with all points of the same norm: the loss is studied on the sphere
    ||W||² + ||H||² = constant.

    Example: [bold]nclab landscape --example 3.1 --out runs/saddle[/bold]
    """
    from nclab.ulpm.examination import examine, find_point
    from nclab.ulpm.runs import prepare_folder, write_examination

    subject = find_point(point, example, scale=scale, reduction=reduction.value)
    folder = None if out is None else prepare_folder(out)
    result = examine(subject)
    lines = [] if folder is None else write_examination(result, folder)
    if as_json:
        print_json(result.to_dict())
    else:
        print_table(*result.show(), *lines)
