"""`nclab certify`: guarantees that follow from the loss."""

from pathlib import Path
from typing import Annotated, Any

import typer

from nclab.cli.shared import (
    COUNTS_HELP,
    JsonOption,
    print_json,
    print_table,
    read_counts,
    text_table,
)
from nclab.errors import DataError


def command(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE]",
            help=".npz or .safetensors with features|X, labels|y, weight and, optionally, bias.",
        ),
    ] = None,
    classes: Annotated[int | None, typer.Option(help="Number of classes.")] = None,
    counts: Annotated[
        str | None,
        typer.Option(help=f"{COUNTS_HELP} Then --alpha and --loss are means over all samples."),
    ] = None,
    alpha: Annotated[float | None, typer.Option(help="Root mean square feature norm.")] = None,
    beta: Annotated[
        float | None, typer.Option(help="Root mean square norm of the classifier rows.")
    ] = None,
    loss: Annotated[
        float | None,
        typer.Option(
            help="Cross-entropy in nats, averaged over classes; with --counts over samples."
        ),
    ] = None,
    bias_norm: Annotated[
        float, typer.Option(help="Norm of the bias after subtracting its mean.")
    ] = 0.0,
    delta: Annotated[
        float | None, typer.Option(help="Share of classes and pairs that the bounds may ignore.")
    ] = None,
    weight_decay: Annotated[
        float | None, typer.Option(help="Describe the optimum with this weight decay instead.")
    ] = None,
    head: Annotated[
        Path | None,
        typer.Option(metavar="<file>", help="File with weight and bias, if FILE has none."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print what the loss of a classifier guarantees about the geometry of its features.

    Example: [bold]nclab certify --classes 10 --alpha 2.2 --beta 2.3 --loss 0.035[/bold]

    For saved features: [bold]nclab certify features.npz --head head.safetensors[/bold]

    With class counts: [bold]nclab certify --counts 3x10,3x1 --alpha 2 --beta 1 --loss 0.3[/bold]

    With weight decay: [bold]nclab certify --classes 10 --weight-decay 5e-4[/bold]
    """
    numbers = {"--alpha": alpha, "--beta": beta, "--loss": loss}
    extra = {"--bias-norm": bias_norm} if bias_norm else {}
    used = [name for name, value in (numbers | extra).items() if value is not None]
    if file is not None:
        if used or any(option is not None for option in (classes, counts, weight_decay)):
            raise DataError("Expected FILE alone, or --classes with numbers, got both.")
        value, table = _of_file(file, head, delta)
    elif head is not None:
        raise DataError("Expected --head only together with FILE, got it alone.")
    elif classes is None and counts is None:
        raise DataError("Expected FILE or --classes, got neither. See nclab certify --help.")
    elif weight_decay is not None:
        used += ["--delta"] if delta is not None else []
        used += ["--counts (use nclab target)"] if counts is not None else []
        if used:
            raise DataError(f"Expected --weight-decay without {used[0]}, got both.")
        assert classes is not None
        value, table = _of_weight_decay(classes, weight_decay)
    else:
        from nclab.theory.certificates.certification import certify

        if alpha is None or beta is None or loss is None:
            absent = next(name for name, number in numbers.items() if number is None)
            raise DataError(f"Expected --alpha, --beta and --loss, but {absent} is missing.")
        options: dict[str, Any] = {"bias_norm": bias_norm}
        if counts is not None:
            options["counts"] = read_counts(counts)
            classes = len(options["counts"]) if classes is None else classes
        assert classes is not None
        certificate = certify(classes, alpha, beta, loss, delta, **options)
        value, table = certificate.to_dict(), certificate
    if as_json:
        print_json(value)
    else:
        print_table(table)


def _of_file(file: Path, head: Path | None, delta: float | None) -> tuple[dict[str, Any], Any]:
    from nclab.array_files import BIAS, FEATURES, LABELS, WEIGHT, pick, pick_optional, read_arrays
    from nclab.measurement.arrays import measure_features

    arrays = read_arrays(file)
    heads = arrays if head is None else read_arrays(head)
    collapse = measure_features(
        pick(arrays, FEATURES, file),
        pick(arrays, LABELS, file),
        weight=pick(heads, WEIGHT, head or file),
        bias=pick_optional(heads, BIAS),
    )
    certificate = collapse.certificate(delta)
    return certificate.to_dict(), certificate


def _of_weight_decay(classes: int, weight_decay: float) -> tuple[dict[str, Any], Any]:
    from rich.console import Group

    from nclab.theory.certificates.regularised import regularised_optimum

    optimum = regularised_optimum(classes, weight_decay)
    values = {
        "alpha * beta": optimum.product,
        "alpha, rms feature norm": optimum.alpha,
        "beta, rms row norm": optimum.beta,
        "loss": optimum.optimal_loss,
        "loss with penalty": optimum.objective,
        "critical weight decay": optimum.critical_weight_decay,
    }
    headings = ("quantity", "at the optimum")
    rows = [(name, f"{value:.6g}") for name, value in values.items()]
    table = text_table(headings, rows, right=headings[1:])
    if optimum.product > 0:
        conclusion = (
            "At the optimum, the network is a simplex ETF with these norms. From the critical "
            "weight decay on, all weights and features would be zero."
        )
    else:
        conclusion = "This weight decay is at least the critical one, so the optimum is zero."
    return optimum.to_dict(), Group(table, conclusion)
