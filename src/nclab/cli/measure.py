"""`nclab measure`: the neural collapse of saved features."""

from pathlib import Path
from typing import Annotated, Any

import typer

from nclab.cli.engine import AddressOption, EngineName, EngineOption, chosen
from nclab.cli.output import print_json, print_table
from nclab.errors import NclabError


def command(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help=".npz or .safetensors with features|X, labels|y and, optionally, weight and bias; "
            "or shards of features and labels: several files, a folder or a pattern, also .npy and "
            "Parquet.",
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
    class_names: Annotated[
        str | None, typer.Option(help="Names of the classes in order: cat,dog,fox.")
    ] = None,
    soft: Annotated[
        bool, typer.Option("--soft", help="Labels are distributions over the classes, (N, C).")
    ] = False,
    engine: EngineOption = EngineName.local,
    address: AddressOption = None,
    workers: Annotated[
        int | None,
        typer.Option(
            help="Processes for shards; by default one per core, 0 for none beside this.", min=0
        ),
    ] = None,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Leave out shards that cannot be read.")
    ] = False,
    memory: Annotated[
        str | None,
        typer.Option(help="What may be used beside the features: 8GB. More is refused at once."),
    ] = None,
) -> None:
    """Measure the neural collapse of saved features, and of the classifier that reads them.

    Example: [bold]nclab measure features.npz --head head.safetensors --json[/bold]

    Of many files: [bold]nclab measure features/*.safetensors --head head.safetensors[/bold]

    Of many classes: [bold]nclab measure features/*.safetensors --memory 8GB --one-pass[/bold]
    """
    from dataclasses import replace

    from rich.console import Group
    from rich.text import Text

    from nclab.data.arrays import BIAS, FEATURES, LABELS, WEIGHT, pick, pick_optional, read_arrays
    from nclab.measurement.arrays import measure_features
    from nclab.measurement.shards import measure_shards
    from nclab.measurement.table import side_by_side

    shards = _shards(files)
    single = {
        "--test": test is not None,
        "--metrics": metrics != "default",
        "--intervals": intervals,
        "--null": null,
        "--soft": soft,
    }
    many = {
        "--engine": engine is not EngineName.local,
        "--address": address is not None,
        "--workers": workers is not None,
        "--skip-bad": skip_bad,
    }
    _refuse(single if shards else many, shards)
    file = files[0]
    arrays = {} if shards else read_arrays(file)
    heads = arrays if head is None else read_arrays(head)
    options: dict[str, Any] = {
        "weight": pick_optional(heads, WEIGHT) if head is None else pick(heads, WEIGHT, head),
        "bias": pick_optional(heads, BIAS),
        "num_classes": num_classes,
        "ignore_index": ignore_index,
        "second_look": not one_pass,
        "class_names": None if class_names is None else class_names.split(","),
        "memory": memory,
    }
    if shards:
        with chosen(engine, address) as place:
            options |= {"engine": place, "workers": workers, "skip_bad": skip_bad}
            collapse = measure_shards(shards, allow_missing=allow_missing, **options)
    else:
        options |= {
            "metrics": metrics.split(",") if "," in metrics else metrics,
            "intervals": intervals,
            "null": null,
            "soft": soft,
        }
        features, labels = pick(arrays, FEATURES, file), pick(arrays, LABELS, file)
        collapse = measure_features(features, labels, allow_missing=allow_missing, **options)
    title = (
        f"{f'{len(shards)} files' if len(shards) > 1 else file.name}: {collapse.samples} samples, "
        f"{collapse.num_classes} classes, dimension {collapse.dim}"
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
    both = replace(collapse, split="train"), replace(held_out, split="test")
    rows = [row for one in both for row in one.table_rows()]
    lines = [Text(line) for one in both for line in one.lines()]
    shown = Group(side_by_side(rows), *lines)
    print_table(f"{title}; {test.name}: {held_out.samples} samples", shown)


def _shards(files: list[Path]) -> list[Path]:
    """The files that are measured as one array; none where a single file is read whole."""
    from nclab.data.shards import SUFFIXES, find_shards, is_pattern

    one = files[0]
    in_slices = one.suffix in SUFFIXES and one.suffix not in (".npz", ".safetensors")
    if len(files) > 1 or one.is_dir() or is_pattern(one) or in_slices:
        return find_shards(files)
    return []


def _refuse(flags: dict[str, bool], shards: list[Path]) -> None:
    """Refuse options that shards, or a file that is read whole, do not have."""
    for flag in (flag for flag, given in flags.items() if given):
        if shards:
            raise NclabError(
                f"Expected {flag} with a single .npz or .safetensors file only, got {len(shards)} "
                "shards."
            )
        raise NclabError(f"Expected {flag} with several files or a folder only, got one file.")
