"""`nclab reproduce`: run the experiments and judge the claims. `nclab claims`: only judge."""

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from nclab.cli.shared import (
    MOST_SEEDS,
    AddressOption,
    EngineName,
    EngineOption,
    JsonOption,
    open_engine,
    print_json,
    print_table,
    read_seeds,
)
from nclab.errors import NclabError


class PresetName(StrEnum):
    """Sizes of experiments."""

    quick = "quick"
    paper = "paper"


def command(
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TARGET]...", help="Experiments or keys of papers; everything by default."
        ),
    ] = None,
    preset: Annotated[
        str,
        typer.Option(
            help="quick (minutes on two cores), paper (full size) or a preset of an experiment.",
            metavar="<quick|paper|…>",
        ),
    ] = PresetName.quick.value,
    seeds: Annotated[
        str | None,
        typer.Option(
            metavar="<int|list|first:end>",
            help="Number of seeds, such as 5, or the seeds themselves: 0,3 or 4:7, which means "
            "4,5,6. Default: 2 seeds for quick, else 3.",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            metavar="<int>",
            help="First seed if --seeds is a number; 0 by default.",
            min=0,
            max=2**31,
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option(metavar="<folder>", help="Folder for runs, numbers and figures.")
    ] = Path("runs"),
    fresh: Annotated[
        bool, typer.Option(help="Recompute all numbers and figures; finished networks are reused.")
    ] = False,
    recorded: Annotated[
        bool,
        typer.Option(
            "--recorded",
            help="With --preset paper: reuse the recorded networks that nclab ships, for example "
            "to add seeds.",
        ),
    ] = False,
    author_data: Annotated[
        Path | None,
        typer.Option(
            metavar="<folder>",
            help="Folder with the data and results that the author of a paper published; "
            "experiments that need them are skipped without it.",
        ),
    ] = None,
    engine: EngineOption = EngineName.local,
    address: AddressOption = None,
    as_json: JsonOption = False,
) -> None:
    """Reproduce the papers: run the experiments, draw the figures, judge the claims.

    Finished runs are reused, and interrupted runs continue where they stopped.

    Example: [bold]nclab reproduce pan2023_fig31 --preset paper --seeds 5 --out runs[/bold]
    """
    from nclab.claims.paper import AUTHOR_DATA
    from nclab.claims.reproduce import MORE_SEEDS, SEEDS, Reproduction

    if recorded and preset == PresetName.quick.value:
        raise NclabError(
            f"Expected --preset paper with --recorded, got {preset}. Add --preset paper, because "
            "only networks of a paper's size are recorded."
        )
    if author_data is not None:
        if not author_data.is_dir():
            raise NclabError(f"Expected --author-data as an existing folder, got {author_data}.")
        os.environ[AUTHOR_DATA] = str(author_data.absolute())
    chosen_seeds = None if seeds is None else read_seeds(seeds)
    if chosen_seeds is not None and seed is not None:
        raise NclabError(f"Expected --seed only with a number as --seeds, got --seeds {seeds}.")
    if chosen_seeds is None:
        count = SEEDS.get(preset, MORE_SEEDS) if seeds is None else int(seeds)
        if not 1 <= count <= MOST_SEEDS:
            raise NclabError(
                f"Expected --seeds from 1 to {MOST_SEEDS}, or a list as 0,3; got {seeds}."
            )
        chosen_seeds = tuple(range(seed or 0, (seed or 0) + count))
    with open_engine(engine, address) as opened:
        job = Reproduction(preset, chosen_seeds, out, fresh, opened, recorded)
        job.run(targets or [], (lambda *_: None) if as_json else print_table)
    result = {**job.finish(all_claims=not targets), "experiments": job.numbers}
    if as_json:
        print_json(result)
    else:
        print_table(*job.summary())


def claims_command(
    ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ID]...", help="Ids or prefixes of ids; all claims by default."),
    ] = None,
    preset: Annotated[
        PresetName, typer.Option(help="quick: half a minute; paper: ten times the data.")
    ] = PresetName.quick,
    runs: Annotated[
        Path | None,
        typer.Option(
            metavar="<folder>",
            help="Folder with the runs of `nclab reproduce` on this machine; ./runs by default.",
        ),
    ] = None,
    fresh: Annotated[
        bool,
        typer.Option(
            help="Judge results of experiments from the runs on this machine instead of the "
            "recorded runs."
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Check the statements of the papers; print which ones hold, with the evidence.

    Results of experiments are judged from recorded runs at the size of the paper. The results of
    the runs on this machine are shown next to them.

    Example: [bold]nclab claims pan2023/lemma-2.4.6[/bold]

    All of one paper: [bold]nclab claims ji2022[/bold]
    """
    from nclab.claims.ledger import find, judge_all
    from nclab.claims.registry import errata
    from nclab.claims.tables import claims_table
    from nclab.compute import one_thread
    from nclab.records.results import read_numbers

    chosen = find(ids or [])
    if runs is not None and not runs.is_dir():
        raise NclabError(f"Expected --runs as the folder of `nclab reproduce`, got {runs}.")
    experiments = sorted({claim.needs for claim in chosen if claim.needs})
    numbers = read_numbers(runs or Path("runs"), experiments)
    with one_thread():
        judged = judge_all(preset.value, numbers, ids=ids or [], fresh=fresh)
    if as_json:
        print_json(judged)
    else:
        print_table(*claims_table(judged, errata()))
        if runs is not None and experiments and not numbers:
            print_table(f"{runs} has no numbers of these experiments: {', '.join(experiments)}.")
