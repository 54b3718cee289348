"""`nclab claims`: every statement of the papers, checked."""

from pathlib import Path
from typing import Annotated

import typer

from nclab.cli.output import print_json, print_table
from nclab.cli.reproduce import PresetName
from nclab.errors import NclabError

RUNS = Path("runs")


def command(
    ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ID]...", help="Ids or their beginnings; all claims by default."),
    ] = None,
    preset: Annotated[
        PresetName, typer.Option(help="quick: half a minute; paper: ten times the data.")
    ] = PresetName.quick,
    runs: Annotated[
        Path | None,
        typer.Option(
            metavar="<folder>",
            help="Folder of `nclab reproduce`, this machine's own runs; ./runs by default.",
        ),
    ] = None,
    fresh: Annotated[
        bool, typer.Option(help="Judge results from this machine's own runs, whatever their size.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON array.")] = False,
) -> None:
    """Check the statements of the papers and say which hold, with the evidence.

    Results of experiments are judged from what is recorded at the size of the paper; what the
    runs in RUNS say stands beside it.

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
        raise NclabError(f"Expected the folder of nclab reproduce as --runs, got {runs}.")
    wanted = sorted({one.needs for one in chosen if one.needs})
    numbers = read_numbers(runs or RUNS, wanted)
    with one_thread():
        judged = judge_all(preset.value, numbers, ids=ids or [], fresh=fresh)
    if as_json:
        print_json(judged)
    else:
        print_table(*claims_table(judged, errata()))
        if runs is not None and wanted and not numbers:
            print_table(f"{runs} has no numbers of these experiments: {', '.join(wanted)}.")
