"""`nclab claims`: check the statements of the papers."""

from pathlib import Path
from typing import Annotated

import typer

from nclab.cli.reproduce import PresetName
from nclab.cli.shared import JsonOption, print_json, print_table
from nclab.errors import NclabError

RUNS = Path("runs")


def command(
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
        bool, typer.Option(help="Judge results from the runs on this machine, whatever their size.")
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
    numbers = read_numbers(runs or RUNS, experiments)
    with one_thread():
        judged = judge_all(preset.value, numbers, ids=ids or [], fresh=fresh)
    if as_json:
        print_json(judged)
    else:
        print_table(*claims_table(judged, errata()))
        if runs is not None and experiments and not numbers:
            print_table(f"{runs} has no numbers of these experiments: {', '.join(experiments)}.")
