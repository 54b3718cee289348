"""The web application of the live page: access checks, pages, numbers and events. Read-only."""

import asyncio
import contextlib
import hmac
import ipaddress
import re
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import (
    HTMLResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from nclab.files import read_regular
from nclab.report.content import compact_json, script
from nclab.report.pages import Pages
from nclab.report.run_follower import AXES
from nclab.report.site import assets, data_files, plotly_script
from nclab.report.watcher import Selection, Watcher

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data: blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
"""Security headers of every response, errors included."""
PAUSE_SECONDS = 0.5
"""Seconds between two events that are sent to a live page."""
_LOOPBACK = {ipaddress.ip_address("127.0.0.1"), ipaddress.ip_address("::1")}
_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^:\[\]]+))(?::[0-9]+)?")
"""A Host header: an IPv6 address in brackets or a name, then an optional port."""
_MEDIA_TYPES = {
    ".js": "text/javascript",
    ".css": "text/css",
    ".json": "application/json",
    ".csv": "text/csv",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".pdf": "application/pdf",
}


class ReadOnlyAccess:
    """Middleware that rejects foreign host names, methods except GET and HEAD, and wrong tokens.

    If a token is set, clients must pass it: in the address, from which the server moves it to a
    cookie, or in the header `Authorization: Bearer TOKEN`.
    """

    def __init__(self, app: ASGIApp, host: str, *, token: str = "") -> None:
        self._app, self._host, self._token = app, host, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                known = {name for name, _ in message["headers"]}
                for name, value in HEADERS.items():
                    if name.lower().encode() not in known:
                        message["headers"].append((name.lower().encode(), value.encode()))
            await send(message)

        response = self._refuse(scope)
        await (self._app if response is None else response)(scope, receive, send_with_headers)

    def _refuse(self, scope: Scope) -> Response | None:
        """Return the error response to a request, or None if the request is allowed."""
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        if len(hosts) != 1 or not is_allowed_host(hosts[0].decode("latin-1"), self._host):
            text = "Expected the name of this server as Host. Open the address that it printed.\n"
            return PlainTextResponse(text, status_code=400)
        if scope["method"] not in ("GET", "HEAD"):
            text = "This server answers only GET and HEAD.\n"
            return PlainTextResponse(text, status_code=405, headers={"Allow": "GET, HEAD"})
        return self._check_token(Request(scope)) if self._token else None

    def _check_token(self, request: Request) -> Response | None:
        cookie = f"nclab-{(request.scope.get('server') or ('', 0))[1]}"
        header = request.headers.get("authorization", "")
        if self._is_token(header.removeprefix("Bearer ")):
            return None
        query = parse_qsl(request.scope["query_string"].decode("latin-1"))
        if any(name == "token" and self._is_token(value) for name, value in query):
            others = urlencode([(name, value) for name, value in query if name != "token"])
            # A path that starts with // would name another server.
            path = "/" + quote(request.scope["path"].lstrip("/\\"))
            response = RedirectResponse(f"{path}?{others}" if others else path, status_code=303)
            response.set_cookie(cookie, self._token, httponly=True, samesite="strict")
            return response
        if self._is_token(request.cookies.get(cookie, "")):
            return None
        text = "Expected the token of this server. Open the complete address that it printed.\n"
        return PlainTextResponse(text, status_code=403)

    def _is_token(self, text: str) -> bool:
        """Whether a text is the token; the time of the comparison does not depend on the text."""
        return hmac.compare_digest(text.encode("utf-8", "replace"), self._token.encode())


