"""`nclab sweep`: train many models and measure their collapse."""

from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nclab import plugins
from nclab.cli.engine import AddressOption, EngineName, EngineOption, chosen
from nclab.cli.options import Given, Options, with_options
from nclab.cli.output import print_json, print_table
from nclab.cli.seeds import listed_seeds
from nclab.errors import NclabError

if TYPE_CHECKING:
    from nclab.training.sweep import Axes

PLUGGED = {
    "shape.model": "models",
}
"""Fields that may name what a plugin brings."""


def _configs() -> dict[str, Options]:
    """What the options are made of: the models, and each kind of samples."""
    from nclab.training.data.artificial import ConicHull, ModularAddition, Teacher
    from nclab.training.data.fashion_mnist import FashionMNIST
    from nclab.training.data.samples import SampleFile
    from nclab.training.data.sources import plugin_sources
    from nclab.training.sweep import SweepConfig

    # The network takes inputs and classes from the data.
    models = {"norms": "norm", "weight_decays": "weight_decay", "layers": "measure"}
    elsewhere = ("data", "shape.inputs", "shape.classes")
    names = {"seed": "data_seed"}
    names |= {name: f"teacher_{name}" for name in ("depth", "width", "balance", "max_ratio")}
    drawn = "Data that are not a file's"
    varied = ("shape.", "recipe.", "selection.")
    return {
        "sweep": Options(
            SweepConfig,
            "Models and measurement",
            models,
            elsewhere,
            varied,
            more={path: plugins.names(kind) for path, kind in PLUGGED.items()},
        ),
        "teacher": Options(Teacher, drawn, names, several=("",)),
        "conic": Options(ConicHull, drawn, names, ("cones",), several=("",)),
        "fashion": Options(
            FashionMNIST, drawn, {**names, "classes": "fashion_classes"}, several=("",)
        ),
        "modular": Options(ModularAddition, drawn, several=("",)),
        "file": Options(SampleFile, "Data of a file", leave_out=("path",), several=("",)),
        **{name: _of_plugin(name, kind) for name, kind in plugin_sources().items()},
    }


def _of_plugin(name: str, kind: Any) -> Options:
    """The options of a plugin's data begin with its name, so that they meet no others."""
    begin = name.replace("-", "_")
    names = {one.name: f"{begin}_{one.name}" for one in fields(kind)}
    return Options(kind, f"Data of the plugin {name}", names, several=("",))


