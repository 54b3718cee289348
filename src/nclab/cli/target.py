"""`nclab target`: where a network of a setting should end."""

import io
from pathlib import Path
from typing import Annotated, Any

import typer

from nclab.cli.counts import COUNTS, read_counts
from nclab.cli.flags import naming_flags
from nclab.cli.output import print_json, print_table
from nclab.errors import DataError

FLAGS = {
    "num_classes": "--classes",
    "weight_decay": "--weight-decay",
    "focal_gamma": "--focal-gamma",
    **{name: f"--{name}" for name in ("counts", "norms", "loss", "smoothing", "bias")},
    **{name: f"--{name}" for name in ("features", "dim", "depth")},
}
"""What the parameters of `target` are called here."""


def command(
    classes: Annotated[int | None, typer.Option(help="Number of classes, one sample each.")] = None,
    counts: Annotated[str | None, typer.Option(help=COUNTS)] = None,
    weight_decay: Annotated[
        str | None,
        typer.Option(help="λ_W,λ_H; one number λ for λ,λ/n; 0 for the limit of none."),
    ] = None,
    norms: Annotated[
        str | None, typer.Option(help="α,β instead: rms norm of features and of classifier rows.")
    ] = None,
    loss: Annotated[
        str, typer.Option(help="cross_entropy, label_smoothing, focal or mse.")
    ] = "cross_entropy",
    smoothing: Annotated[float | None, typer.Option(help="Of label_smoothing; 0.1.")] = None,
    focal_gamma: Annotated[float | None, typer.Option(help="Exponent of focal; 2.")] = None,
    bias: Annotated[
        str, typer.Option(help="Penalty of the bias; 0 for a free one; none without.")
    ] = "none",
    features: Annotated[str, typer.Option(help="free, or relu for no negative features.")] = "free",
    dim: Annotated[int | None, typer.Option(help="Dimension of the features.")] = None,
    depth: Annotated[int, typer.Option(help="Linear maps behind the features.")] = 1,
    phase: Annotated[
        str | None,
        typer.Option("--map", help="Where optima change: imbalance, bias or depth; no setting."),
    ] = None,
    points: Annotated[
        Path | None,
        typer.Option(
            metavar="<file>",
            help="Networks on the map: .csv or .json with imbalance and weight_decay; "
            "weight_decay_share and bias_penalty; or classes and depth; and their state.",
        ),
    ] = None,
    runs: Annotated[
        Path | None,
        typer.Option(
            metavar="RUNS",
            help="Networks of a finished sweep on the map of imbalance or bias, which is then that "
            "of their number of classes.",
        ),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="<file>", help="Draw it: .png, .svg or .pdf.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Say where a network should end: the optimum of its loss, counts and weight decay.

    Example: [bold]nclab target --counts 5x100,5x1 --weight-decay 5e-4[/bold]

    Of measured norms: [bold]nclab target --counts 10,10,1,1 --norms 2.2,2.3 --bias 0[/bold]

    Where classes merge: [bold]nclab target --map imbalance --plot merge.png[/bold]

    With networks on it: [bold]nclab target --map imbalance --runs RUNS --plot m.png[/bold]
    """
    if phase is not None:
        given = (classes, counts, weight_decay, norms, smoothing, focal_gamma, dim)
        usual = (loss, bias, features, depth) == ("cross_entropy", "none", "free", 1)
        if any(one is not None for one in given) or not usual:
            raise DataError("Expected --map alone or a setting, got both.")
        _map(phase, points, runs, plot, as_json)
        return
    if points is not None or runs is not None:
        name = "--runs" if points is None else "--points"
        raise DataError(f"Expected {name} beside --map only, got it alone.")
    from nclab.theory.targets.dispatch import target

    with naming_flags(FLAGS):
        found = target(
            classes,
            counts=None if counts is None else read_counts(counts),
            dim=dim,
            loss=loss,
            weight_decay=None if weight_decay is None else _numbers("--weight-decay", weight_decay),
            norms=None if norms is None else _numbers("--norms", norms),
            bias=_bias(bias),
            features=features,
            depth=depth,
            smoothing=smoothing,
            focal_gamma=focal_gamma,
        )
    if plot is not None:
        _save(found.plot()[0], plot)
    if as_json:
        print_json(found.to_dict())
    else:
        print_table(found, *([f"drew {plot}"] if plot else []))


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
        raise DataError("Expected --plot FILE or --json beside --map, got neither.")
    if plot is not None:
        _check_suffix(plot)
    rows: list[Any] = [] if points is None else list(read_points(points))
    options: dict[str, Any] = {}
    left_out: dict[str, int] = {}
    if runs is not None:
        from nclab.training.sweep.networks_on_map import sweep_points

        found, options, left_out = sweep_points(name, runs)
        rows += found
    given = points is not None or runs is not None
    if given:
        with_points({"map": name}, rows)  # refused before the map is computed
    numbers = phase_map(name, **options)
    if given:
        numbers = with_points(numbers, rows)
    if plot is not None:
        _save(draw_map(numbers), plot)
    if as_json:
        print_json({**numbers, **({"left_out": left_out} if left_out else {})})
        return
    drawn = f" with {len(numbers['points'])} networks" if given else ""
    others = [f"left out: {many} {reason}" for reason, many in left_out.items()]
    print_table(f"drew {plot}{drawn}", *others)


def _save(figure: Any, path: Path) -> None:
    from nclab.files import write_whole

    _check_suffix(path)
    content = io.BytesIO()
    figure.savefig(content, format=path.suffix[1:], dpi=150)
    write_whole(path, content.getvalue(), through_link=True)


def _check_suffix(path: Path) -> None:
    if path.suffix not in (".png", ".svg", ".pdf"):
        raise DataError(f"Expected --plot as .png, .svg or .pdf, got {path.name}.")


def _bias(text: str) -> float | None:
    """A penalty, or none."""
    if text.strip().lower() == "none":
        return None
    try:
        return float(text)
    except ValueError:
        raise DataError(f"Expected --bias as its penalty or none, got {text!r}.") from None


def _numbers(option: str, text: str) -> Any:
    """One number or a pair of them."""
    try:
        found = tuple(float(part) for part in text.split(","))
    except ValueError:
        raise DataError(f"Expected numbers in {option}, got {text!r}.") from None
    return found[0] if len(found) == 1 else found