def is_allowed_host(header: str, host: str) -> bool:
    """Whether a Host header names this server.

    Without this check, a page on the internet could let its own host name point to this machine and
    read the runs through the user's browser.
    """
    match = _HOST.fullmatch(header.strip().lower())
    if match is None:
        return False
    name = match[1] or match[2]
    address, host_address = _parse_address(name), _parse_address(host)
    is_everywhere = host_address is not None and host_address.is_unspecified
    if address is not None:  # unlike a name, an address always means this machine
        return is_everywhere or address == host_address or address in _LOOPBACK
    names = {"localhost", host.lower()}
    if is_everywhere:
        names.add(socket.gethostname().lower())
    return match[1] is None and name in names


def _parse_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


class Responses:
    """Responses to all requests.

    A requested path is only looked up in tables and never appended to a folder, so that no request
    can read other files.
    """

    def __init__(self, watcher: Watcher, stopping: Callable[[], bool]) -> None:
        self._watcher, self._stopping = watcher, stopping
        self._plotly = plotly_script()
        self._assets = dict(assets(self._plotly))

    async def read(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Read new data, then call the function and return its value, all in another thread."""

        def call() -> Any:
            self._watcher.refresh()
            return function(*arguments)

        return await asyncio.to_thread(call)

    async def page(self, request: Request) -> Response:
        """Return a page of the report."""
        name = request.path_params["name"] or "runs.html"
        text = await self.read(self._render, name)
        if text is None:  # perhaps the page of a run that has just started
            await asyncio.to_thread(self._watcher.refresh, force=True)
            text = await self.read(self._render, name)
        # File names may contain bytes that are not text; they become question marks.
        return _not_found() if text is None else HTMLResponse(text.encode("utf-8", "replace"))

    def _render(self, name: str) -> str | None:
        watcher = self._watcher
        with watcher.lock:
            plotly = self._plotly is not None
            table = watcher.table()
            return Pages(watcher.content, watcher.runs, table, plotly, live=True).render(name)

    async def runs(self, request: Request) -> Response:
        """Return a summary of every run."""
        return _json(await self.read(self._watcher.list_runs))

    async def run(self, request: Request) -> Response:
        """Return everything that the page of one run draws."""
        data = await self.read(self._watcher.run, request.path_params["slug"])
        return _not_found() if data is None else _json(data)

    async def curves(self, request: Request) -> Response:
        """Return the selected curves of all runs."""
        return _json(await self.read(self._watcher.curves, _selection(request), {}))

    async def asset(self, request: Request) -> Response:
        """Return a script or the style sheet."""
        name = request.path_params["name"]
        if name not in self._assets:
            return _not_found()
        media_type = _MEDIA_TYPES[Path(name).suffix]
        headers = {"Cache-Control": "max-age=3600"} if name == "plotly.min.js" else {}
        return Response(self._assets[name], media_type=media_type, headers=headers)

    async def data(self, request: Request) -> Response:
        """Return a file of numbers, an image, or the data of a run."""
        name = request.path_params["name"]
        content = await self.read(self._read_data, name)
        if content is None:
            return _not_found()
        media_type = _MEDIA_TYPES.get(Path(name).suffix, "application/octet-stream")
        return Response(content, media_type=media_type)

    def _read_data(self, name: str) -> str | bytes | None:
        """Return the content of a file below `data/`, or None if there is no such file."""
        if name.startswith("runs/") and name.endswith(".js"):
            run = self._watcher.run(name.removeprefix("runs/").removesuffix(".js"))
            return None if run is None else script("gotRun", run)
        content = data_files(self._watcher.content).get(name)
        if not isinstance(content, Path):
            return content
        with contextlib.suppress(OSError):  # the file was deleted or replaced
            return read_regular(content, root=self._watcher.root)
        return None

    async def events(self, request: Request) -> Response:
        """Stream the selected curves: first all of them, then those that changed."""
        stream = self._events(request, _selection(request))
        return StreamingResponse(stream, media_type="text/event-stream")

    async def changes(self, request: Request) -> Response:
        """Stream an event whenever the requested run has new records."""
        stream = self._changes(request, request.query_params.get("run", ""))
        return StreamingResponse(stream, media_type="text/event-stream")

    async def _events(self, request: Request, selection: Selection) -> AsyncIterator[str]:
        since: dict[str, int] = {}
        before: Any = None
        while not self._stopping() and not await request.is_disconnected():
            table = await self.read(self._watcher.table)
            if not selection.metric and (metric := _default_metric(table["metrics"])):
                selection = selection._replace(metric=metric)
                since.clear()
            curves = await self.read(self._watcher.curves, selection, since)
            message: dict[str, Any] = {"metric": selection.metric}
            if curves:
                message["curves"] = curves
            message |= _table_changes(table, before)
            if len(message) > 1 or before is None:
                yield _event(message)
            before = table
            await asyncio.sleep(PAUSE_SECONDS)

    async def _changes(self, request: Request, slug: str) -> AsyncIterator[str]:
        before: int | None = None
        yield ": connected\n\n"
        while not self._stopping() and not await request.is_disconnected():
            version = await self.read(self._watcher.versions.get, slug)
            if before is not None and version != before:
                yield _event({"run": slug, "version": version})
            before = version
            await asyncio.sleep(PAUSE_SECONDS)


def _table_changes(table: dict[str, Any], before: dict[str, Any] | None) -> dict[str, Any]:
    """Return the rows that changed, or the whole table if its runs, settings or metrics changed.

    >>> old, new = {"runs": [{"slug": "a"}]}, {"runs": [{"slug": "a", "state": "failed"}]}
    >>> _table_changes(new, old), _table_changes(old, old)
    ({'runs': [{'slug': 'a', 'state': 'failed'}]}, {})
    """
    if table is before:
        return {}
    known = {row["slug"]: row for row in before["runs"]} if before else {}
    if before is None or {**table, "runs": list(known)} != {
        **before,
        "runs": [row["slug"] for row in table["runs"]],
    }:
        return {**table, "whole": True}
    changed = [row for row in table["runs"] if row != known[row["slug"]]]
    return {"runs": changed} if changed else {}


def _default_metric(metrics: list[dict[str, Any]]) -> str:
    """Return the metric that a page shows before the user selects one."""
    known = [metric["name"] for metric in metrics]
    wanted = [name for name in ("min_intra", "loss", "train loss") if name in known]
    return next(iter([*wanted, *known]), "")


def _selection(request: Request) -> Selection:
    query = request.query_params
    title = query.get("place")
    axis = next((name for name, shown in AXES.items() if shown == title), "epoch")
    metric, *more = query.getlist("metric") or [""]
    return Selection(metric, query.get("layer", "last"), axis, tuple(more))


def _event(value: Any) -> str:
    return f"data: {compact_json(value)}\n\n"


def _json(value: Any) -> Response:
    return Response(compact_json(value), media_type="application/json")


def _not_found() -> Response:
    return PlainTextResponse("There is no such page.\n", status_code=404)


def application(
    root: Path,
    *,
    host: str = "127.0.0.1",
    token: str = "",
    stopping: Callable[[], bool] = lambda: False,
) -> ASGIApp:
    """Return the live page of a folder as an ASGI application."""
    watcher = Watcher(root)
    responses = Responses(watcher, stopping)
    routes = [
        Route("/api/runs", responses.runs),
        Route("/api/curves", responses.curves),
        Route("/api/events", responses.events),
        Route("/api/changes", responses.changes),
        Route("/api/run/{slug}", responses.run),
        Route("/assets/{name}", responses.asset),
        Route("/data/{name:path}", responses.data),
        Route("/{name:path}", responses.page),
    ]

    @contextlib.asynccontextmanager
    async def lifespan(_: object) -> AsyncIterator[None]:
        first = asyncio.create_task(responses.read(watcher.table))  # before the first request
        yield
        first.cancel()

    pages = Starlette(routes=routes, lifespan=lifespan)
    return ReadOnlyAccess(pages, host, token=token)  # outermost, for error responses
