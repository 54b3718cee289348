"""`nclab report`: a folder of runs as pages that open from disk."""

from pathlib import Path
from typing import Annotated

import typer

from nclab.cli.output import print_json
from nclab.text import counted


def command(
    runs: Annotated[
        Path, typer.Argument(metavar="RUNS", help="Folder with runs, experiments or both.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="<folder>",
            help="Folder for the pages, new, empty or an earlier report, which is replaced; by "
            "default RUNS/report.",
        ),
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(
            help="Metrics that are drawn against the settings of the runs, separated by commas; a "
            "usual few by default."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Write figures, claims and runs as a site that needs neither a server nor the internet.

    Runs that differ in weight decay, norm or whatever else are drawn against it.

    Example: [bold]nclab report runs --out report --metrics min_intra,cdnv[/bold]
    """
    from nclab.report.site import write_report

    chosen = [name.strip() for name in (metrics or "").split(",") if name.strip()]
    report = write_report(runs, out, metrics=chosen)
    if as_json:
        print_json(report.to_dict())
        return
    judged = counted(sum(report.claims.values()), "claim")
    typer.echo(
        f"{counted(report.runs, 'run')}, {counted(report.figures, 'figure')}, "
        f"{f'no claims ({report.ledger_problem})' if report.ledger_problem else judged}, "
        f"{report.skipped} skipped; {report.bytes / 1e6:.1f} MB"
    )
    if report.problems:
        typer.echo(f"{counted(len(report.problems), 'problem')}: the overview lists what is wrong")
    typer.echo(f"wrote {report.page}")
