"""The web console's pages and endpoints, over the same core as the terminal.

Invariant: nothing here decides anything about a response; it asks the core and renders. No method but GET is taken, but
for the login and, where writing is switched on, for what people say of incidents and ask of runbooks.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Annotated
from urllib.parse import parse_qs, quote, urlsplit

from fastapi import FastAPI, HTTPException, Query, Request
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import PlainTextResponse, Response
from starlette.staticfiles import StaticFiles

from console.core.filter_language import FilterError
from console.core.places import Place
from console.core.run_start import RunSetting, StartRefused
from console.core.saved_views import views_file
from console.core.source import LedgerSource
from console.core.time_range import BadRange, Span
from console.core.triage import Entry, TriageError
from console.core.view import View
from console.core.view_link import BadLink, asks_absolute, to_link
from console.notify.notifier import Notifier
from console.web.api import add_api
from console.web.asked import Asked, PageNotFound, ask, changed_link
from console.web.charts import NotReadYet
from console.web.fault import Fault, typed_of
from console.web.feed import AnyFeed, Feed
from console.web.gate import Gate, Visitor
from console.web.guard import Guard
from console.web.intake import Intake, add_intake
from console.web.metrics import add_metrics
from console.web.pages import PLACES, Caller, Pages
from console.web.past import PastFailed
from console.web.run_forms import RunForms
from console.web.triage_forms import TriageForms
from console.web.write_check import check_writer

HERE = Path(__file__).parent
MOST_FORM_BYTES = 4096
IMMUTABLE = {"cache-control": "private, max-age=31536000, immutable", "content-encoding": "gzip"}


def create_app(
    source: LedgerSource,
    gate: Gate,
    hosts: tuple[str, ...],
    state: Path,
    *,
    runs: RunSetting | None = None,
    patience_s: float | None = None,
    notifier: Notifier | None = None,
    intake: Intake | None = None,
    views: Path | None = None,
) -> FastAPI:
    """The application over one ledger. `hosts`: names under which it may be asked for; `state`: the directory of what people say of
    incidents; `runs`: where runbooks keep theirs (else in `state`, for reading); `patience_s`: how long an answer waits for
    a reading, where it is not the feed's own; `notifier` runs as long as it does; `views`: the user's saved views.
    """
    run_forms = RunForms(runs or RunSetting(state / "runbooks"), source.path)
    feed = Feed(source, patience_s, beside=run_forms.state)
    forms = TriageForms(state, source)
    feed.entries = forms.entries
    app = app_of(feed, Parts(gate, hosts, run_forms, views or views_file()), notifier)
    add_writing(app, feed, gate, forms, run_forms, intake)
    add_metrics(app, {"": feed}, {"": notifier} if notifier else {})
    return app


@dataclass(frozen=True)
class Parts:
    """What an application is made of besides its feed. `hosts`: names under which it may be asked for; `views`: the user's saved
    views.
    """

    gate: Gate
    hosts: tuple[str, ...]
    runs: RunForms
    views: Path


def app_of(feed: AnyFeed, parts: Parts, notifier: Notifier | None = None) -> FastAPI:
    """The application over what a feed shows: screens, charts, files, and the stream of news. `notifier` runs as long as it
    does."""
    plotly = _Plotly()
    pages = Pages(feed, plotly.path, parts.gate, parts.runs, parts.views)

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
    _add_screens(app, feed, pages)
    _add_refusals(app, feed, pages)
    _add_login(app, parts.gate, pages)
    add_api(app, feed, parts.views, parts.runs)
    app.add_api_route(plotly.path, plotly.answer, methods=["GET"], include_in_schema=False)
    app.mount("/static", StaticFiles(directory=HERE / "static"))
    app.add_middleware(Guard, gate=parts.gate, refusal=lambda asked: HTMLResponse(pages.login(asked, "no token"), 401))
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=list(parts.hosts), www_redirect=False)
    return app


def add_writing(
    app: FastAPI, feed: Feed, gate: Gate, forms: TriageForms, runs: RunForms, intake: Intake | None
) -> None:  # fmt: skip
    """What is sent to one ledger's application: what people say of its incidents, what they ask of runbooks, alerts."""
    _add_forms(app, gate, forms, feed)
    _add_run_forms(app, gate, runs, feed)
    if intake is not None:
        add_intake(app, feed, intake)


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


def visitor_of(request: Request) -> Visitor | None:
    """Who asks, as the guard found."""
    visitor: Visitor | None = getattr(request.state, "visitor", None)
    return visitor


def address_of(request: Request) -> str:
    """Path and query as asked for."""
    return request.url.path + (f"?{request.url.query}" if request.url.query else "")


def _add_screens(app: FastAPI, feed: AnyFeed, pages: Pages) -> None:
    @app.get("/")
    async def root() -> RedirectResponse:
        return RedirectResponse("/overview", 303)

    @app.get("/go")
    async def go(
        at: str = "/overview", wanted: Annotated[str, Query(alias="range")] = "", q: str = ""
    ) -> RedirectResponse:
        return RedirectResponse(changed_link(_local(at), wanted, q), 303)

    async def screen(request: Request) -> Response:
        address = address_of(request)
        await feed.fresh()
        asked = await ask(feed, address)
        elsewhere = _own_ledger(asked)
        if elsewhere is not None:
            return RedirectResponse(elsewhere, 303)
        if asks_absolute(request.url.query):
            return RedirectResponse(asked.link(), 303)
        visitor = visitor_of(request)
        caller = Caller(address, visitor, "x-fragment" in request.headers)
        return HTMLResponse(await asyncio.to_thread(pages.screen, asked, caller))

    for path in (*(f"/{place}" for place in PLACES), "/incidents/{incident_id}"):
        app.add_api_route(path, screen, methods=["GET"], include_in_schema=False, response_model=None)


