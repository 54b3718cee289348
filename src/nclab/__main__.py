"""Entry point of the `nclab` command and of `python -m nclab`; Ctrl-C prints one line."""

import os
import signal
from typing import Any


def _stop_at_once(*_: Any) -> None:
    """Exit at Ctrl-C while modules are imported, when there is nothing to clean up."""
    os.write(2, b"nclab: Stopped.\n")
    os._exit(128 + signal.SIGINT)


def run() -> None:
    """Import the command line and run it."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # keep any other handler of the parent process
        signal.signal(signal.SIGINT, _stop_at_once)
    from nclab.cli.main import run as command

    signal.signal(signal.SIGINT, before)
    command()


if __name__ == "__main__":
    run()
