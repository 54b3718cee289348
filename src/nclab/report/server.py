"""The live page: a read-only server of one folder, for this machine alone unless told otherwise."""

import asyncio
import contextlib
import ipaddress
import json
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nclab.errors import NclabError
from nclab.figures.picture import to_json
from nclab.report.content import Figure, check_folder, safe_name
from nclab.report.site import assets, compact, figure_script
from nclab.report.table import picture_csv
from nclab.report.watcher import Selection, Watcher

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp, Receive, Scope, Send

LOCAL = {"127.0.0.1", "localhost", "::1"}
PAUSE_SECONDS = 0.5
"""Between two looks at the journals, for a page that listens."""
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
TYPES = {
    ".js": "text/javascript",
    ".css": "text/css",
    ".json": "application/json",
    ".csv": "text/csv",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".pdf": "application/pdf",
}


def serve(
    runs: Path, *, host: str = "127.0.0.1", port: int = 8000, tell: Callable[[str], None]
) -> None:
    """Serve a folder until stopped; the address is told once it answers."""
    root = check_folder(runs)
    try:
        import uvicorn
    except ImportError as error:
        raise NclabError("The live page needs uvicorn. Run `pip install nclab[serve]`.") from error
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
        raise NclabError(
            f"Cannot listen at {host}, port {port}: {error.strerror}. Pass another --port."
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
        raise NclabError(
            "The live page needs starlette. Run `pip install nclab[serve]`."
        ) from error
    desk = _Desk(Watcher(root), stopping)
    routes = [
        Route("/", desk.home),
        Route("/live.html", desk.live),
        Route("/api/runs", desk.runs),
        Route("/api/curves", desk.curves),
        Route("/api/events", desk.events),
        Route("/api/changes", desk.changes),
        Route("/api/run/{slug}", desk.run),
        Route("/assets/{name}", desk.asset),
        Route("/data/{kind}/{name}", desk.data),
        Route("/data/claims.json", desk.claims),
        Route("/{name:path}", desk.page),
    ]

    @contextlib.asynccontextmanager
    async def reading(_: Starlette) -> AsyncIterator[None]:
        # Long journals are read before anyone asks.
        first = asyncio.create_task(desk.read())
        yield
        first.cancel()

    guard = Middleware(_Guard, host=host)
    return Starlette(routes=routes, middleware=[guard], lifespan=reading)


class _Guard:
    """Refuses foreign names and everything but reading; adds the headers of every answer."""

    def __init__(self, app: "ASGIApp", host: str) -> None:
        self._app, self._host = app, host

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        from starlette.responses import PlainTextResponse

        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                known = {name for name, _ in message["headers"]}
                for name, value in HEADERS.items():
                    if name.lower().encode() not in known:
                        message["headers"].append((name.lower().encode(), value.encode()))
            await send(message)

        asked = [value for name, value in scope["headers"] if name == b"host"]
        if len(asked) != 1 or not allowed(asked[0].decode("latin-1"), self._host):
            text = "Expected the name or address of this server as Host. Open it as it was told.\n"
            await PlainTextResponse(text, status_code=400)(scope, receive, with_headers)
        elif scope["method"] not in ("GET", "HEAD"):
            text = "This server only answers GET and HEAD.\n"
            answer = PlainTextResponse(text, status_code=405, headers={"Allow": "GET, HEAD"})
            await answer(scope, receive, with_headers)
        else:
            await self._app(scope, receive, with_headers)


def allowed(header: str, host: str) -> bool:
    """Whether a Host header names this server and not a page that points its name at us.

    >>> allowed("localhost:8000", "127.0.0.1"), allowed("evil.example:8000", "127.0.0.1")
    (True, False)
    """
    name = header.strip().lower()
    name = name[1:].partition("]")[0] if name.startswith("[") else name.rpartition(":")[0] or name
    if name in LOCAL | {host.lower()}:
        return True
    if host not in ("0.0.0.0", "::"):
        return False
    if name == socket.gethostname().lower():
        return True
    try:  # an address is no name that could be pointed elsewhere
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class _Desk:
    """Answers requests; paths are looked up, never joined to a folder."""

    def __init__(self, watcher: Watcher, stopping: Callable[[], bool]) -> None:
        self._watcher, self._stopping = watcher, stopping
        self._assets = dict(assets(watcher.plotly))

    async def _fresh(self) -> Watcher:
        await asyncio.to_thread(self._watcher.refresh)
        return self._watcher

    async def read(self) -> None:
        """Read everything once."""
        await self._fresh()

    async def home(self, request: "Request") -> "Response":
        """The live page."""
        return await self.live(request)

    async def live(self, request: "Request") -> "Response":
        """The page on which runs are compared; its numbers come by events."""
        from starlette.responses import HTMLResponse

        return HTMLResponse(self._watcher.pages().live_page())

    async def page(self, request: "Request") -> "Response":
        """A page of the report, as of now."""
        from starlette.responses import HTMLResponse

        name = request.path_params["name"]
        pages = (await self._fresh()).pages()
        if name not in pages.names():  # perhaps of a run that has just begun
            await asyncio.to_thread(self._watcher.refresh, again=True)
            pages = self._watcher.pages()
        text = await asyncio.to_thread(pages.render, name)
        return _missing() if text is None else HTMLResponse(text)

    async def runs(self, request: "Request") -> "Response":
        """All runs, each in one line."""
        return _json((await self._fresh()).list_runs())

    async def run(self, request: "Request") -> "Response":
        """Everything that the page of one run draws."""
        watcher = await self._fresh()
        data = await asyncio.to_thread(watcher.run, request.path_params["slug"])
        return _missing() if data is None else _json(data)

    async def curves(self, request: "Request") -> "Response":
        """The chosen curves of all runs."""
        watcher = await self._fresh()
        return _json(await asyncio.to_thread(watcher.curves, _selection(request), {}))

    async def claims(self, request: "Request") -> "Response":
        """Every claim."""
        return _json(list((await self._fresh()).content.claims))

    async def asset(self, request: "Request") -> "Response":
        """A script or the style sheet."""
        from starlette.responses import Response

        name = request.path_params["name"]
        if name not in self._assets:
            return _missing()
        kind = TYPES[Path(name).suffix]
        headers = {"Cache-Control": "max-age=3600"} if name == "plotly.min.js" else {}
        return Response(self._assets[name], media_type=kind, headers=headers)

    async def data(self, request: "Request") -> "Response":
        """Numbers and images behind the pages."""
        kind, name = request.path_params["kind"], request.path_params["name"]
        watcher = await self._fresh()
        found: str | bytes | None = None
        if kind == "runs" and name.endswith(".js"):
            data = await asyncio.to_thread(watcher.run, name.removesuffix(".js"))
            found = None if data is None else f"nclab.gotRun({compact(data)});\n"
        elif kind == "numbers":
            found = self._numbers(name)
        elif kind == "figures":
            found = self._figure(name)
        from starlette.responses import Response

        media = TYPES.get(Path(name).suffix, "application/octet-stream")
        return _missing() if found is None else Response(found, media_type=media)

    def _numbers(self, name: str) -> bytes | None:
        for one in self._watcher.content.experiments:
            if one.file is not None and name == f"{safe_name(one.name)}.json":
                return one.file.read_bytes()
        return None

    def _figure(self, name: str) -> str | bytes | None:
        figures = (one for exp in self._watcher.content.experiments for one in exp.figures)
        made: dict[str, Callable[[Figure], str]] = {
            ".js": lambda one: figure_script(one.id, one.picture),
            ".json": lambda one: compact(to_json(one.picture)),
            ".csv": lambda one: picture_csv(one.picture),
        }
        for one in figures:
            suffix = name.removeprefix(one.id)
            if name.startswith(one.id) and suffix in made and one.picture.panels:
                return made[suffix](one)
            if name.startswith(one.id) and suffix in one.images:
                return one.images[suffix].read_bytes()
        return None

    async def events(self, request: "Request") -> "Response":
        """The chosen curves as they grow: first all of them, then those that changed."""
        return _stream(self._events(request, _selection(request)))

    async def changes(self, request: "Request") -> "Response":
        """A word whenever one run has grown."""
        return _stream(self._changes(request, request.query_params.get("run", "")))

    async def _events(self, request: "Request", selection: Selection) -> AsyncIterator[str]:
        since: dict[str, int] = {}
        before: Any = None
        while not self._stopping() and not await request.is_disconnected():
            watcher = await self._fresh()
            runs = await asyncio.to_thread(watcher.list_runs)
            if before is None and not selection.metric:
                selection = selection._replace(metric=_first_metric(runs))
            curves = await asyncio.to_thread(watcher.curves, selection, since)
            message: dict[str, Any] = {"metric": selection.metric}
            if curves:
                message["curves"] = curves
            if runs != before:
                message["runs"] = runs
            if len(message) > 1 or before is None:
                yield _event(message)
            before = runs
            await asyncio.sleep(PAUSE_SECONDS)

    async def _changes(self, request: "Request", slug: str) -> AsyncIterator[str]:
        before: int | None = None
        yield ": here\n\n"
        while not self._stopping() and not await request.is_disconnected():
            version = (await self._fresh()).versions.get(slug)
            if before is not None and version != before:
                yield _event({"run": slug, "version": version})
            before = version
            await asyncio.sleep(PAUSE_SECONDS)


def _first_metric(runs: list[dict[str, Any]]) -> str:
    """What a page shows before anything is chosen."""
    known = dict.fromkeys(metric for run in runs for metric in run["metrics"])
    wanted = [name for name in ("min_intra", "loss", "train loss") if name in known]
    return next(iter([*wanted, *known]), "")


def _selection(request: "Request") -> Selection:
    query = request.query_params
    place = query.get("place", "epoch")
    return Selection(
        query.get("metric", ""), query.get("layer", "last"), place if place == "step" else "epoch"
    )


def _event(value: Any) -> str:
    return f"data: {json.dumps(value, separators=(',', ':'), allow_nan=False)}\n\n"


def _stream(lines: AsyncIterator[str]) -> "Response":
    from starlette.responses import StreamingResponse

    return StreamingResponse(lines, media_type="text/event-stream")


def _json(value: Any) -> "Response":
    from starlette.responses import Response

    return Response(compact(value), media_type="application/json")


def _missing() -> "Response":
    from starlette.responses import PlainTextResponse

    return PlainTextResponse("There is no such page.\n", status_code=404)
