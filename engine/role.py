"""What prefill and decode have in common: intake, messages, heartbeats, gauges and ends of requests.

Invariant: the control plane is synchronous. Time, model, bytes and messages come from outside; `tick` does what can
be done now and says whether it did anything. Only `submit` and `abort` may be called from other threads.
"""

from __future__ import annotations

import heapq
import logging
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from itertools import count
from typing import Any, NamedTuple

import numpy as np

from engine.block_pool import QUARANTINE, BlockPool, PoolAudit
from engine.cached_prefix import CachedPrefix
from engine.clock import Clock
from engine.components import Components
from engine.defences import OWNER_AUDIT, ROOM_UNIQUE, Checks, Limits
from engine.executor import Executor
from engine.faults import Faults
from engine.integrity import CheckMode
from engine.ledger.recorder import Recorder
from engine.ledger.step_runs import StepRuns
from engine.request import GenerateRequest, Request, RequestError, RequestStatus
from engine.transport import BATCH_PAGES
from engine.truth import Truth, stamp_of
from engine.wire import Message, Peers, Wire

log = logging.getLogger(__name__)

ADMITTED = "200"


@dataclass(frozen=True)
class Pace:
    """How large passes and writes are, and how often peers and the ledger hear of this worker (us)."""

    max_batch: int = 16  # decode requests in one pass
    chunk_tokens: int = 256  # of one prompt in one pass
    batch_tokens: int = 512  # of all prompts in one pass
    transfer_pages: int = BATCH_PAGES  # pages in one write batch
    reserved_tokens: int | None = None  # of an answer, for which pages are kept free at its start; None: for all of it
    max_run_us: int = 1_000_000  # longest run of passes that one steps row may cover
    beat_busy_us: int = 50_000
    beat_idle_us: int = 1_000_000
    gauge_us: int = 1_000_000
    audit_us: int = 10_000_000  # an idle worker audits the owners of its pages this often


@dataclass(frozen=True)
class HoldPolicy:
    """How long pages of an aborted handoff wait for their writer to drain, and what happens then."""

    timeout_us: int = 30_000_000
    on_timeout: str = QUARANTINE  # or release: a timer proves nothing, so that is for those who prefer capacity
    scrub: bool = False  # zero pages before they go back to the pool


@dataclass(slots=True)
class TokenLeft:
    """Tokens for the client, `count` of them, the last of which is `token`. More than one only in virtual time."""

    token: int
    count: int = 1
    cached_tokens: int = 0  # of the prompt, that prefill found in its cache


@dataclass(slots=True)
class Ended:
    """A request is over on this worker; `error` is None where it went well."""

    error: RequestError | None
    output_tokens: int
    cached_tokens: int = 0  # of the prompt, that prefill found in its cache


Event = TokenLeft | Ended
Emit = Callable[[str, Event], None]


@dataclass(frozen=True)
class Parts:
    """What a role is made of; everything that differs between real and virtual time comes in here."""

    worker: str
    recorder: Recorder
    clock: Clock
    wire: Wire
    executor: Executor
    pool: BlockPool
    memory: dict[str, Any]  # how peers reach this worker's pool: opaque here, sent with every grant
    checks: Checks
    limits: Limits
    faults: Faults
    truth: Truth
    emit: Emit
    names: dict[str, str]  # wire address -> worker name of every peer that may be asked to hand over
    pace: Pace = Pace()
    holds: HoldPolicy = HoldPolicy()
    prefix: CachedPrefix | None = None
    host: BlockPool | None = None  # where decode puts the KV of requests that it retracts
    others: Components | None = None  # pools beside `kv`


class Turn(NamedTuple):
    """Whether a tick found work, and the time (us) at which the next one is due even if no command or message comes."""

    busy: bool
    wake_us: int


