"""`nclab sweep`: train many models and measure their collapse."""

from pathlib import Path
from typing import Annotated, Any

import typer

from nclab.cli.engine import AddressOption, EngineName, EngineOption, chosen
from nclab.cli.options import Given, Options, with_options
from nclab.cli.output import print_json, print_table
from nclab.errors import NclabError


def _configs() -> dict[str, Options]:
    """What the options are made of: the models, and each kind of samples."""
    from nclab.data.conic_hull import ConicHull
    from nclab.data.fashion_mnist_samples import FashionMNIST
    from nclab.data.modular_addition import ModularAddition
    from nclab.data.samples import SampleFile
    from nclab.data.teacher import Teacher
    from nclab.papers.sweep import SweepConfig

    # The network takes inputs and classes from the data.
    models = {"norms": "norm", "weight_decays": "weight_decay", "layers": "measure"}
    elsewhere = ("data", "shape.inputs", "shape.classes")
    names = {"seed": "data_seed"}
    names |= {name: f"teacher_{name}" for name in ("depth", "width", "balance", "max_ratio")}
    drawn = "Data that are not a file's"
    return {
        "sweep": Options(SweepConfig, "Models and measurement", models, elsewhere),
        "teacher": Options(Teacher, drawn, names),
        "conic": Options(ConicHull, drawn, names, ("cones",)),
        "fashion": Options(FashionMNIST, drawn, names),
        "modular": Options(ModularAddition, drawn),
        "file": Options(SampleFile, "Data of a file", leave_out=("path",)),
    }


@with_options(_configs)
def command(
    given: Given,
    data: Annotated[
        str,
        typer.Option(
            help="teacher, conic, fashion (FashionMNIST), modular (addition), or a .npz or "
            ".safetensors file with X|features|inputs and y|labels|targets, or a .csv file with "
            "a label in every row."
        ),
    ] = "teacher",
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

    Otherwise trained: [bold]nclab sweep --data fashion --components 64 --imbalance 10
    --test-share 0.2 --optimizer adamw --rate 1e-3 --loss focal --schedule cosine[/bold]

    On a Ray cluster: [bold]nclab sweep --engine ray --address head:6379 --out /shared/runs[/bold]
    """
    from nclab.papers.sweep import train_sweep
    from nclab.papers.sweep.rows_table import rows_table

    config = given["sweep"].build(data=_source(given, data))
    with chosen(engine, address) as place:
        rows = train_sweep(config, out, workers=workers, device=device, engine=place)
    if as_json:
        print_json(rows)
    else:
        print_table(rows_table(rows), f"{len(rows)} runs in {out}")


def _source(given: Given, data: str) -> Any:
    """The samples that --data names, without options of other kinds that would do nothing."""
    known = ("teacher", "conic", "fashion", "modular")
    kind = data if data in known else "file"
    own = {option.flag for option in given[kind].all()}
    for name in (*known, "file"):
        for flag in given[name].changed():
            if flag in own or (name == "teacher" and kind == "conic"):
                continue
            if name == "file":
                raise NclabError(f"Expected {flag} with a file as --data, got it with {data}.")
            having = [one for one in known if any(o.flag == flag for o in given[one].all())]
            why = ": a file is taken whole" if kind == "file" else ""
            raise NclabError(
                f"Expected {flag} with {' or '.join(having)} data only, got it with {data}{why}."
            )
    return given[kind].build(path=data) if kind == "file" else given[kind].build()
