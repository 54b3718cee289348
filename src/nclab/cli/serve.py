"""`nclab serve`: the live page of a folder of runs."""

from pathlib import Path
from typing import Annotated

import typer


def command(
    runs: Annotated[
        Path, typer.Argument(metavar="RUNS", help="Folder with runs, growing or finished.")
    ],
    port: Annotated[int, typer.Option(help="Port; 0 takes a free one.")] = 8000,
    host: Annotated[
        str, typer.Option(help="Address to listen at; by default only this machine can ask.")
    ] = "127.0.0.1",
    token: Annotated[
        str | None,
        typer.Option(
            envvar="NCLAB_TOKEN",
            help="What those who ask must know; made anew if others than this machine can ask.",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print all runs as one JSON object and stop.")
    ] = False,
) -> None:
    """Show runs while they train: compare them, pause, go back, open one. Read-only.

    Example: [bold]nclab serve runs --port 8000[/bold]
    """
    if as_json:
        from nclab.cli.output import print_json
        from nclab.report.content import check_folder
        from nclab.report.watcher import Watcher

        watcher = Watcher(check_folder(runs))
        watcher.refresh()
        print_json({"runs": watcher.list_runs()})
        return
    from nclab.report.server import serve

    serve(runs, host=host, port=port, token=token, tell=typer.echo)
