"""`nclab measure`: the neural collapse of saved features."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nclab.cli.engine import AddressOption, EngineName, EngineOption, chosen
from nclab.cli.flags import in_flags
from nclab.cli.output import print_json, print_table
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
        typer.Option(metavar="<file>", help="File with weight and bias, if FILE has none."),
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(
            metavar="<file>", help="File with the labels, .npy or .csv, if FILE has none."
        ),
    ] = None,
    test: Annotated[
        Path | None,
        typer.Option(
            metavar="<file>",
            help="File, folder or pattern of test features and labels, compared with FILE's class "
            "means.",
        ),
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
    shuffled_labels: Annotated[
        bool,
        typer.Option("--shuffled-labels", help="Show also the scores of shuffled labels."),
    ] = False,
    allow_missing: Annotated[
        bool, typer.Option("--allow-missing", help="Leave out classes without samples.")
    ] = False,
    min_count: Annotated[
        int | None,
        typer.Option(
            metavar="<int>",
            help="Leave out classes with fewer samples; 1 for those without.",
            min=1,
            max=2**62,
        ),
    ] = None,
    next_tokens: Annotated[
        bool,
        typer.Option(
            "--next-tokens",
            help="Features are hidden states (B, T, d), labels the tokens (B, T): each row's label "
            "is the next one.",
        ),
    ] = False,
    num_classes: Annotated[
        int | None,
        typer.Option(
            metavar="<int>",
            help="Number of classes, if the labels do not show it.",
            min=2,
            max=2**40,
        ),
    ] = None,
    ignore_index: Annotated[
        int,
        typer.Option(metavar="<int>", help="Label of rows to skip.", min=-(2**63), max=2**63 - 1),
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
            metavar="<int>",
            help="Processes for shards; by default one per core, 0 for none beside this.",
            min=0,
        ),
    ] = None,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Leave out shards that cannot be read.")
    ] = False,
    keep: Annotated[
        Path | None,
        typer.Option(
            metavar="<folder>",
            help="Folder for the sums of shards that are done, to go on after a kill.",
        ),
    ] = None,
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
    shards = [] if labels is not None and len(files) == 1 else _shards(files)
    if labels is not None and shards:
        raise NclabError(f"Expected --labels with one FILE, got it with {len(shards)}.")
    others = [] if test is None else _shards([test])
    whole = {"shuffled_labels": shuffled_labels, "soft": soft, "next_tokens": next_tokens}
    many = {
        "--engine": engine is not EngineName.local,
        "--address": address is not None,
        "--workers": workers is not None,
        "--skip-bad": skip_bad,
        "--keep": keep is not None,
    }
    _refuse(
        {f"--{name.replace('_', '-')}": given for name, given in whole.items()}
        if shards or others
        else many,
        shards or others,
    )
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
        "intervals": intervals,
        "memory": memory,
    }
    with chosen(engine, address) as place:
        of_shards = {"engine": place, "workers": workers, "skip_bad": skip_bad, "keep": keep}
        own: dict[str, Any] = of_shards if shards else whole
        with in_flags():
            both = {**options, **own, "allow_missing": allow_missing}
            collapse = _measured(files[0], shards, labels, **both)
        title = (
            f"{f'{len(shards)} files' if len(shards) > 1 else files[0].name}: "
            f"{collapse.samples} samples, {collapse.num_classes} classes, dimension {collapse.dim}"
        )
        if test is None:
            print_json(collapse.to_dict()) if as_json else print_table(title, collapse)
            return
        if class_names is None and collapse.class_names is not None:  # the labels are names
            options["class_names"] = collapse.class_names
        elif num_classes is None and class_names is None and weight is None:
            # A test set may lack the last classes, and have those that are left out here.
            options["num_classes"] = max((*collapse.classes, *collapse.left_out)) + 1
        own = of_shards if others else whole
        with in_flags(test):
            held_out = _measured(test, others, None, reference=collapse, **options, **own)
    if as_json:
        print_json({**collapse.to_dict(), "test": held_out.to_dict()})
    else:
        print_table(f"{title}; {test.name}: {held_out.samples} samples", _both(collapse, held_out))


def _measured(file: Path, shards: list[Path], beside: Path | None, **options: Any) -> "Collapse":
    """One file that is read whole, its labels perhaps in another, or shards."""
    from nclab.array_files import FEATURES, LABELS, pick, read_arrays, read_labels
    from nclab.measurement.arrays import measure_features
    from nclab.measurement.shards import measure_shards

    if shards:
        return measure_shards(shards, **options)
    arrays = read_arrays(file)
    features = pick(arrays, FEATURES, file)
    labels = pick(arrays, LABELS, file) if beside is None else read_labels(beside)
    return measure_features(features, labels, **options)


def _head(file: Path, head: Path | None, shards: list[Path]) -> tuple[Any, Any]:
    """Weight and bias: of the file of their own, else of FILE, else what all shards hold."""
    from nclab.array_files import BIAS, WEIGHT, pick, pick_optional, read_arrays
    from nclab.measurement.shard_files import common_head

    if head is not None:
        arrays = read_arrays(head)
        return pick(arrays, WEIGHT, head), pick_optional(arrays, BIAS)
    if shards:
        with in_flags():
            return common_head(shards)
    arrays = read_arrays(file)
    return pick_optional(arrays, WEIGHT), pick_optional(arrays, BIAS)


def _both(collapse: "Collapse", held_out: "Collapse") -> Any:
    """Return training and test data side by side."""
    from dataclasses import replace

    from nclab.measurement.display import train_and_test

    return train_and_test(replace(collapse, split="train"), replace(held_out, split="test"))


def _shards(files: list[Path]) -> list[Path]:
    """The files that are measured as one array; none where a single file is read whole."""
    from nclab.measurement.shard_files import SUFFIXES, find_shards, is_pattern

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
