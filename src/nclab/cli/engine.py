"""Where a command works: `--engine` and `--address`, the same for every command that does."""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from nclab.errors import NclabError

if TYPE_CHECKING:
    from nclab.engine import Engine


class EngineName(StrEnum):
    """The engines there are."""

    local = "local"
    ray = "ray"


EngineOption = Annotated[
    EngineName,
    typer.Option(help="Work on the cores of this machine, or on a Ray cluster."),
]
AddressOption = Annotated[
    str | None,
    typer.Option(
        help="Ray cluster, host:port; by default a running one, else this machine.",
        show_default=False,
    ),
]


@contextmanager
def chosen(name: EngineName, address: str | None) -> "Iterator[Engine]":
    """The engine that was asked for, until the command has ended."""
    if name is EngineName.local:
        if address is not None:
            raise NclabError(f"Expected --address with --engine ray alone, got {address!r}.")
        from nclab.engine import LOCAL

        yield LOCAL
        return
    from nclab.engine.ray import Cluster

    with Cluster(address) as cluster:
        yield cluster
