"""`python -m nclab`, the same as the `nclab` command; Ctrl-C is one line from the first import."""

import os
import signal
from typing import Any


def _stop_at_once(*_: Any) -> None:
    """While modules are imported there is nothing that would have to be ended in good order."""
    os.write(2, b"nclab: Stopped.\n")
    os._exit(128 + signal.SIGINT)


def run() -> None:
    """Entry point."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # else whoever started us wants it otherwise
        signal.signal(signal.SIGINT, _stop_at_once)
    from nclab.cli.main import run as command

    signal.signal(signal.SIGINT, before)
    command()


if __name__ == "__main__":
    run()
