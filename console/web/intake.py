"""Alerts that come in: what Alertmanager sends becomes notes on the incidents it is about.

Invariant: an alert opens no door and changes no verdict; it is written down once, beside the evidence and never in it. Its
words were chosen elsewhere: they are kept short and printable.
"""

from __future__ import annotations

import asyncio
import hmac
import re
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Literal

from fastapi import FastAPI, Header, HTTPException, Request
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.responses import JSONResponse, Response

from console.core.incidents import Incident
from console.core.printable import printable
from console.core.rollup import Rollup
from console.core.triage import Act, TriageBook, TriageError
from console.web.feed import Feed

PATH = "/api/alerts"
MOST_BYTES = 1 << 20
MOST_ALERTS, MOST_WORDS = 200, 400
_Labels = dict[str, str]


class Alert(BaseModel):
    """One alert of Alertmanager's webhook, version 4; what else comes with it (Grafana adds fields) is ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    status: Literal["firing", "resolved"]
    labels: _Labels
    annotations: _Labels = {}
    startsAt: datetime
    endsAt: datetime | None = None


class Group(BaseModel):
    """What one POST holds. `truncatedAlerts`: how many Alertmanager left out."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    alerts: list[Alert] = Field(max_length=MOST_ALERTS)
    truncatedAlerts: int = 0


@dataclass(frozen=True)
class Noted:
    """`notes`: new ones; `known`: that were there already; `unmatched`: alerts about no incident of this record."""

    notes: int
    known: int
    unmatched: int


@dataclass(frozen=True)
class Intake:
    """Where notes are kept, and the token that alerts come with: it opens nothing else."""

    book: TriageBook
    token: str = field(repr=False)


def add_intake(app: FastAPI, feed: Feed, intake: Intake) -> None:
    """Take alerts with the token as a bearer header and nothing else: no browser sends that by itself."""

    @app.post(PATH)
    async def take(request: Request, authorization: Annotated[str, Header()] = "") -> Response:
        scheme, _, given = authorization.partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), intake.token.encode()):
            raise HTTPException(401, "no or wrong intake token", {"www-authenticate": "Bearer"})
        group = _group(await _body(request))
        known = (await feed.fresh()).rollup
        if known is None:
            raise HTTPException(503, "the ledger has not been read yet; send it again", {"retry-after": "5"})
        try:
            noted = await asyncio.to_thread(note_alerts, intake.book, known, group)
        except TriageError as error:
            raise HTTPException(503, str(error)) from error
        return JSONResponse({**vars(noted), "truncated": group.truncatedAlerts})


async def _body(request: Request) -> bytes:
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MOST_BYTES:
            raise HTTPException(413, f"more than {MOST_BYTES} bytes")
    return body


def _group(body: bytes) -> Group:
    try:
        return Group.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "body"
        raise HTTPException(400, f"this is no Alertmanager webhook: {where}: {first['msg']}") from error


def note_alerts(book: TriageBook, known: Rollup, group: Group) -> Noted:
    """Write down what is new. Raises TriageError."""
    there = {(e.incident, e.words) for e in book.entries() if e.act is Act.NOTE}
    notes = repeated = unmatched = 0
    for alert in group.alerts:
        about, words = incidents_about(known, alert.labels), words_of(alert)
        unmatched += not about
        for incident in about:
            if (incident.id, words) in there:
                repeated += 1
                continue
            book.note(incident, words)
            there.add((incident.id, words))
            notes += 1
    return Noted(notes, repeated, unmatched)


def incidents_about(known: Rollup, labels: _Labels) -> tuple[Incident, ...]:
    """The incident that the label `incident` names; else those of its `cause`, or that its `detector` saw: the ones that
    grow, or if none does the last.
    """
    if "incident" in labels:
        named = known.incident(labels["incident"])
        return (named,) if named else ()
    if "cause" in labels:
        found = [i for i in known.incidents if i.cause == labels["cause"]]
    elif "detector" in labels:
        found = [i for i in known.incidents if labels["detector"] in i.detectors]
    else:
        return ()
    growing = tuple(i for i in found if i.growing)
    return growing or tuple(sorted(found, key=lambda i: i.last_seen_us or 0)[-1:])


def words_of(alert: Alert) -> str:
    """`alert KvForeignReads firing since 2026-11-30T16:00:00Z: ...`; the same words for the same alert sent again."""
    at = alert.endsAt if alert.status == "resolved" and alert.endsAt else alert.startsAt
    name = alert.labels.get("alertname", "without a name")
    said = alert.annotations.get("summary", "")
    words = f"alert {name} {alert.status} since {re.sub(r'[.][0-9]+', '', at.isoformat())}" + (
        f": {said}" if said else ""
    )
    return printable(words)[:MOST_WORDS]
