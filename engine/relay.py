"""One request on its two workers: a room, one body to both, decode's answer, and an end on both sides.

Invariant: a refusal of either role, or its loss, reaches the client under its own status and words, whichever side
speaks first; no token leaves once one is known; a request that does not end well is aborted wherever it may still run.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections.abc import AsyncGenerator, Callable, Coroutine
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import httpx

from engine.faults import RoomCollision
from engine.fleet import Fleet, Seat
from engine.request import RequestError

log = logging.getLogger(__name__)

ABORTED = 499
INVALID_BODY = "invalid_body"
ABORT_SECONDS, CLOSE_SECONDS = 5.0, 1.0


class Refused(Exception):
    """A request that ends with a typed error."""

    def __init__(self, error: RequestError) -> None:
        super().__init__(error.message)
        self.error = error


@dataclass
class Call:
    """One client request on its way; `sent` tokens have left for the client, the last at `last_token` (us)."""

    rid: str
    req: int
    tokens: list[int]
    budget: int
    tenant: str
    purpose: str
    organisation: str | None = None
    user: str | None = None
    cached_tokens: int = 0  # of the prompt, as decode has it from prefill
    sent: int = 0
    last_token: int | None = None
    ended: bool = False


@dataclass
class _Trip:
    """What is known of one request on its way through both workers."""

    rid: str
    room: int
    prefill: Seat
    decode: Seat
    headers: dict[str, str]
    refusal: RequestError | None = None  # prefill's own, or its loss; decode only hears that its handoff failed
    decode_asked: asyncio.Event = field(default_factory=asyncio.Event)  # decode has the request, or never will
    decode_refused: bool = False  # at its door
    begun: bool = False  # a token has come: prefill's part is over, whatever becomes of prefill


class Relay:
    """Carries requests to one prefill and one decode worker each; tenant and purpose go along as headers."""

    def __init__(
        self, fleet: Fleet, http: httpx.AsyncClient, hop_key: str, collision: RoomCollision | None = None
    ) -> None:
        self._fleet, self._http, self._hop_key = fleet, http, hop_key
        self._collision = collision or RoomCollision()
        self._last: _Trip | None = None
        self._loose: set[asyncio.Task[None]] = set()  # what goes on after its request has ended

    async def close(self) -> None:
        """Give what was begun a little time to end."""
        if self._loose:
            _, late = await asyncio.wait(self._loose, timeout=CLOSE_SECONDS)
            for task in late:
                task.cancel()

    async def tokens(self, call: Call, note_room: Callable[[int], object]) -> AsyncGenerator[int]:
        """Tokens of one request as decode lets them go. Raises Refused; not run to its end, it aborts both sides."""
        trip, body = self._set_out(call, note_room)
        prefill = self._go(self._prefill(trip, body))
        prefill.add_done_callback(lambda _: trip.prefill.leave())
        finished = False
        try:
            async with self._http.stream(
                "POST", f"{trip.decode.worker.address.url}/generate", json={**body, "stream": True},
                headers=trip.headers,
            ) as answer:  # fmt: skip
                trip.decode_refused = answer.status_code != HTTPStatus.OK
                trip.decode_asked.set()
                if trip.decode_refused:
                    raise Refused(trip.refusal or _error_of(await answer.aread(), answer.status_code))
                async for line in answer.aiter_lines():
                    if not line.startswith("data: {"):
                        continue
                    event = json.loads(line[6:])
                    reason = event["meta_info"]["finish_reason"]
                    if trip.refusal is not None or "error" in event:
                        raise Refused(trip.refusal or _error_in(event, reason["status_code"]))
                    call.cached_tokens = event["meta_info"].get("cached_tokens", 0)
                    for token in event["output_ids"]:
                        trip.begun = True
                        yield token
                    finished = finished or reason is not None
            if not finished:
                raise httpx.RemoteProtocolError("the answer broke off")
        except httpx.HTTPError as failure:
            self._fleet.lost(trip.decode)
            if not finished:
                raise Refused(trip.refusal or _worker_lost("decode")) from failure
        finally:
            # Nothing is awaited here: whoever left may have been cancelled.
            trip.decode_asked.set()
            if not finished:
                self._go(self._abort_both(trip, not prefill.done()))
                prefill.cancel()
            trip.decode.leave()

    def _set_out(self, call: Call, note_room: Callable[[int], object]) -> tuple[_Trip, dict[str, Any]]:
        """Two workers, a room and the body for both; under the fault room-collision those of the request before.
        Raises Refused."""
        last = self._last if self._last is not None and self._collision.strikes() else None
        prefill = self._fleet.take("prefill", last.prefill.worker if last else None)
        decode = self._fleet.take("decode", last.decode.worker if last else None)
        if prefill is None or decode is None:
            for seat in (prefill, decode):
                if seat is not None:
                    seat.leave()
            role = "prefill" if prefill is None else "decode"
            words = f"no {role} worker is up; try again later"
            raise Refused(RequestError(HTTPStatus.SERVICE_UNAVAILABLE, "no_worker", words))
        room = last.room if last else secrets.randbits(62)
        note_room(room)
        body = {
            "input_ids": call.tokens, "sampling_params": {"max_new_tokens": call.budget}, "rid": call.rid,
            "bootstrap_room": room, "bootstrap_host": "127.0.0.1", "bootstrap_port": prefill.worker.address.wire_port,
        }  # fmt: skip
        headers = {
            "x-kvwitness-hop": self._hop_key, "x-kvwitness-tenant": call.tenant, "x-kvwitness-purpose": call.purpose,
        }  # fmt: skip
        for name, value in (("organisation", call.organisation), ("user", call.user)):
            if value is not None:
                headers[f"x-kvwitness-{name}"] = value
        self._last = _Trip(call.rid, room, prefill, decode, headers)
        return self._last, body

    async def _prefill(self, trip: _Trip, body: dict[str, Any]) -> None:
        """Prefill's half. Where it fails in a way that prefill cannot tell decode, decode is told: it would wait."""
        url = trip.prefill.worker.address.url
        try:
            answer = await self._http.post(f"{url}/generate", json=body, headers=trip.headers)
        except httpx.HTTPError:
            self._fleet.lost(trip.prefill)
            error = _worker_lost("prefill")
        else:
            if answer.status_code == HTTPStatus.OK:
                return
            error = _error_of(answer.content, answer.status_code)
        if trip.begun:
            return
        if error.status != ABORTED:
            trip.refusal = error
        if error.status not in (HTTPStatus.BAD_REQUEST, ABORTED) or error.code == INVALID_BODY:
            await trip.decode_asked.wait()  # an abort that overtakes its request is an abort of nothing
            await self._abort(trip, trip.decode)

    async def _abort_both(self, trip: _Trip, at_prefill: bool) -> None:
        await asyncio.gather(self._abort(trip, trip.decode), *([self._abort(trip, trip.prefill)] if at_prefill else []))

    async def _abort(self, trip: _Trip, seat: Seat) -> None:
        if not seat.there or (seat is trip.decode and trip.decode_refused):
            return
        address = seat.worker.address
        try:
            await self._http.post(
                f"{address.url}/abort_request", json={"rid": trip.rid, "bootstrap_room": trip.room},
                headers=trip.headers, timeout=ABORT_SECONDS,
            )  # fmt: skip
        except httpx.HTTPError:
            log.warning("abort of %s did not reach %s", trip.rid, address.name)
            self._fleet.lost(seat)

    def _go(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._loose.add(task)
        task.add_done_callback(self._loose.discard)
        return task


def _worker_lost(role: str) -> RequestError:
    words = f"the {role} worker of this request was lost; send it again"
    return RequestError(HTTPStatus.BAD_GATEWAY, "worker_lost", words)


def _error_of(body: bytes, status: int) -> RequestError:
    """The error in the body of a worker's answer."""
    if status == HTTPStatus.UNAUTHORIZED:  # of the gateway, not of its client
        return RequestError(HTTPStatus.BAD_GATEWAY, "worker_error", "the workers do not know this gateway's credential")
    try:
        found = json.loads(body)
    except ValueError:
        found = {}
    return _error_in(found if isinstance(found, dict) else {}, status)


def _error_in(body: dict[str, Any], status: int) -> RequestError:
    error = body.get("error") or {}
    return RequestError(
        status, error.get("code") or "worker_error", error.get("message") or "a worker refused the request"
    )
