"""What every command takes for granted: streams to write to, and a folder that it stands in."""

import contextlib
import os
import sys
from typing import TextIO

import typer

STANDARD = 3
"""The descriptors of standard input, output and error come first."""


def refused() -> str | None:
    """Why no command can do its work here, in one line; None where all is well."""
    closed = sys.stdout is None
    _fill_descriptors()
    if sys.stderr is None:  # nobody wants to hear it
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    if closed:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        return (
            "Expected a standard output to print to, but it is closed. Pass >/dev/null to see "
            "nothing."
        )
    try:
        os.getcwd()
    except OSError as error:  # libraries that compute end the process where there is none
        return (
            f"Expected a current folder, but it is gone or closed ({error.strerror}). Change to "
            "another."
        )
    return None


def say(message: str) -> None:
    """One line on standard error, if anyone can hear it."""
    with contextlib.suppress(OSError, ValueError):
        typer.echo(f"nclab: {message}", err=True)
    settle(sys.stderr)


def settle(stream: TextIO) -> None:
    """Write what waits in a stream, or drop it: else Python changes the exit code at its end."""
    try:
        stream.flush()
    except (OSError, ValueError):
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _fill_descriptors() -> None:
    """Let no file that is opened later get the number, and the output, of a closed stream."""
    for number in range(STANDARD):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
