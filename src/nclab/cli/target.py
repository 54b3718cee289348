"""`nclab target`: the geometry in which a network of some setting should end."""

import io
from pathlib import Path
from typing import Annotated, Any

import typer

from nclab.cli.shared import COUNTS_HELP, JsonOption, print_json, print_table, read_counts
from nclab.errors import DataError


def command(
    classes: Annotated[int | None, typer.Option(help="Number of classes, equally large.")] = None,
    counts: Annotated[str | None, typer.Option(help=COUNTS_HELP)] = None,
    weight_decay: Annotated[
        str | None, typer.Option(help="λ_W,λ_H, or one number λ for λ,λ/n; 0 for the limit λ → 0.")
    ] = None,
    norms: Annotated[
        str | None,
        typer.Option(
            help="α,β instead of weight decay: rms norms of features and of classifier rows."
        ),
    ] = None,
    loss: Annotated[
        str, typer.Option(help="cross_entropy, label_smoothing, focal or mse.")
    ] = "cross_entropy",
    smoothing: Annotated[
        float | None, typer.Option(help="Smoothing; only for label_smoothing.")
    ] = None,
    focal_gamma: Annotated[
        float | None, typer.Option(help="Exponent; only for the focal loss.")
    ] = None,
    bias: Annotated[
        str, typer.Option(help="Penalty of the bias; 0 for a free bias, none for no bias.")
    ] = "none",
    features: Annotated[str, typer.Option(help="free, or relu for nonnegative features.")] = "free",
    dim: Annotated[int | None, typer.Option(help="Dimension of the features.")] = None,
    depth: Annotated[int, typer.Option(help="Number of linear maps after the features.")] = 1,
    phase: Annotated[
        str | None,
        typer.Option("--map", help="Map of optima over settings: imbalance, bias or depth."),
    ] = None,
    points: Annotated[
        Path | None,
        typer.Option(
            metavar="<file>",
            help="Networks to draw on the map: .csv or .json with their state and imbalance and "
            "weight_decay; weight_decay_share and bias_penalty; or classes and depth.",
        ),
    ] = None,
    runs: Annotated[
        Path | None,
        typer.Option(
            metavar="RUNS",
            help="Finished sweep whose networks to draw on the map of imbalance or bias; the map "
            "has their number of classes.",
        ),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="<file>", help="Draw the result: .png, .svg or .pdf.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Compute where a network should end: the optimum for its loss, counts and weight decay.

    Example: [bold]nclab target --counts 5x100,5x1 --weight-decay 5e-4[/bold]

    With measured norms: [bold]nclab target --counts 10,10,1,1 --norms 2.2,2.3 --bias 0[/bold]

    Map of where classes merge: [bold]nclab target --map imbalance --plot merge.png[/bold]

    With the networks of a sweep: [bold]nclab target --map imbalance --runs RUNS --plot m.png[/bold]
    """
    if phase is not None:
        options = (classes, counts, weight_decay, norms, smoothing, focal_gamma, dim)
        defaults = (loss, bias, features, depth) == ("cross_entropy", "none", "free", 1)
        if any(option is not None for option in options) or not defaults:
            raise DataError("Expected --map alone or a setting, got both.")
        _map(phase, points, runs, plot, as_json)
        return
    if points is not None or runs is not None:
        name = "--runs" if points is None else "--points"
        raise DataError(f"Expected {name} only together with --map, got it alone.")
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


def _map(
    name: str, points: Path | None, runs: Path | None, plot: Path | None, as_json: bool
) -> None:
    from nclab.theory.targets.phase_maps import (
        check_map,
        draw_map,
        phase_map,
        read_points,
        with_points,
    )

    check_map(name)
    if plot is None and not as_json:
        raise DataError("Expected --plot FILE or --json with --map, got neither.")
    if plot is not None:
        _check_suffix(plot)
    rows: list[Any] = [] if points is None else list(read_points(points))
    options: dict[str, Any] = {}
    skipped: dict[str, int] = {}
    if runs is not None:
        from nclab.training.sweep import sweep_points

        run_rows, options, skipped = sweep_points(name, runs)
        rows += run_rows
    networks = ""
    if points is not None or runs is not None:
        with_points({"map": name}, rows)  # raises before the map is computed
        numbers = with_points(phase_map(name, **options), rows)
        networks = f" with {len(numbers['points'])} networks"
    else:
        numbers = phase_map(name)
    if plot is not None:
        _save(draw_map(numbers), plot)
    if as_json:
        print_json({**numbers, **({"skipped": skipped} if skipped else {})})
        return
    lines = [f"skipped: {count} {reason}" for reason, count in skipped.items()]
    print_table(f"drew {plot}{networks}", *lines)


def _save(figure: Any, path: Path) -> None:
    from nclab.files import write_whole

    _check_suffix(path)
    content = io.BytesIO()
    figure.savefig(content, format=path.suffix[1:], dpi=150)
    write_whole(path, content.getvalue(), through_link=True)


def _check_suffix(path: Path) -> None:
    if path.suffix not in (".png", ".svg", ".pdf"):
        raise DataError(f"Expected --plot as .png, .svg or .pdf, got {path.name}.")


def _numbers(option: str, text: str) -> Any:
    """Return one number, or a tuple of comma-separated numbers."""
    try:
        numbers = tuple(float(part) for part in text.split(","))
    except ValueError:
        raise DataError(f"Expected numbers in {option}, got {text!r}.") from None
    return numbers[0] if len(numbers) == 1 else numbers
