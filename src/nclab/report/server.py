"""The live page: a read-only server of one folder, for this machine alone unless told otherwise."""

import asyncio
import contextlib
import ipaddress
import logging
import re
import secrets
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from nclab.errors import MissingExtra, NclabError
from nclab.report.content import check_folder
from nclab.report.watcher import Watcher

if TYPE_CHECKING:
    from starlette.types import ASGIApp

SHORTEST_TOKEN = 16
WAITING = 1024
"""So many may come at once before one is answered; the system may allow less."""


def serve(
    runs: Path,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    token: str | None = None,
    tell: Callable[[str], None],
) -> None:
    """Serve a folder until stopped; the address is told once it answers.

    Where others than this machine can ask, only those who know the token are answered: the one
    that is given, or a new one. It is part of the address that is told.
    """
    root = check_folder(runs)
    if token is not None:
        _check_token(token)
    try:
        import uvicorn
    except ImportError as error:
        raise MissingExtra("The live page", package="uvicorn", extra="serve") from error
    from nclab.report.http import Protocol

    door = listen(host, port)
    address = door.getsockname()
    shown = f"[{address[0]}]" if ":" in address[0] else address[0]
    if token is None:
        token = "" if is_loopback(address[0]) else secrets.token_urlsafe(24)
    key = f"?token={token}" if token else ""
    tell(f"Serving {root} at http://{shown}:{address[1]}/{key} - stop with Ctrl-C.")
    # Pages that listen are told to stop, as they would never do so by themselves.
    app = application(root, host=host, token=token, stopping=lambda: server.should_exit)
    config = uvicorn.Config(
        app,
        http=Protocol,
        log_level="error",
        backlog=WAITING,
        timeout_graceful_shutdown=3,
        server_header=False,
        ws="none",
    )
    server = uvicorn.Server(config)
    # Answers that are cut off by the end are no errors.
    logging.getLogger("uvicorn.error").addFilter(lambda _: not server.should_exit)
    with contextlib.suppress(KeyboardInterrupt):
        server.run(sockets=[door])


def is_loopback(address: str) -> bool:
    """Whether only this machine can ask at an address.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("0.0.0.0"), is_loopback("::")
    (True, True, False, False)
    """
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def _check_token(token: str) -> None:
    if not re.fullmatch(rf"[A-Za-z0-9_.~-]{{{SHORTEST_TOKEN},}}", token):
        raise NclabError(
            f"Expected a token of at least {SHORTEST_TOKEN} letters, digits, _ . ~ or -, got "
            f"{len(token)} characters. Leave --token out to get a new one."
        )


def listen(host: str, port: int) -> socket.socket:
    """A socket that is bound, or one line on why it cannot be."""
    if not 0 <= port <= 65535:
        raise NclabError(f"Expected a port from 0 to 65535, got {port}.")
    door = None
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        door = socket.socket(family, socket.SOCK_STREAM)
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        door.bind((host, port))
        door.listen(WAITING)
    except OSError as error:
        if door is not None:
            door.close()
        other = "--host" if isinstance(error, socket.gaierror) else "--port"
        raise NclabError(
            f"Cannot listen at {host}, port {port}: {error.strerror}. Pass another {other}."
        ) from error
    return door


def application(
    root: Path,
    *,
    host: str = "127.0.0.1",
    token: str = "",
    stopping: Callable[[], bool] = lambda: False,
) -> "ASGIApp":
    """The server as an ASGI application."""
    try:
        from starlette.applications import Starlette
        from starlette.routing import Route
    except ImportError as error:
        raise MissingExtra("The live page", package="starlette", extra="serve") from error
    from nclab.report.access import ReadOnlyAccess
    from nclab.report.answers import Answers

    answers = Answers(Watcher(root), stopping)
    routes = [
        Route("/", answers.live),
        Route("/live.html", answers.live),
        Route("/api/runs", answers.runs),
        Route("/api/curves", answers.curves),
        Route("/api/events", answers.events),
        Route("/api/changes", answers.changes),
        Route("/api/run/{slug}", answers.run),
        Route("/assets/{name}", answers.asset),
        Route("/data/{kind}/{name}", answers.data),
        Route("/data/claims.json", answers.claims),
        Route("/{name:path}", answers.page),
    ]

    @contextlib.asynccontextmanager
    async def reading(_: object) -> AsyncIterator[None]:
        # Long journals are read before anyone asks.
        first = asyncio.create_task(answers.warm())
        yield
        first.cancel()

    pages = Starlette(routes=routes, lifespan=reading)
    return ReadOnlyAccess(pages, host, token=token)  # around all, errors of our own as well
