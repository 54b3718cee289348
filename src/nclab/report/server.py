"""The live page: a read-only server of one folder, for this machine alone unless told otherwise."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from nclab.errors import MissingExtra, NclabError
from nclab.report.content import check_folder
from nclab.report.watcher import Watcher

if TYPE_CHECKING:
    from starlette.applications import Starlette


def serve(
    runs: Path, *, host: str = "127.0.0.1", port: int = 8000, tell: Callable[[str], None]
) -> None:
    """Serve a folder until stopped; the address is told once it answers."""
    root = check_folder(runs)
    try:
        import uvicorn
    except ImportError as error:
        raise MissingExtra("The live page", package="uvicorn", extra="serve") from error
    door = listen(host, port)
    address = door.getsockname()
    shown = f"[{address[0]}]" if ":" in address[0] else address[0]
    tell(f"Serving {root} at http://{shown}:{address[1]}/ - stop with Ctrl-C.")
    # Pages that listen are told to stop, as they would never do so by themselves.
    app = application(root, host=host, stopping=lambda: server.should_exit)
    config = uvicorn.Config(
        app, log_level="error", timeout_graceful_shutdown=3, server_header=False, ws="none"
    )
    server = uvicorn.Server(config)
    with contextlib.suppress(KeyboardInterrupt):
        server.run(sockets=[door])


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
        door.listen(128)
    except OSError as error:
        if door is not None:
            door.close()
        other = "--host" if isinstance(error, socket.gaierror) else "--port"
        raise NclabError(
            f"Cannot listen at {host}, port {port}: {error.strerror}. Pass another {other}."
        ) from error
    return door


def application(
    root: Path, *, host: str = "127.0.0.1", stopping: Callable[[], bool] = lambda: False
) -> "Starlette":
    """The server as an ASGI application."""
    try:
        from starlette.applications import Starlette
        from starlette.middleware import Middleware
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
    async def reading(_: Starlette) -> AsyncIterator[None]:
        # Long journals are read before anyone asks.
        first = asyncio.create_task(answers.warm())
        yield
        first.cancel()

    access = Middleware(ReadOnlyAccess, host=host)
    return Starlette(routes=routes, middleware=[access], lifespan=reading)
