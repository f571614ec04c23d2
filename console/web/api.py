"""What scripts and the pages' own script ask for: charts, tables as files, and the stream of news.

Invariant: names of requests and tenants leave in a file only with a token that may take them, and then it is said who
took what.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Annotated, BinaryIO, cast
from urllib.parse import quote

from fastapi import FastAPI, Header, Query, Request
from fastapi.responses import JSONResponse
from fastapi.sse import EventSourceResponse, ServerSentEvent
from starlette.responses import Response, StreamingResponse

from console.core.actions import ACTIONS, Action
from console.core.commands import Command, CommandError
from console.core.event_export import events_file, export_events
from console.core.event_window import Looked
from console.core.evidence_bundle import evidence_bundle, incident_scope, range_scope
from console.core.export import FORMATS, Exported, export
from console.core.filter_language import parse_filter
from console.core.places import Place
from console.core.printable import printable
from console.core.redaction import Redaction
from console.core.run_tables import RUN_TABLES, run_table
from console.core.times import moment
from console.web.asked import Asked, PageNotFound, ask
from console.web.charts import NotReadYet, chart
from console.web.feed import MOST_SUBSCRIBERS, AnyFeed
from console.web.gate import Visitor
from console.web.kept import Pinned
from console.web.moves import REFUSALS, address_after, read_command
from console.web.run_forms import RunForms
from console.web.tables import left_of, place_of, sheet_asked

CHUNK_BYTES = 1 << 18


def add_api(app: FastAPI, feed: AnyFeed, views: Path, runs: RunForms) -> None:
    """Add the endpoints. `views`: the file of saved views; `runs`: what `/tables/runs` is made of."""

    @app.get("/api/charts/{name}")
    async def one_chart(
        name: str, request: Request, theme: Annotated[str, Query(pattern="^(dark|light|contrast)$")] = "dark"
    ) -> JSONResponse:
        await feed.fresh()
        asked = await ask(feed, f"/overview?{request.url.query}")
        figure = await asyncio.to_thread(chart, name, asked, theme)
        return JSONResponse({"mark": asked.mark, **figure})

    @app.get("/api/address")
    async def address(at: str, action: str = "", argument: str = "", command: str = "") -> JSONResponse:
        """Where an action of the table, or a command as it was typed, leads from the address `at`."""
        await feed.fresh()
        try:
            asked = await ask(feed, at)
            wanted = read_command(command) if command else Command(_named(action), argument)
            made = await asyncio.to_thread(address_after, asked, wanted.action, wanted.argument, views)
            _pin(feed, asked, wanted.action)
        except REFUSALS as error:
            return JSONResponse({"error": {"message": str(error), "code": "refused"}}, 400)
        return JSONResponse({"address": made})

    @app.get("/tables/{name}.{fmt}")
    async def one_table(name: str, fmt: str, request: Request) -> Response:
        if fmt not in FORMATS:
            raise PageNotFound(f"There is no format {fmt}. There are: {', '.join(FORMATS)}.")
        await feed.fresh()
        asked = await ask(feed, f"/{place_of(name)}?{request.url.query}")
        visitor: Visitor = request.state.visitor
        if name == "events":
            return _sent(*await asyncio.to_thread(_events_file, fmt, asked, visitor), fmt)
        file = await asyncio.to_thread(_file, name, fmt, asked, visitor, runs)
        headers = {"content-disposition": f'attachment; filename="{_plain(file.name)}"'}
        return Response(file.content, media_type=file.media_type, headers=headers)

    async def bundle(request: Request, address: str) -> Response:
        await feed.fresh()
        asked = await ask(feed, address)
        file = await asyncio.to_thread(_bundle, asked, request.state.visitor)
        headers = {"content-disposition": f'attachment; filename="{_plain(file.name)}"'}
        return Response(file.content, media_type=file.media_type, headers=headers)

    @app.get("/api/incidents/{incident_id}/bundle")
    async def of_incident(incident_id: str, request: Request) -> Response:
        return await bundle(request, f"/incidents/{quote(incident_id)}?{request.url.query}")

    @app.get("/api/bundle")
    async def of_range(request: Request) -> Response:
        return await bundle(request, f"/events?{request.url.query}")

    @app.get("/api/mark")
    async def mark() -> JSONResponse:
        """What a stream would say, for whom none reaches."""
        await feed.fresh()
        return JSONResponse({"mark": feed.mark})

    @app.get("/api/stream", response_class=EventSourceResponse)
    async def stream(
        seen: str = "", last_event_id: Annotated[str | None, Header()] = None
    ) -> AsyncIterator[ServerSentEvent]:
        if feed.subscribers >= MOST_SUBSCRIBERS:
            yield ServerSentEvent(event="full", data="too many open pages; this one asks again in 30 s", retry=30_000)
            return
        async for mark in feed.news(last_event_id or seen):
            yield ServerSentEvent(event="snapshot", id=mark, data={"mark": mark}, retry=2000)


def _file(name: str, fmt: str, asked: Asked, visitor: Visitor, runs: RunForms) -> Exported:
    known = asked.rollup
    if known is None:
        raise NotReadYet
    sheet = run_table(name, runs.listed_in(asked)) if name in RUN_TABLES else sheet_asked(name, asked)
    left = left_of(sheet, asked)
    _note_names(asked, visitor, f"{name}.{fmt}, {len(left.rows)} rows")
    return export(known, sheet, left, asked.view, fmt, _redaction(visitor))


def _bundle(asked: Asked, visitor: Visitor) -> Exported:
    """The evidence of the incident that the address names, else of its range."""
    shown = asked.desk.shown
    if asked.desk.merged is not None:
        raise PageNotFound("Evidence is of one ledger: name it in the place of all.")
    if shown is None:
        raise NotReadYet
    scope = range_scope(shown, asked.span)
    if asked.view.place is Place.INCIDENT:
        incident = shown.incident(asked.view.incident)
        if incident is None:
            raise PageNotFound(f"There is no incident {printable(asked.view.incident)} in this ledger.")
        scope = incident_scope(incident)
    _note_names(asked, visitor, f"the evidence of {scope.name}")
    return evidence_bundle(shown, scope, asked.view, _redaction(visitor))


def _redaction(visitor: Visitor) -> Redaction:
    """What may leave with a visitor."""
    return Redaction(hide=not visitor.role.may_take_names)


def _note_names(asked: Asked, visitor: Visitor, what: str) -> None:
    """Say who takes names."""
    if visitor.role.may_take_names:
        said = f"{moment(asked.clock_us)} {visitor.who} took {what} with names"
        print(f"kvwitness console web: {said}", file=sys.stderr, flush=True)


def _events_file(fmt: str, asked: Asked, visitor: Visitor) -> tuple[BinaryIO, str]:
    """All events of range and filter, on the disk until they are sent: there may be more of them than memory holds."""
    known = asked.rollup
    if known is None or asked.desk.record is None:
        raise NotReadYet
    looked = Looked(parse_filter(asked.view.filter), asked.span, asked.now_us)
    file = cast("BinaryIO", tempfile.TemporaryFile())  # noqa: SIM115 closed when it has been sent
    try:
        done = export_events(known, asked.desk.record.events, looked, asked.view, fmt, _redaction(visitor), file)
    except BaseException:
        file.close()
        raise
    _note_names(asked, visitor, f"events.{fmt}, {done.rows} rows")
    return file, events_file(known, fmt)


def _sent(file: BinaryIO, name: str, fmt: str) -> Response:
    def chunks() -> Iterator[bytes]:
        with file:
            file.seek(0)
            while chunk := file.read(CHUNK_BYTES):
                yield chunk

    headers = {
        "content-disposition": f'attachment; filename="{_plain(name)}"',
        "content-length": str(file.seek(0, os.SEEK_END)),
    }
    return StreamingResponse(chunks(), media_type=FORMATS[fmt], headers=headers)


def _pin(feed: AnyFeed, asked: Asked, action: Action) -> None:
    """Keep what is shown where it is being paused."""
    if action.id == "pause" and asked.kept is not None and asked.rollup is not None:
        feed.pin(asked.rollup.data_us or 0, Pinned(asked.kept, asked.desk.live))


def _named(action_id: str) -> Action:
    """An action by its id. Raises CommandError."""
    for action in ACTIONS:
        if action.id == action_id and action.web:
            return action
    raise CommandError("a browser has no such action")


def _plain(name: str) -> str:
    """A file name that needs no quoting."""
    return "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "_" for c in name)
