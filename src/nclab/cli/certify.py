"""`nclab certify`: guarantees that follow from the loss."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nclab.cli.shared import COUNTS_HELP, JsonOption, print_json, print_table, read_counts
from nclab.errors import DataError

if TYPE_CHECKING:
    from nclab.theory.certificates.certificate import Certificate


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
        float | None,
        typer.Option(
            help="Also compute bounds that may fail for this share of the classes and of their "
            "pairs, between 0 and 1."
        ),
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
    """
    numbers = {"--alpha": alpha, "--beta": beta, "--loss": loss}
    if file is not None:
        options = (*numbers.values(), classes, counts, bias_norm or None)
        if any(option is not None for option in options):
            raise DataError("Expected either FILE, or --classes with loss and norms, got both.")
        certificate = _of_file(file, head, delta)
    elif head is not None:
        raise DataError("Expected --head only together with FILE, got it alone.")
    elif classes is None and counts is None:
        raise DataError("Expected FILE or --classes, got neither. See nclab certify --help.")
    elif alpha is None or beta is None or loss is None:
        absent = next(name for name, number in numbers.items() if number is None)
        raise DataError(f"Expected --alpha, --beta and --loss, but {absent} is missing.")
    else:
        from nclab.theory.certificates.certification import certify

        class_counts = None if counts is None else read_counts(counts)
        number = len(class_counts or ()) if classes is None else classes
        certificate = certify(
            number, alpha, beta, loss, delta, bias_norm=bias_norm, counts=class_counts
        )
    if as_json:
        print_json(certificate.to_dict())
    else:
        print_table(certificate)


def _of_file(file: Path, head: Path | None, delta: float | None) -> "Certificate":
    """Measure the features of a file and return the certificate of its classifier."""
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
    return collapse.certificate(delta)
