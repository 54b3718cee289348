"""Entry point of the `nclab` command and of `python -m nclab`."""

import sys


def run() -> None:
    """Import the command line and run it; Ctrl-C during the imports prints one line."""
    try:
        from nclab.cli.main import run as command
    except KeyboardInterrupt:
        print("nclab: Stopped.", file=sys.stderr)  # noqa: T201
        sys.exit(130)
    command()


if __name__ == "__main__":
    run()
