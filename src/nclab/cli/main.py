"""The `nclab` command. Heavy imports happen inside the commands, so that it starts at once."""

import contextlib
import io
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import Annotated, Any, NoReturn

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
from nclab.cli.surroundings import refused, say, settle
from nclab.errors import NclabError, NclabWarning

USAGE_ERROR: Any = typer.BadParameter.__base__
"""What unknown options and bad values raise; its home differs between versions of typer."""
STOPPED = 130
"""The exit code of a program that Ctrl-C has ended."""

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
for one in COMMANDS:
    app.command(name=one.__name__.rpartition(".")[2])(one.command)


def _show_version(asked: bool) -> None:
    if asked:
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


def fail(message: str) -> NoReturn:
    """One line on standard error, exit code 2, whatever can still be written."""
    say(message)
    settle(sys.stdout)
    sys.exit(2)


def _one_line(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> str:
    """A warning of ours without the place in the code that it comes from."""
    if issubclass(category, NclabWarning):
        return f"nclab: {message}\n"
    return _FORMAT(message, category, *place, **more)


_FORMAT = warnings.formatwarning


class Interrupts:
    """Notices Ctrl-C: what an import that is interrupted raises need not be KeyboardInterrupt."""

    came = False

    def __call__(self, *_: Any) -> NoReturn:
        """The handler of the signal."""
        self.came = True
        raise KeyboardInterrupt

    @contextlib.contextmanager
    def noticed(self) -> Iterator[None]:
        """Whatever is raised after Ctrl-C is raised because of it."""
        before = signal.getsignal(signal.SIGINT)
        ours = threading.current_thread() is threading.main_thread()
        if ours and before is signal.default_int_handler:
            signal.signal(signal.SIGINT, self)
        try:
            yield
        except Exception as error:
            if self.came:
                raise KeyboardInterrupt from error
            raise
        finally:
            if ours and signal.getsignal(signal.SIGINT) is self:
                signal.signal(signal.SIGINT, before)


def run() -> None:
    """Entry point: an error is one line on standard error and exit code 2."""
    if missing := refused():
        fail(missing)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal that knows no Σ shows a question mark
            stream.reconfigure(errors="replace")
    warnings.formatwarning = _one_line
    try:
        with Interrupts().noticed():
            code = app(standalone_mode=False)
        if code == STOPPED:  # typer has swallowed Ctrl-C without a word
            say("Stopped.")
        sys.stdout.flush()  # here it can be said that the disk is full
        sys.exit(code)
    except NclabError as error:
        fail(str(error))
    except MemoryError:
        fail("Expected enough memory for this, got too little. Take smaller arrays.")
    except USAGE_ERROR as error:
        message = error.format_message()
        if len(sys.argv) == 1:  # no arguments: the help is the answer
            typer.echo(message)
            sys.exit(2)
        end = "" if message.endswith(("?", ".")) else "."
        fail(f"{message}{end} See nclab --help.".replace("\n", " "))
    except (KeyboardInterrupt, typer.Abort):  # as other versions of typer tell of it
        say("Stopped.")
        settle(sys.stdout)
        sys.exit(STOPPED)
    except BrokenPipeError:  # The reader, `head` perhaps, has seen enough.
        settle(sys.stdout)
        settle(sys.stderr)
        sys.exit(1)
    except OSError as error:
        where = error.filename or "a file or connection"
        fail(f"Cannot use {where}: {error.strerror or error}.")
