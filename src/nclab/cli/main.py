"""The `nclab` command. Heavy imports happen inside the commands, so that help is instant."""

import os
import sys
from typing import Annotated

import typer

from nclab import __version__
from nclab.cli import certify, landscape, measure, reproduce, ulpm
from nclab.errors import NclabError

app = typer.Typer(
    name="nclab",
    help="The neural collapse laboratory: measure, certify, reproduce.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(name="measure")(measure.command)
app.command(name="certify")(certify.command)
app.command(name="reproduce")(reproduce.command)
app.command(name="ulpm")(ulpm.command)
app.command(name="landscape")(landscape.command)


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"nclab {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """The neural collapse laboratory: measure, certify, reproduce."""


def run() -> None:
    """Entry point: an error of ours is one line on standard error and exit code 2."""
    try:
        app()
    except NclabError as error:
        typer.echo(f"nclab: {error}", err=True)
        sys.exit(2)
    except BrokenPipeError:  # The reader, `head` perhaps, has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