def _own_ledger(asked: Asked) -> str | None:
    """Where the incident stands that is asked for among all ledgers."""
    if asked.desk.merged is None or asked.view.place is not Place.INCIDENT:
        return None
    incident = asked.desk.incident_of(asked.view.incident)
    return None if incident is None else to_link(asked.opened(incident.id, asked.view.rid, incident.source))


def _said(feed: AnyFeed) -> tuple[Entry, ...]:
    """What people said of incidents; nothing where it cannot be read, so that all of them count as open."""
    try:
        return feed.entries()
    except TriageError:
        return ()


def _add_refusals(app: FastAPI, feed: AnyFeed, pages: Pages) -> None:
    def answer(request: Request, words: str, status: int, error: Exception | None = None) -> Response:
        if request.url.path.startswith(("/api/", "/tables/")):
            code = {404: "not_found", 503: "not_read_yet"}.get(status, str(status))
            return JSONResponse({"error": {"message": words, "code": code}}, status)
        if visitor_of(request) is None:  # who may not look learns nothing of the record by asking wrongly
            return PlainTextResponse(words, status)
        back, typed = (
            typed_of(address_of(request)) if request.method == "GET" else ("/" + request.url.path.split("/")[1], None)
        )
        caller = Caller(back, visitor_of(request), fragment="x-fragment" in request.headers)
        now = feed.now_us()
        view = View(ledger=feed.name if feed.ledgers else None)
        asked = Asked(
            feed.desk, feed.mark, view, Span(), now, now, said=_said(feed), ledgers=feed.ledgers, states=feed.states
        )
        if status == 400:
            fault = Fault(words, back, typed, error.at if isinstance(error, FilterError) else None)
            return HTMLResponse(pages.unreadable(asked, caller, fault), status)
        return HTMLResponse(pages.missing(asked, caller, words), status)

    @app.exception_handler(PageNotFound)
    async def not_found(request: Request, error: PageNotFound) -> Response:
        return answer(request, str(error), 404)

    @app.exception_handler(NotReadYet)
    async def not_yet(request: Request, _: NotReadYet) -> Response:
        return answer(request, "the ledger has not been read yet", 503)

    @app.exception_handler(PastFailed)
    async def no_past(request: Request, error: PastFailed) -> Response:
        return answer(request, f"{error}.", 500)

    async def unreadable(request: Request, error: Exception) -> Response:
        return answer(request, f"{error}.", 400, error)

    for kind in (BadLink, BadRange, FilterError, TriageError, StartRefused):
        app.add_exception_handler(kind, unreadable)

    @app.exception_handler(StarletteHTTPException)
    async def refused(request: Request, error: StarletteHTTPException) -> Response:
        is_api = request.url.path.startswith("/api/")
        words = "There is no such page." if error.status_code == 404 and not is_api else str(error.detail)
        return answer(request, words, error.status_code)


def _add_login(app: FastAPI, gate: Gate, pages: Pages) -> None:
    @app.get("/login")
    async def ask_for_token() -> HTMLResponse:
        return HTMLResponse(pages.login("/overview", ""))

    @app.post("/login")
    async def login(request: Request) -> Response:
        form = await _form(request)
        target, token = form.get("next", "/overview"), form.get("token", "").strip()
        if not gate.knows(token):
            return HTMLResponse(pages.login(target, "wrong token"), 401)
        return RedirectResponse(_local(target), 303, {"set-cookie": gate.set_cookie(token)})


def _add_forms(app: FastAPI, gate: Gate, forms: TriageForms, feed: Feed) -> None:
    @app.post("/incidents/{incident_id}/triage")
    async def triage(request: Request, incident_id: str) -> Response:
        form = await _form(request)
        visitor = check_writer(gate, visitor_of(request), request, form)
        await feed.fresh()
        asked = await ask(feed, _seen_at(request, incident_id))
        incident = None if asked.rollup is None else asked.rollup.incident(incident_id)
        if incident is None:
            raise PageNotFound("There is no such incident in this ledger.")
        await asyncio.to_thread(forms.write, visitor, incident, form)
        view = View(Place.INCIDENT, incident=incident.id, ledger=feed.name if feed.ledgers else None)
        return RedirectResponse(to_link(view), 303)


def _add_run_forms(app: FastAPI, gate: Gate, forms: RunForms, feed: Feed) -> None:
    @app.post("/runs")
    async def act(request: Request) -> Response:
        form = await _form(request)
        visitor = check_writer(gate, visitor_of(request), request, form)
        subject = await asyncio.to_thread(forms.act, visitor, form, feed.now_us())
        view = View(Place.RUNS, ledger=feed.name if feed.ledgers else None)
        return RedirectResponse(f"{to_link(view)}#run-{quote(subject)}", 303)


def _seen_at(request: Request, incident_id: str) -> str:
    """The address under which an incident was seen: of a view that was paused, what it shows is what is spoken of."""
    as_of = parse_qs(urlsplit(request.headers.get("referer", "")).query).get("as_of")
    return f"/incidents/{quote(incident_id)}" + (f"?as_of={quote(as_of[0])}" if as_of else "")


async def _form(request: Request) -> dict[str, str]:
    """A form of this console; the first of every name. Raises HTTPException where it is too large."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MOST_FORM_BYTES:
            raise HTTPException(413, "the form is too large")
    return {name: values[0] for name, values in parse_qs(body.decode("utf-8", "replace")).items()}


def _local(target: str) -> str:
    """Only ever a path of this server."""
    path = "/" + target.lstrip("/\\")
    return quote(path, safe="/?&=%:.,-_~") if path != "/login" else "/overview"
