"""Runner of the command line in this process, through its entry point."""

import contextlib
import io
import sys
from typing import NamedTuple
from unittest import mock

from nclab.cli.main import run


class Done(NamedTuple):
    """Exit code and output of a call."""

    code: int
    out: str
    err: str


def call(*arguments: object) -> Done:
    """Run `nclab` with arguments."""
    out, err = io.StringIO(), io.StringIO()
    code = 0
    with (
        mock.patch.object(sys, "argv", ["nclab", *map(str, arguments)]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            run()
        except SystemExit as stop:
            code = int(stop.code or 0)
    return Done(code, out.getvalue(), err.getvalue())
