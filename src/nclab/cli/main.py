"""The `nclab` command. Heavy imports happen inside the commands, so that it starts quickly."""

import contextlib
import io
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import Annotated, Any, NoReturn, TextIO

import typer

from nclab import __version__
from nclab.cli import (
    certify,
    claims,
    doctor,
    export,
    landscape,
    measure,
    report,
    reproduce,
    runs,
    serve,
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
COMMANDS = (
    measure,
    certify,
    target,
    claims,
    reproduce,
    sweep,
    ulpm,
    landscape,
    runs,
    export,
    verify,
    report,
    serve,
    doctor,
)
for module in COMMANDS:
    app.command(name=module.__name__.rpartition(".")[2])(module.command)


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
    if problem := _prepare_process():
        _fail(problem)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # print ? for letters the terminal does not have
            stream.reconfigure(errors="replace")
    warnings.formatwarning = _format_warning
    try:
        with _interrupts_noticed():
            code = app(standalone_mode=False)
        if code == STOPPED:  # typer returns this after Ctrl-C without a message
            _print_error("Stopped.")
        sys.stdout.flush()  # raises here, not at exit, if the disk is full
        sys.exit(code)
    except NclabError as error:
        _fail(str(error))
    except MemoryError:
        _fail("Expected enough memory for this command, got too little. Use smaller arrays.")
    except USAGE_ERROR as error:
        message = error.format_message()
        if len(sys.argv) == 1:  # without arguments the message is the help
            typer.echo(message)
            sys.exit(2)
        end = "" if message.endswith(("?", ".")) else "."
        _fail(f"{message}{end} See nclab --help.".replace("\n", " "))
    except (KeyboardInterrupt, typer.Abort):  # other versions of typer raise after Ctrl-C
        _print_error("Stopped.")
        _flush_or_drop(sys.stdout)
        sys.exit(STOPPED)
    except BrokenPipeError:  # the reader, for example `head`, has ended
        _flush_or_drop(sys.stdout)
        _flush_or_drop(sys.stderr)
        sys.exit(1)
    except OSError as error:
        location = error.filename or "a file or connection"
        _fail(f"Cannot use {location}: {error.strerror or error}.")


@contextlib.contextmanager
def _interrupts_noticed() -> Iterator[None]:
    """Convert any exception after Ctrl-C to KeyboardInterrupt: interrupted imports raise others."""
    interrupted = False

    def interrupt(*_: Any) -> NoReturn:
        nonlocal interrupted
        interrupted = True
        raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGINT)
    in_main_thread = threading.current_thread() is threading.main_thread()
    if in_main_thread and before is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    except Exception as error:
        if interrupted:
            raise KeyboardInterrupt from error
        raise
    finally:
        if in_main_thread and signal.getsignal(signal.SIGINT) is interrupt:
            signal.signal(signal.SIGINT, before)


_DEFAULT_FORMAT = warnings.formatwarning


def _format_warning(
    message: Warning | str, category: type[Warning], *position: Any, **options: Any
) -> str:
    """Format a warning of nclab without its position in the code."""
    if issubclass(category, NclabWarning):
        return f"nclab: {message}\n"
    return _DEFAULT_FORMAT(message, category, *position, **options)


def _fail(message: str) -> NoReturn:
    """Print one line on standard error and exit with code 2, even if output is impossible."""
    _print_error(message)
    _flush_or_drop(sys.stdout)
    sys.exit(2)


def _print_error(message: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        typer.echo(f"nclab: {message}", err=True)
    _flush_or_drop(sys.stderr)


def _flush_or_drop(stream: TextIO) -> None:
    """Write the buffer of a stream, or drop it; otherwise Python would change the exit code."""
    try:
        stream.flush()
    except (OSError, ValueError):
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _prepare_process() -> str | None:
    """Replace closed streams; return a message if no command can work, else None."""
    closed = sys.stdout is None
    for descriptor in range(3):
        # A file that is opened later must not get the number, and the output, of a closed stream.
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # uses the lowest free number
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    if closed:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        return "Expected an open standard output, but it is closed. Use >/dev/null to see nothing."
    try:
        os.getcwd()
    except OSError as error:  # numerical libraries end the process without a current folder
        return (
            f"Expected a current folder, but it is gone or closed ({error.strerror}). Change to "
            "another folder."
        )
    return None
