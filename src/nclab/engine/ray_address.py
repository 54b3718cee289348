"""Whether a Ray cluster answers, before Ray itself waits for one that does not."""

import os
import socket
from pathlib import Path

from nclab.errors import NclabError

KNOCK_SECONDS = 5.0
"""Ray tries for a quarter of an hour."""


def runs_here() -> bool:
    """Whether the cluster that `ray start` has started last on this machine still runs."""
    folder = os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp"
    try:
        knock(Path(folder, "ray", "ray_current_cluster").read_text().strip())
    except (OSError, NclabError):
        return False
    return True


def knock(address: str) -> None:
    """Refuse an address where nobody answers."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or "://" in address:
        raise NclabError(f"Expected host:port of a Ray cluster, or local, got {address!r}.")
    try:
        socket.create_connection((host.strip("[]"), int(port)), KNOCK_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise NclabError(
            f"Expected a Ray cluster at {address}, but nobody answers there: "
            f"{getattr(error, 'strerror', None) or error}. Start one with "
            "`ray start --head --port=PORT`, or leave the address out."
        ) from error
