"""`nclab measure`: the neural collapse of saved features."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nclab.cli.shared import (
    AddressOption,
    EngineName,
    EngineOption,
    JsonOption,
    WorkersOption,
    open_engine,
    print_json,
    print_table,
)
from nclab.errors import NclabError

if TYPE_CHECKING:
    from nclab.measurement.collapse import Collapse


def command(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help=".npz or .safetensors with features|X, labels|y and, optionally, weight and bias; "
            ".csv with a label in every row; .npy of features with --labels; or shards of features "
            "and labels: several files, a folder or a pattern, also .npy and Parquet.",
        ),
    ],
    head: Annotated[
        Path | None,
        typer.Option(metavar="<file>", help="File with weight and bias, if FILE lacks them."),
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(
            metavar="<file>", help="File with the labels, .npy or .csv, if FILE has no labels."
        ),
    ] = None,
    test: Annotated[
        Path | None,
        typer.Option(
            metavar="<file>",
            help="File, folder or pattern with test features and labels, to compare with the class "
            "means of FILE.",
        ),
    ] = None,
    as_json: JsonOption = False,
    one_pass: Annotated[
        bool,
        typer.Option(
            "--one-pass", help="Read the features once; skip metrics that need a second pass."
        ),
    ] = False,
    metrics: Annotated[
        str,
        typer.Option(
            help="'default', 'all' (adds expensive metrics), or names of metrics, separated by "
            "commas."
        ),
    ] = "default",
    intervals: Annotated[
        bool, typer.Option("--intervals", help="Show scalars with approximate 95 % intervals.")
    ] = False,
    shuffled_labels: Annotated[
        bool,
        typer.Option(
            "--shuffled-labels", help="Also measure with shuffled labels, which gives a baseline."
        ),
    ] = False,
    min_count: Annotated[
        int | None,
        typer.Option(
            metavar="<int>",
            help="Skip classes with fewer samples than this; 1 skips classes without samples.",
            min=1,
            max=2**62,
        ),
    ] = None,
    num_classes: Annotated[
        int | None,
        typer.Option(
            metavar="<int>",
            help="Number of classes, if the labels do not contain the last class.",
            min=2,
            max=2**40,
        ),
    ] = None,
    ignore_index: Annotated[
        int,
        typer.Option(
            metavar="<int>", help="Skip rows with this label.", min=-(2**63), max=2**63 - 1
        ),
    ] = -100,
    class_names: Annotated[
        str | None, typer.Option(help="Names of classes 0, 1, 2, …: cat,dog,fox.")
    ] = None,
    engine: EngineOption = EngineName.local,
    address: AddressOption = None,
    workers: WorkersOption = None,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Skip shards that cannot be read.")
    ] = False,
) -> None:
    """Measure the neural collapse of saved features and of their classifier.

    Example: [bold]nclab measure features.npz --head head.safetensors --json[/bold]

    With many files: [bold]nclab measure features/*.safetensors --head head.safetensors[/bold]

    With many classes: [bold]nclab measure features/*.safetensors --one-pass[/bold]
    """
    shards = [] if labels is not None and len(files) == 1 else _shards(files)
    if labels is not None and shards:
        raise NclabError(f"Expected one FILE with --labels, got {len(shards)}.")
    test_shards = [] if test is None else _shards([test])
    file_options = {"intervals": intervals, "shuffled_labels": shuffled_labels}
    if shards or test_shards:
        count = len(shards or test_shards)
        flags = {f"--{name.replace('_', '-')}": value for name, value in file_options.items()}
        _reject_flags(flags, f"a single .npz or .safetensors file, got {count} shards")
    else:
        flags = {"--engine": engine is not EngineName.local, "--address": address is not None}
        flags |= {"--workers": workers is not None, "--skip-bad": skip_bad}
        _reject_flags(flags, "several files or a folder, got one file")
    weight, bias = _head(files[0], head, shards)
    options: dict[str, Any] = {
        "weight": weight,
        "bias": bias,
        "num_classes": num_classes,
        "ignore_index": ignore_index,
        "second_pass": not one_pass,
        "min_count": min_count,
        "class_names": None if class_names is None else class_names.split(","),
        "metrics": metrics.split(",") if "," in metrics else metrics,
    }
    with open_engine(engine, address) as opened:
        shard_options = {"engine": opened, "workers": workers, "skip_bad": skip_bad}
        options_of_kind: dict[str, Any] = shard_options if shards else file_options
        collapse = _measured(files[0], shards, labels, **options, **options_of_kind)
        test_collapse = None
        if test is not None:
            options_of_kind = shard_options if test_shards else file_options
            options |= _classes_of_training(collapse, options)
            try:
                test_collapse = _measured(
                    test, test_shards, None, reference=collapse, **options, **options_of_kind
                )
            except NclabError as error:
                if str(test) in str(error):
                    raise
                raise NclabError(f"{test}: {error}") from error
    name = f"{len(shards)} files" if len(shards) > 1 else files[0].name
    title = (
        f"{name}: {collapse.samples} samples, {collapse.num_classes} classes, "
        f"dimension {collapse.dim}"
    )
    if test is None or test_collapse is None:
        print_json(collapse.to_dict()) if as_json else print_table(title, collapse)
    elif as_json:
        print_json({**collapse.to_dict(), "test": test_collapse.to_dict()})
    else:
        from nclab.measurement.display import train_and_test

        title += f"; {test.name}: {test_collapse.samples} samples"
        train, held_out = replace(collapse, split="train"), replace(test_collapse, split="test")
        print_table(title, train_and_test(train, held_out))


def _classes_of_training(collapse: "Collapse", options: dict[str, Any]) -> dict[str, Any]:
    """Return the options for measuring a test set with the classes of the training data.

    A test set may lack the last classes, and may have classes that were skipped in training.
    """
    if options["class_names"] is not None:
        return {}
    if collapse.class_names is not None:  # labels are names
        return {"class_names": collapse.class_names}
    if options["num_classes"] is None and options["weight"] is None:
        return {"num_classes": max((*collapse.classes, *collapse.left_out)) + 1}
    return {}


def _measured(
    file: Path, shards: list[Path], label_file: Path | None, **options: Any
) -> "Collapse":
    """Measure shards (files with parts of one data set), or one file with separate labels."""
    from nclab.array_files import FEATURES, LABELS, pick, read_arrays, read_labels
    from nclab.measurement.arrays import measure_features
    from nclab.measurement.shards import measure_shards

    if shards:
        return measure_shards(shards, **options)
    arrays = read_arrays(file)
    features = pick(arrays, FEATURES, file)
    labels = pick(arrays, LABELS, file) if label_file is None else read_labels(label_file)
    return measure_features(features, labels, **options)


def _head(file: Path, head: Path | None, shards: list[Path]) -> tuple[Any, Any]:
    """Return weight and bias from the file of --head, else from FILE or the first shard."""
    from nclab.array_files import BIAS, WEIGHT, pick, pick_optional, read_arrays

    if head is not None:
        arrays = read_arrays(head)
        return pick(arrays, WEIGHT, head), pick_optional(arrays, BIAS)
    first = shards[0] if shards else file
    if shards and first.suffix not in (".npz", ".safetensors"):
        return None, None
    arrays = read_arrays(first)
    return pick_optional(arrays, WEIGHT), pick_optional(arrays, BIAS)


def _shards(files: list[Path]) -> list[Path]:
    """Return the files to be read as shards; nothing if a single file is read into memory."""
    from nclab.measurement.shard_files import SUFFIXES, find_shards, is_pattern

    first = files[0]
    in_slices = first.suffix in SUFFIXES and first.suffix not in (".npz", ".safetensors")
    if len(files) > 1 or first.is_dir() or is_pattern(first) or in_slices:
        return find_shards(files)
    return []


def _reject_flags(flags: dict[str, bool], needed: str) -> None:
    """Raise for the first flag that is set."""
    for flag, is_set in flags.items():
        if is_set:
            raise NclabError(f"Expected {flag} only with {needed}.")
