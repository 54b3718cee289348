"""`nclab sweep`: train many models and measure their collapse."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nclab.cli.engine import AddressOption, EngineName, EngineOption, chosen
from nclab.cli.output import print_json, print_table
from nclab.errors import NclabError

if TYPE_CHECKING:
    from nclab.papers.sweep.config import Source


class Measured(StrEnum):
    """Which layers are measured."""

    last = "last"
    all = "all"


class Statistics(StrEnum):
    """Statistics of batch norm while measuring."""

    running = "running"
    full = "full"


def command(
    data: Annotated[
        str,
        typer.Option(
            help="teacher, conic, or a .npz or .safetensors file with X|features|inputs and "
            "y|labels|targets."
        ),
    ] = "teacher",
    layers: Annotated[int, typer.Option(help="Linear layers, the classifier included.")] = 6,
    width: Annotated[int, typer.Option(help="Neurons of a hidden layer.")] = 300,
    norm: Annotated[
        str, typer.Option(help="Batch norm: affine, plain (no scale and shift), none.")
    ] = "affine,plain,none",
    weight_decay: Annotated[
        str, typer.Option(help="On every parameter.")
    ] = "1e-4,3e-4,5e-4,1e-3,3e-3,7e-3,1e-2",
    seeds: Annotated[str, typer.Option(help="Of first weights and batch order.")] = "0",
    epochs: Annotated[int, typer.Option(help="Passes over the data.")] = 300,
    batch: Annotated[int, typer.Option(help="Samples a step.")] = 128,
    rate: Annotated[float, typer.Option(help="First learning rate.")] = 0.0679,
    drop_last: Annotated[
        bool, typer.Option("--drop-last", help="Leave out a smaller last batch.")
    ] = False,
    teacher_depth: Annotated[int, typer.Option(help="Layers of the teacher.")] = 3,
    samples: Annotated[int, typer.Option(help="Samples of teacher or conic data.")] = 10_000,
    inputs: Annotated[int, typer.Option(help="Their dimension.")] = 16,
    classes: Annotated[int, typer.Option(help="Their classes.")] = 4,
    data_seed: Annotated[int, typer.Option(help="Their seed.")] = 0,
    standardise: Annotated[
        bool,
        typer.Option("--standardise", help="Give the columns of FILE mean 0 and variance 1."),
    ] = False,
    measure: Annotated[Measured, typer.Option(help="Layers to measure.")] = Measured.last,
    statistics: Annotated[
        Statistics,
        typer.Option(help="Measure with running averages of batch norm, or of the full data."),
    ] = Statistics.running,
    moments: Annotated[
        int | None, typer.Option(help="Epochs to measure; up to 12 by default.", min=1)
    ] = None,
    checkpoint_every: Annotated[
        int | None,
        typer.Option(help="Epochs between checkpoints; some seconds by default.", min=1),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Processes; by default one per core.", min=1)
    ] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    engine: EngineOption = EngineName.local,
    address: AddressOption = None,
    out: Annotated[Path, typer.Option(help="Folder for the runs.")] = Path("runs"),
    as_json: Annotated[bool, typer.Option("--json", help="Print a list of rows.")] = False,
) -> None:
    """Train a model for every norm, weight decay and seed, and measure their collapse.

    Stopped at any moment, the same command goes on where it was; finished models are reused.

    Example: [bold]nclab sweep --data teacher --width 64 --norm affine --weight-decay 1e-3,3e-3
    --epochs 50 --out runs[/bold]

    On your own arrays: [bold]nclab sweep --data mine.npz --standardise --epochs 100[/bold]

    On a Ray cluster: [bold]nclab sweep --engine ray --address head:6379 --out /shared/runs[/bold]
    """
    from nclab.data.conic_hull import ConicHull
    from nclab.data.samples import SampleFile
    from nclab.data.teacher import Teacher
    from nclab.models.mlp import Shape
    from nclab.papers.sweep import SweepConfig, train_sweep
    from nclab.papers.sweep.table import table
    from nclab.training import Recipe

    sizes: dict[str, Any] = {
        "inputs": inputs,
        "classes": classes,
        "samples": samples,
        "seed": data_seed,
    }
    source: Source
    if data in ("teacher", "conic") and standardise:
        raise NclabError(f"Expected --standardise with a file as --data, got it with {data}.")
    if data == "teacher":
        source = Teacher(depth=teacher_depth, **sizes)
    elif data == "conic":
        source = ConicHull(**sizes)
    else:
        for name, size in (("samples", 10_000), ("inputs", 16), ("classes", 4), ("seed", 0)):
            if sizes[name] != size:
                option = "--data-seed" if name == "seed" else f"--{name}"
                raise NclabError(
                    f"Expected {option} with teacher or conic data only, got it with {data}: a "
                    "file is taken whole."
                )
        source = SampleFile(data, standardise=standardise)
    norms: Any = tuple(_parts(norm))
    config = SweepConfig(
        data=source,
        shape=Shape(layers=layers, width=width),
        norms=norms,
        weight_decays=tuple(_number(part, "--weight-decay") for part in _parts(weight_decay)),
        seeds=tuple(_integer(part, "--seeds") for part in _parts(seeds)),
        recipe=Recipe(epochs=epochs, batch=batch, rate=rate, drop_last=drop_last),
        moments=moments,
        layers=measure.value,
        statistics=statistics.value,
        checkpoint_every=checkpoint_every,
    )
    with chosen(engine, address) as place:
        rows = train_sweep(config, out, workers=workers, device=device, engine=place)
    if as_json:
        print_json(rows)
    else:
        print_table(table(rows), f"{len(rows)} runs in {out}")


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _number(text: str, option: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise NclabError(f"Expected numbers in {option}, got {text!r}.") from None


def _integer(text: str, option: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise NclabError(f"Expected integers in {option}, got {text!r}.") from None
