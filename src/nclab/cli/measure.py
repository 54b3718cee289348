"""`nclab measure`: the neural collapse of saved features."""

from pathlib import Path
from typing import Annotated, Any

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
    test: Annotated[
        Path | None,
        typer.Option(help="File of test features and labels, compared with FILE's class means."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    one_pass: Annotated[
        bool, typer.Option("--one-pass", help="Only what one reading of the features gives.")
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
    class_names: Annotated[
        str | None, typer.Option(help="Names of the classes in order: cat,dog,fox.")
    ] = None,
    soft: Annotated[
        bool, typer.Option("--soft", help="Labels are distributions over the classes, (N, C).")
    ] = False,
) -> None:
    """Measure the neural collapse of saved features, and of the classifier that reads them.

    Example: [bold]nclab measure features.npz --head head.safetensors --json[/bold]
    """
    from nclab.data.arrays import BIAS, FEATURES, LABELS, WEIGHT, pick, pick_optional, read_arrays
    from nclab.measurement.arrays import measure_features
    from nclab.measurement.table import side_by_side

    arrays = read_arrays(file)
    heads = arrays if head is None else read_arrays(head)
    options: dict[str, Any] = {
        "weight": pick_optional(heads, WEIGHT) if head is None else pick(heads, WEIGHT, head),
        "bias": pick_optional(heads, BIAS),
        "num_classes": num_classes,
        "ignore_index": ignore_index,
        "second_look": not one_pass,
        "class_names": None if class_names is None else class_names.split(","),
        "soft": soft,
    }
    features, labels = pick(arrays, FEATURES, file), pick(arrays, LABELS, file)
    collapse = measure_features(features, labels, allow_missing=allow_missing, **options)
    title = (
        f"{file.name}: {collapse.samples} samples, {collapse.num_classes} classes, "
        f"dimension {collapse.dim}"
    )
    if test is None:
        print_json(collapse.to_dict()) if as_json else print_table(title, collapse)
        return
    others = read_arrays(test)
    features, labels = pick(others, FEATURES, test), pick(others, LABELS, test)
    if num_classes is None:  # a test set may lack the last classes
        options["num_classes"] = max(collapse.classes) + 1
    held_out = measure_features(features, labels, reference=collapse, **options)
    if as_json:
        print_json({**collapse.to_dict(), "test": held_out.to_dict()})
        return
    rows = [*collapse.table_rows(), *held_out.table_rows()]
    named = [{**row, "split": split} for row, split in zip(rows, ("train", "test"), strict=True)]
    print_table(f"{title}; {test.name}: {held_out.samples} samples", side_by_side(named))
