"""`python -m nclab`, the same as the `nclab` command."""

from nclab.cli.main import run

run()