@with_options(_configs)
def command(
    given: Given,
    data: Annotated[
        str,
        typer.Option(
            help="teacher, conic, fashion (FashionMNIST), modular (addition), or a .npz or "
            ".safetensors file with X|features|inputs and y|labels|targets, or a .csv file with "
            "a label in every row; several, separated by commas."
        ),
    ] = "teacher",
    both: Annotated[
        str | None,
        typer.Option(help="Switches to take both ways, as bias,nesterov.", show_default=False),
    ] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Print the plan and train nothing.")] = False,
    workers: Annotated[
        int | None,
        typer.Option(
            metavar="<int>",
            help="Processes; by default one per core, 0 for none beside this.",
            min=0,
        ),
    ] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    engine: EngineOption = EngineName.local,
    address: AddressOption = None,
    sink: Annotated[
        list[str] | None,
        typer.Option(
            metavar="<name[:target]>",
            help="Also tell a sink every measurement: console, tensorboard:logs/{run}, wandb, "
            "mlflow or a plugin's; may be repeated. {run} and {folder} are those of each network.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[Path, typer.Option(metavar="<folder>", help="Folder for the runs.")] = Path(
        "runs"
    ),
    as_json: Annotated[bool, typer.Option("--json", help="Print a list of rows.")] = False,
) -> None:
    """Train a model for every norm, weight decay and seed, and measure their collapse.

    Every option of data, network and recipe may be a list: all combinations are trained.

    Stopped at any moment, the same command goes on where it was; finished models are reused.

    Example: [bold]nclab sweep --data teacher --width 64 --norm affine --weight-decay 1e-3,3e-3
    --epochs 50 --out runs[/bold]

    On your own arrays: [bold]nclab sweep --data mine.npz --standardise --epochs 100[/bold]

    Otherwise trained: [bold]nclab sweep --data fashion --components 64 --imbalance 10
    --test-share 0.2 --optimizer adamw --rate 1e-3 --loss focal --schedule cosine[/bold]

    Several of everything: [bold]nclab sweep --optimizer sgd,adamw --rate 0.01,0.1 --width 32,64
    --imbalance 1,10,100 --seeds 0,1,2 --plan[/bold]

    On a Ray cluster: [bold]nclab sweep --engine ray --address head:6379 --out /shared/runs[/bold]
    """
    from nclab.training.sweep import Axes, forecast, plan_sweep, train_plan, write_results
    from nclab.training.sweep.rows import rows_table

    given = _both_ways(_with_seeds(given), both)
    sources = _sources(given, data)
    config = given["sweep"].build(data=sources[0])
    axes = Axes(config, {"data": sources, **given["sweep"].axes()})
    _refuse_unread(axes, given["sweep"])
    planned = plan_sweep(axes, out)
    with chosen(engine, address) as place:
        if plan or not as_json:
            look = forecast(planned, workers=workers, device=device, engine=place)
            if as_json:
                print_json(look.to_dict())
            else:
                typer.echo(str(look))
        if plan:
            return
        rows = train_plan(planned, workers=workers, device=device, engine=place, sinks=sink or ())
    tables = write_results(out, threshold=config.converged)
    if as_json:
        print_json(rows)
    else:
        names = " and ".join(file.name for file in tables)
        print_table(rows_table(rows, planned.axes), f"{len(rows)} runs in {out}, {names} of all")


def _refuse_unread(axes: "Axes", given: Options) -> None:
    """An option that no network of the sweep reads was meant for another sweep."""
    flags = {option.path: option.flag for option in given.all()}
    for path, (other, values) in axes.never_read(given.changed()).items():
        if set(values) & set(plugins.names(PLUGGED[other]) if other in PLUGGED else ()):
            continue  # a plugin reads what it likes
        raise NclabError(
            f"Expected {flags[path]} beside {flags[other]} that reads it, got it with "
            f"{', '.join(map(str, values))}, which does not."
        )


def _with_seeds(given: Given) -> Given:
    """With the seeds of a list or a range; a lone number could mean how many."""
    told = given["sweep"].given["seeds"]
    seeds = listed_seeds(told)
    if seeds is None and told.strip() != "0":
        raise NclabError(
            f"Expected --seeds as a list or a range, got {told}. Write --seeds {told}, for that "
            f"seed alone, or --seeds 0:{told} for so many."
        )
    own = ",".join(map(str, seeds or (0,))) + ","
    return {
        name: replace(options, given={**options.given, "seeds": own})
        for name, options in given.items()
    }


def _both_ways(given: Given, both: str | None) -> Given:
    """With both values of the switches that were named."""
    switches = {
        option.flag.removeprefix("--"): option.name
        for options in given.values()
        for option in options.all()
        if option.several and option.kind is bool
    }
    found: dict[str, Any] = {}
    for word in (both or "").split(","):
        name = word.strip().removeprefix("--").replace("_", "-")
        if name and name not in switches:
            raise NclabError(f"Expected --both of {', '.join(switches)}; got {name!r}.")
        if name:
            found[switches[name]] = (True, False)
    return {
        name: replace(options, given={**options.given, **found}) for name, options in given.items()
    }


def _sources(given: Given, data: str) -> list[Any]:
    """The samples that --data names, without options of other kinds that would do nothing."""
    from nclab.training.sweep.plan import combinations

    known = tuple(name for name in given if name not in ("sweep", "file"))
    names = [data] if Path(data).is_file() else [word.strip() for word in data.split(",")]
    kinds = [name if name in known else "file" for name in names]
    own = {option.flag for kind in kinds for option in given[kind].all()}
    for name in (*known, "file"):
        for flag in given[name].changed().values():
            if flag in own or (name == "teacher" and "conic" in kinds):
                continue
            if name == "file":
                raise NclabError(f"Expected {flag} with a file as --data, got it with {data}.")
            having = [one for one in known if any(o.flag == flag for o in given[one].all())]
            why = ": a file is taken whole" if kinds == ["file"] else ""
            raise NclabError(
                f"Expected {flag} with {' or '.join(having)} data only, got it with {data}{why}."
            )
    found: list[Any] = []
    for name, kind in zip(names, kinds, strict=True):
        first = given[kind].build(**({"path": name} if kind == "file" else {}))
        found += combinations(first, given[kind].axes())
    return found
