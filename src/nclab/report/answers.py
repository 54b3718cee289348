"""What the live page answers: pages, numbers and the events of growing runs."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse

from nclab.report.columns import AXES
from nclab.report.site import assets, compact, data_files, run_script
from nclab.report.watcher import Selection, Watcher

PAUSE_SECONDS = 0.5
"""Between two looks at the journals, for a page that listens."""
TYPES = {
    ".js": "text/javascript",
    ".css": "text/css",
    ".json": "application/json",
    ".csv": "text/csv",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".pdf": "application/pdf",
}


class Answers:
    """Answers requests; paths are looked up, never joined to a folder."""

    def __init__(self, watcher: Watcher, stopping: Callable[[], bool]) -> None:
        self._watcher, self._stopping = watcher, stopping
        self._assets = dict(assets(watcher.plotly))

    async def fresh(self) -> Watcher:
        """The runs as they are now."""
        await asyncio.to_thread(self._watcher.refresh)
        return self._watcher

    async def warm(self) -> None:
        """Read all runs before anyone asks."""
        await asyncio.to_thread((await self.fresh()).table)

    async def live(self, request: Request) -> Response:
        """The page on which runs are compared; its numbers come by events."""
        return _page(await asyncio.to_thread(self._watcher.live_page))

    async def page(self, request: Request) -> Response:
        """A page of the report, as of now."""
        name = request.path_params["name"]
        watcher = await self.fresh()
        text = await asyncio.to_thread(watcher.render, name)
        if text is None:  # perhaps of a run that has just begun
            await asyncio.to_thread(watcher.refresh, again=True)
            text = await asyncio.to_thread(watcher.render, name)
        return _missing() if text is None else _page(text)

    async def runs(self, request: Request) -> Response:
        """All runs, each in one line."""
        return _json((await self.fresh()).list_runs())

    async def run(self, request: Request) -> Response:
        """Everything that the page of one run draws."""
        watcher = await self.fresh()
        data = await asyncio.to_thread(watcher.run, request.path_params["slug"])
        return _missing() if data is None else _json(data)

    async def curves(self, request: Request) -> Response:
        """The chosen curves of all runs."""
        watcher = await self.fresh()
        return _json(await asyncio.to_thread(watcher.curves, _selection(request), {}))

    async def claims(self, request: Request) -> Response:
        """Every claim."""
        return _json(list((await self.fresh()).content.claims))

    async def asset(self, request: Request) -> Response:
        """A script or the style sheet."""
        name = request.path_params["name"]
        if name not in self._assets:
            return _missing()
        kind = TYPES[Path(name).suffix]
        headers = {"Cache-Control": "max-age=3600"} if name == "plotly.min.js" else {}
        return Response(self._assets[name], media_type=kind, headers=headers)

    async def data(self, request: Request) -> Response:
        """Numbers and images behind the pages."""
        kind, name = request.path_params["kind"], request.path_params["name"]
        watcher = await self.fresh()
        found: str | bytes | None = None
        if kind == "runs" and name.endswith(".js"):
            data = await asyncio.to_thread(watcher.run, name.removesuffix(".js"))
            found = None if data is None else run_script(data)
        else:
            content = await asyncio.to_thread(watcher.figured)
            if make := data_files(content).get(f"{kind}/{name}"):
                with contextlib.suppress(OSError):  # gone, or no longer what it was
                    found = await asyncio.to_thread(make)
        media = TYPES.get(Path(name).suffix, "application/octet-stream")
        return _missing() if found is None else Response(found, media_type=media)

    async def events(self, request: Request) -> Response:
        """The chosen curves as they grow: first all of them, then those that changed."""
        lines = self._events(request, _selection(request))
        return StreamingResponse(lines, media_type="text/event-stream")

    async def changes(self, request: Request) -> Response:
        """A word whenever one run has grown."""
        lines = self._changes(request, request.query_params.get("run", ""))
        return StreamingResponse(lines, media_type="text/event-stream")

    async def _events(self, request: Request, selection: Selection) -> AsyncIterator[str]:
        since: dict[str, int] = {}
        before: Any = None
        while not self._stopping() and not await request.is_disconnected():
            watcher = await self.fresh()
            table = await asyncio.to_thread(watcher.table)
            if not selection.metric and (metric := _first_metric(table["metrics"])):
                selection = selection._replace(metric=metric)
                since.clear()
            curves = await asyncio.to_thread(watcher.curves, selection, since)
            message: dict[str, Any] = {"metric": selection.metric}
            if curves:
                message["curves"] = curves
            message |= _news(table, before)
            if len(message) > 1 or before is None:
                yield _event(message)
            before = table
            await asyncio.sleep(PAUSE_SECONDS)

    async def _changes(self, request: Request, slug: str) -> AsyncIterator[str]:
        before: int | None = None
        yield ": here\n\n"
        while not self._stopping() and not await request.is_disconnected():
            version = (await self.fresh()).versions.get(slug)
            if before is not None and version != before:
                yield _event({"run": slug, "version": version})
            before = version
            await asyncio.sleep(PAUSE_SECONDS)


def _news(table: dict[str, Any], before: dict[str, Any] | None) -> dict[str, Any]:
    """Of all runs those that changed; everything where the table itself has another shape.

    >>> one, other = {"runs": [{"slug": "a"}]}, {"runs": [{"slug": "a", "state": "failed"}]}
    >>> _news(other, one), _news(one, one)
    ({'runs': [{'slug': 'a', 'state': 'failed'}]}, {})
    """
    if before is None:
        return {**table, "whole": True}
    if table is before:
        return {}
    rest = {name: value for name, value in table.items() if name != "runs"}
    slugs = [row["slug"] for row in table["runs"]]
    if any(before[name] != value for name, value in rest.items()) or slugs != [
        row["slug"] for row in before["runs"]
    ]:
        return {**table, "whole": True}
    pairs = zip(table["runs"], before["runs"], strict=True)
    changed = [row for row, old in pairs if row != old]
    return {"runs": changed} if changed else {}


def _first_metric(metrics: list[dict[str, Any]]) -> str:
    """What a page shows before anything is chosen."""
    known = [metric["name"] for metric in metrics]
    wanted = [name for name in ("min_intra", "loss", "train loss") if name in known]
    return next(iter([*wanted, *known]), "")


def _selection(request: Request) -> Selection:
    query = request.query_params
    asked = query.get("place")
    place = next((name for name, shown in AXES.items() if shown == asked), "epoch")
    metric, *more = query.getlist("metric") or [""]
    return Selection(metric, query.get("layer", "last"), place, tuple(more))


def _event(value: Any) -> str:
    return f"data: {json.dumps(value, separators=(',', ':'), allow_nan=False)}\n\n"


def _json(value: Any) -> Response:
    return Response(compact(value), media_type="application/json")


def _page(text: str) -> Response:
    """A page; what of a name is no text is shown as question marks."""
    return HTMLResponse(text.encode("utf-8", "replace"))


def _missing() -> Response:
    return PlainTextResponse("There is no such page.\n", status_code=404)
