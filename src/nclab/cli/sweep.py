"""`nclab sweep`: train many models and measure their collapse."""

from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nclab.cli.options import Configs, Options, with_options
from nclab.cli.shared import (
    AddressOption,
    EngineName,
    EngineOption,
    WorkersOption,
    open_engine,
    print_json,
    print_table,
    read_seeds,
)
from nclab.errors import NclabError

if TYPE_CHECKING:
    from nclab.training.sweep import Axes


def _configs() -> dict[str, Options]:
    """Return the options of the models and of each kind of data."""
    from nclab.training.data.sources import SOURCES, plugin_sources
    from nclab.training.sweep import SweepConfig

    teacher = {name: f"teacher_{name}" for name in ("depth", "width", "balance", "max_ratio")}
    shared = {"panel": "Generated data", "names": {"seed": "data_seed"}}
    changes: dict[str, dict[str, Any]] = {
        "teacher": {**shared, "names": {"seed": "data_seed", **teacher}},
        "conic": {**shared, "exclude": ("cones",)},
        "fashion": {**shared, "names": {"seed": "data_seed", "classes": "fashion_classes"}},
        "file": {"panel": "Data of a file", "names": {}, "exclude": ("path",)},
    }
    sources = {}
    for name, kind in (SOURCES | plugin_sources()).items():
        # The name of other data is a prefix of their options, so that all flags are distinct.
        prefix = name.replace("-", "_")
        names = {field.name: f"{prefix}_{field.name}" for field in fields(kind)}
        options = {"panel": f"Data set {name}", "names": names, **changes.get(name, {})}
        sources[name] = Options(kind, several=("",), **options)
    models = Options(
        SweepConfig,
        "Models and measurement",
        names={"norms": "norm", "weight_decays": "weight_decay", "layers": "measure"},
        exclude=("data", "shape.inputs", "shape.classes"),  # the data set inputs and classes
        several=("shape.", "recipe.", "selection."),
    )
    return {"sweep": models, **sources}


@with_options(_configs)
def command(
    configs: Configs,
    data: Annotated[
        str,
        typer.Option(
            help="teacher, conic, fashion (FashionMNIST), or a .npz or "
            ".safetensors file with X|features|inputs and y|labels|targets, or a .csv file with "
            "a label in every row; several, separated by commas."
        ),
    ] = "teacher",
    plan: Annotated[bool, typer.Option("--plan", help="Print the plan and train nothing.")] = False,
    workers: WorkersOption = None,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    engine: EngineOption = EngineName.local,
    address: AddressOption = None,
    out: Annotated[Path, typer.Option(metavar="<folder>", help="Folder for the runs.")] = Path(
        "runs"
    ),
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a list with one JSON object per network.")
    ] = False,
) -> None:
    """Train a model for every norm, weight decay and seed, and measure their collapse.

    Every option of data, network and recipe may be a list: all combinations are trained.

    After an interruption the same command continues; finished models are reused.

    Example: [bold]nclab sweep --data teacher --width 64 --norm affine --weight-decay 1e-3,3e-3
    --epochs 50 --out runs[/bold]

    With your arrays: [bold]nclab sweep --data mine.npz --standardise --epochs 100[/bold]

    With other training: [bold]nclab sweep --data fashion --components 64 --imbalance 10
    --test-share 0.2 --optimizer adamw --rate 1e-3 --loss focal --schedule cosine[/bold]

    With several values: [bold]nclab sweep --optimizer sgd,adamw --rate 0.01,0.1 --width 32,64
    --imbalance 1,10,100 --seeds 0,1,2 --plan[/bold]

    On a Ray cluster: [bold]nclab sweep --engine ray --address head:6379 --out /shared/runs[/bold]
    """
    from nclab.training.sweep import Axes, plan_sweep, train_plan, write_results
    from nclab.training.sweep.rows import rows_table
    from nclab.training.sweep.train import training_slots

    configs = _with_seeds(configs)
    sources = _sources(configs, data)
    config = configs["sweep"].build(data=sources[0])
    axes = Axes(config, {"data": sources, **configs["sweep"].axes()})
    _check_options_are_read(axes, configs["sweep"])
    planned = plan_sweep(axes, out)
    if plan:
        print_json(planned.to_dict()) if as_json else typer.echo(str(planned))
        return
    with open_engine(engine, address) as opened:
        training_slots(planned, workers, device, opened)  # raises before the plan is printed
        if not as_json:
            typer.echo(str(planned))
        rows = train_plan(planned, workers=workers, device=device, engine=opened)
    tables = write_results(out, threshold=config.converged)
    if as_json:
        print_json(rows)
    else:
        files = " and ".join(file.name for file in tables)
        summary = f"{len(rows)} runs in {out}; {files} with all runs of the folder"
        print_table(rows_table(rows, planned.axes), summary)


def _check_options_are_read(axes: "Axes", options: Options) -> None:
    """Raise for an option that no network of the sweep reads."""
    flags = {option.path: option.flag for option in options.all()}
    for path, (deciding, values) in axes.never_read(options.changed()).items():
        raise NclabError(
            f"Expected {flags[path]} only with a {flags[deciding]} that uses it, got "
            f"{flags[deciding]} {','.join(map(str, values))}."
        )


def _with_seeds(configs: Configs) -> Configs:
    """Return the configs with the seeds as a list; reject a single number, which is ambiguous."""
    text = configs["sweep"].values["seeds"]
    seeds = read_seeds(text)
    if seeds is None and text.strip() != "0":
        raise NclabError(
            f"Expected --seeds as a list or a range, got {text}. Write --seeds {text}, for the "
            f"single seed {text}, or --seeds 0:{text} for {text} seeds."
        )
    values = {**configs["sweep"].values, "seeds": ",".join(map(str, seeds or (0,))) + ","}
    return {**configs, "sweep": replace(configs["sweep"], values=values)}


def _sources(configs: Configs, data: str) -> list[Any]:
    """Return the sources that --data names; raise for options of other kinds of data."""
    from nclab.training.sweep.plan import combinations

    known = tuple(name for name in configs if name not in ("sweep", "file"))
    names = [data] if Path(data).is_file() else [word.strip() for word in data.split(",")]
    kinds = [name if name in known else "file" for name in names]
    allowed = {option.flag for kind in kinds for option in configs[kind].all()}
    for name in (*known, "file"):
        for flag in configs[name].changed().values():
            if flag in allowed or (name == "teacher" and "conic" in kinds):
                continue
            if name == "file":
                raise NclabError(f"Expected {flag} with a file as --data, got --data {data}.")
            owners = [kind for kind in known if any(o.flag == flag for o in configs[kind].all())]
            reason = " All samples of a file are used." if kinds == ["file"] else ""
            raise NclabError(
                f"Expected {flag} only with --data {' or '.join(owners)}, got --data {data}."
                f"{reason}"
            )
    sources: list[Any] = []
    for name, kind in zip(names, kinds, strict=True):
        first = configs[kind].build(**({"path": name} if kind == "file" else {}))
        sources += combinations(first, configs[kind].axes())
    return sources