class Role(ABC):
    """One worker's control plane."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.recorder, self.pool, self.checks, self.faults = parts.recorder, parts.pool, parts.checks, parts.faults
        self.others = parts.others or Components(parts.recorder)
        self.requests: dict[int, Request] = {}
        self.runs = StepRuns(parts.recorder, parts.pace.max_run_us)
        self.peers = Peers(
            parts.worker, parts.recorder.epoch, parts.wire.address, lambda: parts.recorder.seq, parts.clock.now_us
        )
        self.paused = False
        self.heard: Counter[str] = Counter()  # messages acted on, by kind
        self._by_rid: dict[str, Request] = {}
        self._by_room: dict[int, Request] = {}
        self._next_req = 1
        self._commands: deque[Callable[[], None]] = deque()
        self._timers: list[tuple[int, int, Callable[[], None]]] = []
        self._planned = count()
        self._gauged = 0
        self._audited = parts.clock.now_us()
        if parts.prefix is not None and parts.holds.scrub:
            parts.prefix.before_free = self.scrub

    def scrub(self, pages: np.ndarray) -> None:
        """Zero pages (int32 [n]) that are about to be free."""
        self.parts.executor.scrub(pages)
        self.pool.scrub(pages)

    def submit(self, given: GenerateRequest) -> None:
        """Hand in a request; its events come through `emit`. Thread-safe."""
        self._commands.append(lambda: self._receive(given))

    def abort(self, rid: str, reason: str = "aborted by the client", room: int | None = None) -> None:
        """Give up the request of this id, and of this room where one is named: a namesake in another room lives on.
        Thread-safe; unknown rids are ignored."""
        self._commands.append(lambda: self._abort_rid(rid, reason, room))

    def pause(self, on: bool) -> None:
        """Begin no pass and grant nothing until let go again; messages and commands go on. Thread-safe."""

        def command() -> None:
            self.paused = on

        self._commands.append(command)

    def tick(self) -> Turn:
        """One round: commands, messages, the role's own work, heartbeats and gauges."""
        messages = self.parts.wire.receive()
        if messages or self._commands or (self._timers and self._due()):
            self.runs.close()
        while self._commands:
            self._commands.popleft()()
        for message in messages:
            self._hear(message)
        while self._timers and self._due():
            heapq.heappop(self._timers)[2]()
        return Turn(self.work(), self._keep_time())

    def later(self, micros: int, action: Callable[[], None]) -> None:
        """Do something in the first turn after that time."""
        heapq.heappush(self._timers, (self.parts.clock.now_us() + micros, next(self._planned), action))

    def audit(self) -> dict[str, PoolAudit]:
        """Account for every page of every pool, and record the outcome; by pool."""
        tables = {req: request.claimed_pages for req, request in self.requests.items()}
        found = {self.pool.name: self.pool.audit(tables, record=True), **self.others.audit(self.requests)}
        if self.parts.host is not None:
            found[self.parts.host.name] = self.parts.host.audit(self.on_host(), record=True)
        for name, one in found.items():
            if one.wrong:
                self.checks.failed(
                    OWNER_AUDIT, None, expected=0, found=len(one.wrong), pool=name, page=one.wrong[0], n=len(one.wrong),
                    action="log",
                )  # fmt: skip
        return found

    def on_host(self) -> dict[int, np.ndarray]:
        """By request, the pages (int32 [n]) that it has in the host pool."""
        return {}

    def _due(self) -> bool:
        return self._timers[0][0] <= self.parts.clock.now_us()

    @abstractmethod
    def release_writes(self) -> None:
        """Let every gated write go. Thread-safe."""

    def close(self) -> None:
        """Write what is still open; nothing ticks any more."""
        self.runs.close()
        for request in self.requests.values():
            self.parts.truth.finish(request.given.rid, request.output_tokens, request.last_token_us)
        self.parts.wire.close()

    @abstractmethod
    def work(self) -> bool:
        """Do what this role can do now; True where something was done."""

    @abstractmethod
    def handle(self, message: Message) -> None:
        """Act on a peer's message."""

    @abstractmethod
    def peer_reborn(self, peer: str, epoch: int) -> None:
        """A peer has begun a new life: nothing that its former one was asked for will come."""

    @abstractmethod
    def admit(self, request: Request) -> None:
        """A request was received: admit, reject or queue it."""

    @abstractmethod
    def give_up(self, request: Request, error: RequestError) -> None:
        """Abort a request in whatever state it is."""

    def outsider(self, rid: str, tenant: str) -> int:
        """An owner that is no request of the traffic (somebody else on this machine); its ordinal."""
        req, self._next_req = self._next_req, self._next_req + 1
        self.recorder.record(
            "requests", "receive", req=req, rid=rid, attempt=1, choice=0, tenant=tenant, purpose="outsider"
        )
        return req

    def request_of(self, rid: str) -> Request | None:
        """The live request of a rid."""
        return self._by_rid.get(rid)

    def running(self) -> int:
        """Requests that are not at an end."""
        return len(self._by_rid)

    def send(self, peer: str | None, address: str, message: Message) -> None:
        """Send with this worker's stamps."""
        self.parts.wire.send(address, self.peers.stamp(peer, message))

    def reject(self, request: Request, error: RequestError) -> None:
        """End a request that was never admitted."""
        request.move(RequestStatus.REJECTED)
        request.error = error
        self.row(request, "reject", status=str(error.status), reason=error.code, output_tokens=0)
        self._close(request)

    def end(self, request: Request, op: str, error: RequestError | None) -> None:
        """The last row of a request that was admitted: `finish` or `abort`."""
        request.error = error
        self.row(
            request, op, status=str(error.status) if error else ADMITTED, reason=error.code if error else None,
            output_tokens=request.output_tokens, last_token=request.last_token_us,
            page_rows=self.recorder.page_rows(request.req),
        )  # fmt: skip
        self._close(request)

    def tell_end(self, request: Request) -> None:
        """The client hears of a request's end, once, with whatever error it has."""
        if not request.told:
            request.told = True
            self.parts.emit(request.given.rid, Ended(request.error, request.output_tokens, request.cached_tokens))

    def row(self, request: Request, op: str, **columns: object) -> None:
        """One row of a request in the ledger."""
        self.recorder.record("requests", op, req=request.req, **columns)

    def _close(self, request: Request) -> None:
        self.requests.pop(request.req, None)
        if self._by_rid.get(request.given.rid) is request:
            del self._by_rid[request.given.rid]
        if self._by_room.get(request.given.room) is request:
            del self._by_room[request.given.room]
        self.parts.truth.finish(request.given.rid, request.output_tokens, request.last_token_us)
        self.tell_end(request)

    def _receive(self, given: GenerateRequest) -> None:
        taken = self._taken(given)
        if taken is not None:
            self.parts.emit(given.rid, Ended(taken, 0))
            return
        request = Request(self._next_req, given, stamp_of(given.rid))
        self._next_req += 1
        self.requests[request.req] = self._by_rid[given.rid] = self._by_room[given.room] = request
        self.parts.truth.stamp(request.stamp, given)
        self.row(
            request, "receive", rid=given.rid, attempt=1, choice=0, room=given.room, tenant=given.tenant,
            purpose=given.purpose, adapter=given.adapter, media=given.media, weights=given.weights,
            kv_format=given.kv_format, prompt_tokens=request.prompt_tokens,
            limit_tokens=self.parts.limits.prompt_limit_tokens,
        )  # fmt: skip
        self.admit(request)

    def _taken(self, given: GenerateRequest) -> RequestError | None:
        """Why a rid or a room cannot be had: two live requests under one name would get each other's tokens."""
        if given.rid in self._by_rid:
            return RequestError(
                HTTPStatus.CONFLICT, "request_id_in_use", f"request id {given.rid} is in use; send a new x-request-id"
            )
        taken = self._by_room.get(given.room)
        if taken is not None and self.checks.failed(ROOM_UNIQUE, None, expected=taken.req, found=self._next_req):
            return RequestError(HTTPStatus.CONFLICT, "room_in_use", f"bootstrap room {given.room} is in use")
        return None

    def _abort_rid(self, rid: str, reason: str, room: int | None) -> None:
        request = self._by_rid.get(rid)
        if request is None or (room is not None and room != request.given.room):
            return
        if request.status is not RequestStatus.HELD:
            self.give_up(request, RequestError(499, "aborted", reason))

    def _hear(self, message: Message) -> None:
        before = self.peers.known.get(message["from"])
        beat = self.peers.hear(message)
        view = self.peers.known[beat.peer]
        now = self.parts.clock.now_us()
        # A message that echoes nothing proves no clock; a null offset would say that clocks are unusable.
        if beat.offset_us is not None and now - view.beat_t >= self.parts.pace.beat_busy_us:
            view.beat_t = now
            self.recorder.heartbeat(beat.peer, beat.epoch, beat.seq, beat.offset_us, beat.error_us)
        if before is not None and before.epoch < beat.epoch:
            self.peer_reborn(beat.peer, beat.epoch)
        if message["kind"] != "beat":
            self.handle(message)
        self.heard[message["kind"]] += 1

    def next_beat_us(self) -> int:
        """When the next heartbeat or gauge is due (us)."""
        pace = self.parts.pace
        told, due = self.peers.told_us(), self._gauged + pace.gauge_us
        if self._timers:
            due = min(due, self._timers[0][0])
        if told is not None:
            due = min(due, told + (pace.beat_busy_us if self._by_rid else pace.beat_idle_us))
        return due

    def _keep_time(self) -> int:
        """Heartbeats to peers and the gauge row; returns when the next of them is due."""
        now, pace = self.parts.clock.now_us(), self.parts.pace
        interval, told = pace.beat_busy_us if self._by_rid else pace.beat_idle_us, self.peers.told_us()
        if told is not None and now - told >= interval:
            for name, view in self.peers.known.items():
                if now - view.told_t >= interval:
                    self.send(name, view.address, {"kind": "beat"})
        if now - self._gauged >= pace.gauge_us:
            self._gauged = now
            self.runs.close()
            moving = [r for r in self.requests.values() if r.status is RequestStatus.TRANSFERRING]
            self._gauge(self.pool, sum(len(request.pages) - request.cached_pages for request in moving))
            for name, pool in self.others.pools.items():
                self._gauge(pool, self.others.in_transfer(name, moving))
        if (
            not self.requests
            and now - self._audited >= pace.audit_us
            and self.checks.mode(OWNER_AUDIT) is not CheckMode.OFF
        ):
            self._audited = now
            self.runs.close()
            self.audit()
        return self.next_beat_us()

    def _gauge(self, pool: BlockPool, in_transfer: int) -> None:
        """The gauge row of one pool."""
        counts, states = pool.counts(), [request.status for request in self.requests.values()]
        self.recorder.record(
            "gauges", "sample", pool=pool.name, free=counts["free"], used=counts["used"], held=counts["held"],
            quarantined=counts["quarantined"], cached=counts["cached"], shared=counts["shared"],
            in_transfer=in_transfer, running=states.count(RequestStatus.RUNNING),
            waiting=states.count(RequestStatus.WAITING),
        )  # fmt: skip
