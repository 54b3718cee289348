"""`nclab ulpm`: one run of the unconstrained layer-peeled model."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from nclab.cli.output import print_json, print_table


class Method(StrEnum):
    """How to go down."""

    descent = "descent"
    normalised = "normalised"
    flow = "flow"


class Reduction(StrEnum):
    """The loss over samples."""

    mean = "mean"
    sum = "sum"


def command(
    classes: Annotated[int, typer.Option(help="Number of classes, C.")] = 5,
    per_class: Annotated[int, typer.Option(help="Samples per class, N.")] = 10,
    dim: Annotated[int, typer.Option(help="Dimension of the features, at least C - 1.")] = 20,
    method: Annotated[Method, typer.Option(help="How to go down.")] = Method.descent,
    steps: Annotated[int | None, typer.Option(help="Steps of either descent.")] = None,
    log_time: Annotated[
        float | None, typer.Option(help="Last time of the flow, as log t: 1000 is t = 1e434.")
    ] = None,
    scale: Annotated[float, typer.Option(help="Standard deviation of the start.")] = 0.1,
    seed: Annotated[int, typer.Option(help="Seed of the start and of the noise.", min=0)] = 0,
    rate: Annotated[
        float | None, typer.Option(help="Rate; by default 5, and 300 for normalised descent.")
    ] = None,
    reduction: Annotated[Reduction, typer.Option(help="Of the loss.")] = Reduction.mean,
    noise: Annotated[float, typer.Option(help="Noise in the gradient, for descent.")] = 0.0,
    batch: Annotated[int | None, typer.Option(help="Samples a step, for descent.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the last sample as JSON.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(metavar="RUN", help="New folder for samples, last point and figures."),
    ] = None,
) -> None:
    """Follow the unconstrained layer-peeled model: descent, normalised descent or gradient flow.

    Example: [bold]nclab ulpm --classes 5 --method flow --log-time 1000 --out runs/flow[/bold]
    """
    from nclab.ulpm import recorded as ulpm_run

    config = ulpm_run.Config(
        classes=classes,
        per_class=per_class,
        dim=dim,
        method=method.value,
        steps=steps,
        log_time=log_time,
        scale=scale,
        seed=seed,
        rate=rate,
        reduction=reduction.value,
        noise=noise,
        batch=batch,
    )
    folder = None if out is None else ulpm_run.prepare_folder(out)
    run = ulpm_run.execute(config)
    lines = [] if folder is None else ulpm_run.write_run(run, folder)
    if as_json:
        print_json(run.to_dict())
    else:
        print_table(*run.show(), *lines)
