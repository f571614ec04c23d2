"""The web console's pages and endpoints, over the same core as the terminal.

Invariant: nothing here decides anything about a response; it asks the core and renders. Read only: no method but GET,
except for the login.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import parse_qs, quote

from fastapi import FastAPI, Header, HTTPException, Query, Request
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse
from fastapi.sse import EventSourceResponse, ServerSentEvent
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import Response
from starlette.staticfiles import StaticFiles

from console.core.page_map import page_map
from console.core.source import LedgerSource
from console.notify.notifier import Notifier
from console.web.feed import MOST_SUBSCRIBERS, Feed
from console.web.figures import page_map_figure
from console.web.gate import Gate
from console.web.guard import Guard
from console.web.intake import Intake, add_intake
from console.web.metrics import add_metrics
from console.web.pages import PageNotFound, Pages, area_of

HERE = Path(__file__).parent
MOST_FORM_BYTES = 4096
IMMUTABLE = {"cache-control": "private, max-age=31536000, immutable", "content-encoding": "gzip"}
Fragment = Annotated[str | None, Header(alias="x-fragment")]


def create_app(
    source: LedgerSource,
    gate: Gate,
    hosts: tuple[str, ...],
    notifier: Notifier | None = None,
    intake: Intake | None = None,
) -> FastAPI:
    """The application. `hosts`: names under which it may be asked for. `notifier` runs as long as it does."""
    feed, plotly = Feed(source), _Plotly()
    pages = Pages(source.path, plotly.path)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(feed.run())]
        tasks += [asyncio.create_task(notifier.run(feed.fresh))] if notifier else []
        yield
        await feed.close()
        for task in tasks:
            task.cancel()

    app = FastAPI(title="KV Witness console", lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    app.state.feed = feed
    _add_pages(app, feed, pages)
    _add_api(app, feed)
    _add_login(app, gate, pages)
    add_metrics(app, feed, notifier)
    if intake is not None:
        add_intake(app, feed, intake)
    app.add_api_route(plotly.path, plotly.answer, methods=["GET"], include_in_schema=False)
    app.mount("/static", StaticFiles(directory=HERE / "static"))
    app.add_middleware(Guard, gate=gate, refusal=lambda asked: HTMLResponse(pages.login(asked, "no token"), 401))
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=list(hosts), www_redirect=False)
    return app


class _Plotly:
    """plotly.js from its wheel, compressed once, under a name that changes with its content."""

    def __init__(self) -> None:
        self._source = (files("plotly") / "package_data" / "plotly.min.js").read_bytes()
        self.path = f"/static/plotly-{hashlib.sha256(self._source).hexdigest()[:12]}.js"
        self._packed: bytes | None = None

    async def answer(self) -> Response:
        """The script."""
        if self._packed is None:
            self._packed = await asyncio.to_thread(gzip.compress, self._source, 6)
        return Response(self._packed, media_type="text/javascript", headers=IMMUTABLE)


def _add_pages(app: FastAPI, feed: Feed, pages: Pages) -> None:
    @app.get("/")
    async def root() -> RedirectResponse:
        return RedirectResponse("/incidents", 303)

    @app.get("/incidents")
    async def incidents(fragment: Fragment = None) -> HTMLResponse:
        return HTMLResponse(pages.incidents(await feed.fresh(), feed.version, fragment is not None))

    @app.get("/incidents/{incident_id}")
    async def incident(
        incident_id: str, resp: str | None = None, page: int | None = None, fragment: Fragment = None
    ) -> HTMLResponse:
        desk = await feed.fresh()
        return HTMLResponse(pages.incident(desk, feed.version, incident_id, resp, page, fragment is not None))

    @app.get("/pages")
    async def page_ownership(
        incident: str | None = None, pool: str | None = None, fragment: Fragment = None
    ) -> HTMLResponse:
        return HTMLResponse(pages.page_map(await feed.fresh(), feed.version, incident, pool, fragment is not None))

    @app.exception_handler(PageNotFound)
    async def not_found(request: Request, error: PageNotFound) -> Response:
        if request.url.path.startswith("/api/"):
            return JSONResponse({"error": {"message": str(error), "code": "not_found"}}, 404)
        return HTMLResponse(pages.missing(feed.desk, feed.version, str(error), "x-fragment" in request.headers), 404)

    @app.exception_handler(StarletteHTTPException)
    async def refused(request: Request, error: StarletteHTTPException) -> Response:
        if request.url.path.startswith("/api/"):
            return JSONResponse({"error": {"message": error.detail, "code": str(error.status_code)}}, error.status_code)
        words = "There is no such page." if error.status_code == 404 else str(error.detail)
        return HTMLResponse(pages.missing(feed.desk, feed.version, words, False), error.status_code, error.headers)


def _add_api(app: FastAPI, feed: Feed) -> None:
    @app.get("/api/pages")
    async def pages_figure(
        incident: str | None = None,
        pool: str | None = None,
        theme: Annotated[str, Query(pattern="^(dark|light)$")] = "dark",
        start: Annotated[int | None, Query(alias="from_us")] = None,
        end: Annotated[int | None, Query(alias="to_us")] = None,
        first: Annotated[int | None, Query(ge=0)] = None,
        last: Annotated[int | None, Query(ge=0)] = None,
    ) -> JSONResponse:
        desk = await feed.fresh()
        if desk.shown is None:
            raise HTTPException(503, "the ledger has not been read yet")
        shown = desk.shown
        area = area_of(shown, incident, pool, (start, end), (first, last))

        def figure() -> dict[str, Any]:
            return page_map_figure(shown, page_map(shown, area), theme)

        return JSONResponse({"version": feed.version, **await asyncio.to_thread(figure)})

    @app.get("/api/stream", response_class=EventSourceResponse)
    async def stream(
        seen: int = -1, last_event_id: Annotated[str | None, Header()] = None
    ) -> AsyncIterator[ServerSentEvent]:
        if feed.subscribers >= MOST_SUBSCRIBERS:
            yield ServerSentEvent(event="full", data="too many open pages; this one asks again in 30 s", retry=30_000)
            return
        start = int(last_event_id) if last_event_id and last_event_id.isdigit() else seen
        async for version in feed.news(start):
            yield ServerSentEvent(event="snapshot", id=str(version), data={"version": version}, retry=2000)


def _add_login(app: FastAPI, gate: Gate, pages: Pages) -> None:
    @app.get("/login")
    async def ask() -> HTMLResponse:
        return HTMLResponse(pages.login("/incidents", ""))

    @app.post("/login")
    async def login(request: Request) -> Response:
        form = parse_qs((await _body(request)).decode("utf-8", "replace"))
        target = form.get("next", ["/incidents"])[0]
        if not gate.knows(form.get("token", [""])[0].strip()):
            return HTMLResponse(pages.login(target, "wrong token"), 401)
        return RedirectResponse(_local(target), 303, {"set-cookie": gate.set_cookie})


async def _body(request: Request) -> bytes:
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MOST_FORM_BYTES:
            raise HTTPException(413, "the form is too large")
    return body


def _local(target: str) -> str:
    """Only ever a path of this server."""
    path = "/" + target.lstrip("/\\")
    return quote(path, safe="/?&=%:.,-_~") if path != "/login" else "/incidents"
