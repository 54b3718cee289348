"""`nclab target`: the optimal geometry for a loss, class counts and weight decay."""

import io
from pathlib import Path
from typing import Annotated, Any

import typer

from nclab.cli.shared import COUNTS_HELP, JsonOption, print_json, print_table, read_counts
from nclab.errors import DataError


def command(
    classes: Annotated[int | None, typer.Option(help="Number of equally large classes.")] = None,
    counts: Annotated[str | None, typer.Option(help=COUNTS_HELP)] = None,
    weight_decay: Annotated[
        str | None,
        typer.Option(
            help="Weight decay λ_W,λ_H of classifier and features. One number λ means λ,λ/n for n "
            "samples; 0 means the limit λ → 0."
        ),
    ] = None,
    norms: Annotated[
        str | None,
        typer.Option(
            help="Instead of weight decay: the root mean square norms α,β of features and of "
            "classifier rows."
        ),
    ] = None,
    loss: Annotated[
        str, typer.Option(help="cross_entropy, label_smoothing, focal or mse.")
    ] = "cross_entropy",
    smoothing: Annotated[
        float | None,
        typer.Option(help="Share of the label that label_smoothing spreads over all classes."),
    ] = None,
    focal_gamma: Annotated[
        float | None, typer.Option(help="Exponent γ of the focal loss, -(1 - p)^γ log p.")
    ] = None,
    bias: Annotated[
        str,
        typer.Option(help="Weight decay of the bias; 0 for a free bias, none for no bias."),
    ] = "none",
    features: Annotated[str, typer.Option(help="free, or relu for nonnegative features.")] = "free",
    dim: Annotated[int | None, typer.Option(help="Dimension of the features.")] = None,
    depth: Annotated[int, typer.Option(help="Number of linear maps after the features.")] = 1,
    plot: Annotated[
        Path | None, typer.Option(metavar="<file>", help="Draw the result: .png, .svg or .pdf.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Compute the geometry that minimises the loss for given class counts and weight decay.

    A network that is trained to the end should reach this geometry.

    Example: [bold]nclab target --counts 5x100,5x1 --weight-decay 5e-4[/bold]

    With measured norms: [bold]nclab target --counts 10,10,1,1 --norms 2.2,2.3 --bias 0[/bold]
    """
    if classes is None and counts is None:
        raise DataError("Expected --classes or --counts, got neither.")
    if weight_decay is None and norms is None:
        raise DataError("Expected --weight-decay or --norms, got neither.")
    from nclab.theory.targets.dispatch import target

    try:
        penalty = None if bias.strip().lower() == "none" else float(bias)
    except ValueError:
        raise DataError(f"Expected --bias as a penalty or none, got {bias!r}.") from None
    optimum = target(
        classes,
        counts=None if counts is None else read_counts(counts),
        dim=dim,
        loss=loss,
        weight_decay=None if weight_decay is None else _numbers("--weight-decay", weight_decay),
        norms=None if norms is None else _numbers("--norms", norms),
        bias=penalty,
        features=features,
        depth=depth,
        smoothing=smoothing,
        focal_gamma=focal_gamma,
    )
    if plot is not None:
        _save(optimum.plot()[0], plot)
    if as_json:
        print_json(optimum.to_dict())
    else:
        print_table(optimum, *([f"drew {plot}"] if plot else []))


def _save(figure: Any, path: Path) -> None:
    """Write a figure in the format of the file's suffix."""
    from nclab.files import write_whole

    if path.suffix not in (".png", ".svg", ".pdf"):
        raise DataError(f"Expected --plot as .png, .svg or .pdf, got {path.name}.")
    content = io.BytesIO()
    figure.savefig(content, format=path.suffix[1:], dpi=150)
    write_whole(path, content.getvalue(), through_link=True)


def _numbers(option: str, text: str) -> Any:
    """Return one number, or a tuple of comma-separated numbers."""
    try:
        numbers = tuple(float(part) for part in text.split(","))
    except ValueError:
        raise DataError(f"Expected numbers in {option}, got {text!r}.") from None
    return numbers[0] if len(numbers) == 1 else numbers
