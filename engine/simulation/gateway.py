"""The door of a simulated fleet: admission, the choice of workers, and what becomes of each request.

Invariant: its ledger rows are those of the real gateway; a client hears of an end once.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from engine.clock import Clock
from engine.defences import ADMISSION_GATE, Checks, Limits
from engine.faults import Faults
from engine.ledger.recorder import Recorder
from engine.request import GenerateRequest, RequestError
from engine.role import Event, Role, TokenLeft
from engine.simulation.world import Task, World

ROOM_BITS = 62
_LIVE = attrgetter("live")


@dataclass
class Door:
    """A worker as the gateway sees it."""

    name: str
    address: str
    role: Role
    task: Task
    passed: Callable[[str], tuple[int, int]]
    """By rid: tokens that have left since the worker last told of any, and when the last of them did (true time)."""
    live: int = 0


@dataclass(frozen=True)
class Seats:
    """A request's workers, by name, and its room."""

    prefill: str
    decode: str
    room: int


@dataclass
class Call:
    """One client request on its way."""

    req: int
    given: GenerateRequest
    prefill: Door
    decode: Door
    sent: int = 0
    last_token: int | None = None
    refused: RequestError | None = None  # by prefill, in its own words
    scripted: bool = False


class SimGateway:
    """Sends each request to one prefill and one decode worker, the least loaded of each."""

    def __init__(
        self, world: World, recorder: Recorder, clock: Clock, checks: Checks, limits: list[Limits], faults: Faults,
        source: random.Random, message_us: Callable[[], int],
    ) -> None:  # fmt: skip
        self._world, self._recorder, self._clock, self._checks = world, recorder, clock, checks
        self._limits, self._faults, self._source, self._message_us = limits, faults, source, message_us
        self._limit = min([each.prompt_limit_tokens for each in limits])
        self._last: Call | None = None
        self.prefills: list[Door] = []
        self.decodes: list[Door] = []
        self._calls: dict[str, Call] = {}
        self._past: dict[str, Call] = {}  # ended, of scripts alone: their writes may still be landed by hand
        self._next_req = 1
        self.ended: dict[int, int] = {}  # answers by HTTP status

    def add(self, role: str, door: Door) -> None:
        """A worker is there, perhaps in the place of a former life of its own."""
        doors = self.prefills if role == "prefill" else self.decodes
        doors[:] = [other for other in doors if other.name != door.name] + [door]
        doors.sort(key=lambda one: one.name)

    def lost(self, name: str) -> None:
        """A worker has died: the requests that needed it end, and no more are sent there."""
        for doors in (self.prefills, self.decodes):
            doors[:] = [door for door in doors if door.name != name]
        for call in [call for call in self._calls.values() if name in (call.prefill.name, call.decode.name)]:
            self._bring_up(call)
            for door in (call.decode, call.prefill):
                self._world.at(self._world.now + self._message_us(), _abort(door, call.given.rid))
            self._end(call, RequestError(502, "worker_lost", "a worker went away"))

    def doors_of(self, rid: str) -> Seats:
        """Where a live request is served. Raises LookupError."""
        call = self._calls.get(rid) or self._past.get(rid)
        if call is None:
            raise LookupError(f"script: {rid} has not been sent anywhere at {self._world.now}")
        return Seats(call.prefill.name, call.decode.name, call.given.room)

    def ask(
        self, given: GenerateRequest, prefill: str | None = None, decode: str | None = None, scripted: bool = False
    ) -> None:
        """A client's request. `given.room` and `given.bootstrap` are chosen here."""
        req, self._next_req = self._next_req, self._next_req + 1
        self._row(
            req, "receive", rid=given.rid, attempt=1, choice=0, tenant=given.tenant, purpose=given.purpose,
            weights=given.weights, kv_format=given.kv_format, adapter=given.adapter, media=given.media,
            prompt_tokens=len(given.tokens), limit_tokens=self._limit,
        )  # fmt: skip
        error = self._refusal(req, given)
        if error is not None:
            self._row(req, "reject", status=str(error.status), reason=error.code, output_tokens=0)
            self._count(error.status)
            return
        self._row(req, "admit")
        if not (self.prefills and self.decodes):
            self._row(req, "abort", status="503", reason="no_worker", output_tokens=0, page_rows=0)
            self._count(503)
            return
        call = self._last = self._call(req, given, prefill, decode)
        call.scripted = scripted
        self._row(req, "room", room=call.given.room)
        self._calls[given.rid] = call
        for door in (call.prefill, call.decode):
            door.live += 1
            self._world.at(self._world.now + self._message_us(), _submission(door, call.given))

    def _call(self, req: int, given: GenerateRequest, prefill: str | None, decode: str | None) -> Call:
        """Workers and room of a request; under the fault room-collision those of the one before it."""
        last = self._last
        if last is not None and self._faults.room_collision.strikes():
            given = given._replace(room=last.given.room, bootstrap=last.given.bootstrap)
            return Call(req, given, last.prefill, last.decode)
        door = _choose(self.prefills, prefill)
        given = given._replace(room=self._source.getrandbits(ROOM_BITS), bootstrap=door.address)
        return Call(req, given, door, _choose(self.decodes, decode))

    def hang_up(self, rid: str) -> None:
        """The client of a request goes away."""
        call = self._calls.get(rid)
        if call is not None:
            self._bring_up(call)
            for door in (call.decode, call.prefill):
                self._world.at(self._world.now + self._message_us(), _abort(door, rid))
            self._end(call, RequestError(499, "aborted", "the client went away"))

    def hear(self, worker: str, rid: str, event: Event) -> None:
        """What a worker says of a request."""
        call = self._calls.get(rid)
        if call is None:
            return
        if isinstance(event, TokenLeft):
            if worker == call.decode.name:
                call.sent, call.last_token = call.sent + event.count, self._clock.now_us()
        elif worker == call.decode.name:
            self._end(call, call.refused or event.error if event.error else None)
        elif event.error is not None and event.error.code != "aborted":
            call.refused = event.error
            self._world.at(self._world.now + self._message_us(), _abort(call.decode, rid))

    def _bring_up(self, call: Call) -> None:
        """Count what has left since decode last told: it tells once per run of passes."""
        count, at_us = call.decode.passed(call.given.rid)
        if count > 0:
            call.sent, call.last_token = call.sent + count, self._clock.now_us() - (self._world.now - at_us)

    def _refusal(self, req: int, given: GenerateRequest) -> RequestError | None:
        for limits in self._limits:
            refusal = limits.refusal(len(given.tokens), given.max_tokens)
            if refusal is not None and self._checks.failed(
                ADMISSION_GATE, req, expected=refusal.limit, found=refusal.found
            ):
                return refusal.error
        return None

    def _end(self, call: Call, error: RequestError | None) -> None:
        del self._calls[call.given.rid]
        if call.scripted:
            self._past[call.given.rid] = call
        for door in (call.prefill, call.decode):
            door.live -= 1
        status = error.status if error else 200
        self._count(status)
        self._row(
            call.req, "abort" if error else "finish", status=str(status), reason=error.code if error else None,
            output_tokens=call.sent, last_token=call.last_token, page_rows=0,
        )  # fmt: skip

    def _row(self, req: int, op: str, **columns: Any) -> None:
        self._recorder.record("requests", op, req=req, **columns)

    def _count(self, status: int) -> None:
        self.ended[status] = self.ended.get(status, 0) + 1


def _choose(doors: list[Door], name: str | None) -> Door:
    if name is not None:
        return next(door for door in doors if door.name == name)
    return min(doors, key=_LIVE)


def _submission(door: Door, given: GenerateRequest) -> Callable[[], None]:
    def submit() -> None:
        if not door.task.ended:
            door.role.submit(given)
            door.task.call()

    return submit


def _abort(door: Door, rid: str) -> Callable[[], None]:
    def abort() -> None:
        if not door.task.ended:
            door.role.abort(rid)
            door.task.call()

    return abort
