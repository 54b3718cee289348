"""`nclab report` and `nclab serve`: a folder of runs as pages on disk, and as a live page."""

from pathlib import Path
from typing import Annotated

import typer

from nclab.cli.shared import JsonOption, print_json
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
            help="Folder for the pages, RUNS/report by default: new, empty, or an earlier report, "
            "which is replaced.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write figures, claims and runs as a site that needs neither a server nor the internet.

    The page of runs plots any metric during training, or against any setting that differs between
    runs.

    Example: [bold]nclab report runs --out report[/bold]
    """
    from nclab.claims.reproduce import refresh_claims
    from nclab.report.content import check_folder
    from nclab.report.site import write_report

    refresh_claims(check_folder(runs))
    report = write_report(runs, out)
    if as_json:
        print_json(report.to_dict())
        return
    claims = counted(sum(report.claims.values()), "claim")
    typer.echo(
        f"{counted(report.runs, 'run')}, {counted(report.figures, 'figure')}, "
        f"{f'no claims ({report.ledger_problem})' if report.ledger_problem else claims}, "
        f"{report.skipped} skipped; {report.bytes / 1e6:.1f} MB"
    )
    if report.problems:
        typer.echo(f"{counted(len(report.problems), 'problem')}: see the overview page")
    typer.echo(f"wrote {report.page}")


def serve_command(
    runs: Annotated[
        Path, typer.Argument(metavar="RUNS", help="Folder with running or finished runs.")
    ],
    port: Annotated[int, typer.Option(help="Port; 0 uses a free one.")] = 8000,
    host: Annotated[
        str,
        typer.Option(help="Address on which to listen; by default only this machine can connect."),
    ] = "127.0.0.1",
    token: Annotated[
        str | None,
        typer.Option(
            envvar="NCLAB_TOKEN",
            help="Access token. Generated automatically when the server accepts connections from "
            "other machines.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Serve a live page that shows and compares runs while they train; it changes nothing.

    With --json, print all runs and exit.

    Example: [bold]nclab serve runs --port 8000[/bold]
    """
    if as_json:
        from nclab.report.content import check_folder
        from nclab.report.watcher import Watcher

        watcher = Watcher(check_folder(runs))
        watcher.refresh()
        print_json({"runs": watcher.list_runs()})
        return
    from nclab.report.server import serve

    serve(runs, host=host, port=port, token=token, tell=typer.echo)
