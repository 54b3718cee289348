"""The server of the live page: address, token and start."""

import contextlib
import ipaddress
import logging
import re
import secrets
import socket
from collections.abc import Callable
from pathlib import Path

from nclab.errors import MissingExtra, NclabError
from nclab.report.content import check_folder

MIN_TOKEN_LENGTH = 16
BACKLOG = 1024
"""Largest number of waiting connections; the operating system may allow fewer."""
MAX_CONNECTIONS = 512
"""Largest number of open connections; further requests get the answer 503."""


def serve(
    runs: Path,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    token: str | None = None,
    tell: Callable[[str], None],
) -> None:
    """Serve a folder of runs until Ctrl-C; call `tell` with a line that names the address to open.

    If other machines can connect, a token is required: the given one, or a random one, which is
    part of the printed address.
    """
    root = check_folder(runs)
    if token is not None:
        _check_token(token)
    try:
        import uvicorn

        from nclab.report.application import application
    except ImportError as error:
        raise MissingExtra(
            "The live page", package="starlette and uvicorn", extra="serve"
        ) from error

    listener = listen(host, port)
    address = listener.getsockname()
    shown = f"[{address[0]}]" if ":" in address[0] else address[0]
    if token is None:
        token = "" if is_loopback(address[0]) else secrets.token_urlsafe(24)
    query = f"?token={token}" if token else ""
    tell(f"Serving {root} at http://{shown}:{address[1]}/{query} - stop with Ctrl-C.")
    # Streams of events check `stopping` to end when the server stops.
    app = application(root, host=host, token=token, stopping=lambda: server.should_exit)
    config = uvicorn.Config(
        app,
        http="h11",
        log_level="error",
        backlog=BACKLOG,
        limit_concurrency=MAX_CONNECTIONS,
        timeout_graceful_shutdown=3,
        server_header=False,
        ws="none",
    )
    server = uvicorn.Server(config)
    # When the server stops, it ends open responses; do not log them as errors.
    logging.getLogger("uvicorn.error").addFilter(lambda _: not server.should_exit)
    with contextlib.suppress(KeyboardInterrupt):
        server.run(sockets=[listener])


def is_loopback(address: str) -> bool:
    """Whether only this machine can connect to an address.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("0.0.0.0"), is_loopback("::")
    (True, True, False, False)
    """
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def _check_token(token: str) -> None:
    if not re.fullmatch(rf"[A-Za-z0-9_.~-]{{{MIN_TOKEN_LENGTH},}}", token):
        raise NclabError(
            f"Expected a token of at least {MIN_TOKEN_LENGTH} letters, digits, _ . ~ or -, got "
            f"{len(token)} characters. Omit --token to get a random one."
        )


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens at an address."""
    if not 0 <= port <= 65535:
        raise NclabError(f"Expected a port from 0 to 65535, got {port}.")
    listener = None
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        if listener is not None:
            listener.close()
        option = "--host" if isinstance(error, socket.gaierror) else "--port"
        raise NclabError(
            f"Cannot listen at {host}, port {port}: {error.strerror}. Pass another {option}."
        ) from error
    return listener
