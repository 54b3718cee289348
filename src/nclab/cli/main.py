"""The `nclab` command. Heavy imports happen inside the commands, so that it starts quickly."""

import contextlib
import io
import os
import sys
import warnings
from collections.abc import Callable
from typing import Annotated, Any, NoReturn

import typer

from nclab import __version__
from nclab.cli import (
    certify,
    doctor,
    export,
    landscape,
    measure,
    report,
    reproduce,
    runs,
    sweep,
    target,
    ulpm,
    verify,
)
from nclab.cli.options import ConfigGroup
from nclab.errors import NclabError, NclabWarning

USAGE_ERROR: Any = typer.BadParameter.__base__
"""Error for unknown options and bad values; versions of typer define it in different modules."""
STOPPED = 130
"""Exit code after Ctrl-C."""

app = typer.Typer(
    name="nclab",
    cls=ConfigGroup,
    help="The neural collapse laboratory: measure, certify, reproduce.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
COMMANDS: dict[str, Callable[..., None]] = {
    "measure": measure.command,
    "certify": certify.command,
    "target": target.command,
    "claims": reproduce.claims_command,
    "reproduce": reproduce.command,
    "sweep": sweep.command,
    "ulpm": ulpm.command,
    "landscape": landscape.command,
    "runs": runs.command,
    "export": export.command,
    "verify": verify.command,
    "report": report.command,
    "serve": report.serve_command,
    "doctor": doctor.command,
}
for name, command in COMMANDS.items():
    app.command(name=name)(command)


def _show_version(value: bool) -> None:
    if value:
        typer.echo(f"nclab {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool,
        typer.Option(
            "--version", "-V", callback=_show_version, is_eager=True, help="Show the version."
        ),
    ] = False,
) -> None:
    """The neural collapse laboratory: measure, certify, reproduce."""


def run() -> None:
    """Run the command; print an error as one line on standard error with exit code 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # print ? for letters the terminal does not have
            stream.reconfigure(errors="replace")
    warnings.formatwarning = _format_warning
    try:
        code = app(standalone_mode=False)
        if code == STOPPED:  # typer returns this after Ctrl-C without a message
            _end("Stopped.", STOPPED)
        sys.stdout.flush()  # raises here, not at exit, if the disk is full
        sys.exit(code)
    except NclabError as error:
        _end(str(error))
    except MemoryError:
        _end("Expected enough memory for this command, got too little. Use smaller arrays.")
    except USAGE_ERROR as error:
        message = error.format_message()
        if len(sys.argv) == 1:  # without arguments the message is the help
            typer.echo(message)
            sys.exit(2)
        end = "" if message.endswith(("?", ".")) else "."
        _end(f"{message}{end} See nclab --help.".replace("\n", " "))
    except (KeyboardInterrupt, typer.Abort):  # other versions of typer raise after Ctrl-C
        _end("Stopped.", STOPPED)
    except BrokenPipeError:  # the reader, for example `head`, has ended
        _end("", 1)
    except OSError as error:
        location = error.filename or "a file or connection"
        _end(f"Cannot use {location}: {error.strerror or error}.")


_DEFAULT_FORMAT = warnings.formatwarning


def _format_warning(
    message: Warning | str, category: type[Warning], *position: Any, **options: Any
) -> str:
    """Format a warning of nclab without its position in the code."""
    if issubclass(category, NclabWarning):
        return f"nclab: {message}\n"
    return _DEFAULT_FORMAT(message, category, *position, **options)


def _end(message: str, code: int = 2) -> NoReturn:
    """Print one line on standard error and exit, even if a stream cannot be written."""
    with contextlib.suppress(OSError, ValueError):
        if message:
            typer.echo(f"nclab: {message}", err=True)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):  # else Python would fail again at exit and change the code
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    sys.exit(code)
