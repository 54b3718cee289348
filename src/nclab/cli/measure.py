"""`nclab measure`: the neural collapse of saved features."""

from pathlib import Path
from typing import Annotated

import typer

from nclab.cli.output import print_json, print_table


def command(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help=".npz or .safetensors with features|X, labels|y and, optionally, weight and bias.",
        ),
    ],
    head: Annotated[
        Path | None, typer.Option(help="File with weight and bias, if FILE has none.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    one_pass: Annotated[
        bool, typer.Option("--one-pass", help="Only what one reading of the features gives.")
    ] = False,
    metrics: Annotated[
        str, typer.Option(help="'all' adds the dearer metrics; or names of them, with commas.")
    ] = "default",
    intervals: Annotated[
        bool, typer.Option("--intervals", help="Show every scalar with its 95 % interval.")
    ] = False,
    null: Annotated[
        bool, typer.Option("--null", help="Show what shuffled labels would score, too.")
    ] = False,
    allow_missing: Annotated[
        bool, typer.Option("--allow-missing", help="Leave out classes without samples.")
    ] = False,
    num_classes: Annotated[
        int | None,
        typer.Option(help="Number of classes, if the labels do not show it.", min=2, max=2**40),
    ] = None,
    ignore_index: Annotated[
        int, typer.Option(help="Label of rows to skip.", min=-(2**63), max=2**63 - 1)
    ] = -100,
) -> None:
    """Measure the neural collapse of saved features, and of the classifier that reads them.

    Example: [bold]nclab measure features.npz --head head.safetensors --json[/bold]
    """
    from nclab.data.arrays import BIAS, FEATURES, LABELS, WEIGHT, pick, pick_optional, read_arrays
    from nclab.measurement.arrays import measure_features

    arrays = read_arrays(file)
    heads = arrays if head is None else read_arrays(head)
    collapse = measure_features(
        pick(arrays, FEATURES, file),
        pick(arrays, LABELS, file),
        weight=pick_optional(heads, WEIGHT) if head is None else pick(heads, WEIGHT, head),
        bias=pick_optional(heads, BIAS),
        num_classes=num_classes,
        ignore_index=ignore_index,
        allow_missing=allow_missing,
        second_look=not one_pass,
        metrics=metrics.split(",") if "," in metrics else metrics,
        intervals=intervals,
        null=null,
    )
    if as_json:
        print_json(collapse.to_dict())
    else:
        print_table(
            f"{file.name}: {collapse.samples} samples, {collapse.num_classes} classes, "
            f"dimension {collapse.dim}",
            collapse,
        )
