"""`nclab serve`: the live page of a folder of runs."""

from pathlib import Path
from typing import Annotated

import typer

from nclab.cli.shared import JsonOption, print_json


def command(
    runs: Annotated[
        Path, typer.Argument(metavar="RUNS", help="Folder with runs, growing or finished.")
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
