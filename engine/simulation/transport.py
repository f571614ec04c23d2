"""One-sided writes in virtual time: batches of one worker go out one after another, and land page by page.

Invariant: as `engine.transport`: nothing retracts a batch that was posted, and a gate holds back one transfer alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.simulation.headers import HeaderFlight
from engine.simulation.memory import CLOCK_SLACK_US, Flight, PageStore
from engine.simulation.world import World
from engine.transport import Callbacks, WriteBatch

NEVER = 1 << 62
SPOILED = "spoiled by the fault fail-open"
Page = tuple[str, int]
"""(pool, place in the request's table)."""


@dataclass(frozen=True)
class Lane:
    """One of the copies that a batch makes: from a rank's pool into a part of the pages of a peer's rank, under `tag`."""

    source: PageStore
    target: PageStore
    tag: int
    rank: int = 0  # of the source

    def flight(self, batch: WriteBatch, start_us: int, step_us: int) -> Flight:
        """A batch on its way."""
        kind = HeaderFlight if self.target.headers_only else Flight
        return kind(
            self.source, batch.src_pages, self.target, batch.dst_pages, self.tag, batch.tokens, start_us, step_us
        )


@dataclass
class ScriptedWrite:
    """One page's write that a script posts and lands."""

    batch: WriteBatch
    callbacks: Callbacks
    flights: list[Flight] = field(default_factory=list)


class SimTransport:
    """See `Transport`. `memory` describes this worker's own pools, `page_bytes` the bytes of a page of each on one rank;
    `lanes` says what a batch copies, nothing where its target is gone; `transfer_us` prices bytes."""

    def __init__(
        self, world: World, memory: dict[str, Any], page_bytes: Mapping[str, int],
        lanes: Callable[[WriteBatch], list[Lane]], transfer_us: Callable[[int], int], on_end: Callable[[], None],
    ) -> None:  # fmt: skip
        self._world, self._memory, self._page_bytes, self._lanes = world, memory, page_bytes, lanes
        self._transfer_us, self._on_end = transfer_us, on_end
        self._queue: deque[tuple[WriteBatch, Callbacks]] = deque()
        self._gated: set[int] = set()
        self._spoiled: set[tuple[int, int]] = set()
        self._busy = False
        self.alive = True
        self.scripted: dict[int, dict[Page, ScriptedWrite]] = {}  # room -> page -> its write, posted and landed by hand

    def connect(self, peer: str, memory: dict[str, Any]) -> None:
        """See `Transport`. Raises ValueError where the pages differ in size, or the pools are others."""
        for name in ("page_tokens", "page_bytes", "beside"):
            if memory[name] != self._memory[name]:
                raise ValueError(f"{peer} has {name} {memory[name]}, this worker {self._memory[name]}")

    def batch_pages(self, room: int, usual: int) -> int:
        """See `Transport`. A script says when each page is posted and lands."""
        return 1 if room in self.scripted else usual

    def script(self, room: int) -> None:
        """From now on the writes of a room are posted and land only by `post` and `land`."""
        self.scripted.setdefault(room, {})

    def waiting(self, room: int, pool: str = "kv") -> list[int]:
        """Places in the request's table of the pages of a pool that are to be posted or landed."""
        return sorted(place for name, place in self.scripted.get(room, {}) if name == pool)

    def post(self, room: int, pages: range, pool: str = "kv") -> None:
        """Hand scripted writes over. Raises LookupError where one was not submitted."""
        for page in pages:
            write = self._scripted(room, page, pool)
            lanes = self._lanes(write.batch)
            if not lanes or write.flights:
                raise LookupError(f"room {room}: page {page} was posted before, or its target is gone")
            write.callbacks.post()
            write.flights = [lane.flight(write.batch, NEVER, 0) for lane in lanes]

    def land(self, room: int, page: int, pool: str = "kv") -> None:
        """A posted write lands now. Raises LookupError where it was not posted."""
        write = self._scripted(room, page, pool)
        if not write.flights:
            raise LookupError(f"room {room}: page {page} was not posted")
        for flight in write.flights:
            flight.start_us = self._world.now
            flight.advance(self._world.now)
            self._world.at(self._world.now + CLOCK_SLACK_US, flight.forget)
        del self.scripted[room][pool, page]
        if self.alive:
            write.callbacks.done(self._page_bytes[pool])
            self._on_end()

    def _scripted(self, room: int, page: int, pool: str) -> ScriptedWrite:
        if (pool, page) not in self.scripted.get(room, {}):
            raise LookupError(
                f"room {room} has no write of {pool} page {page} to post or land; it has {self.waiting(room, pool)}"
            )
        return self.scripted[room][pool, page]

    def submit(self, batch: WriteBatch, callbacks: Callbacks) -> None:
        """See `Transport`."""
        if batch.room in self.scripted:
            self.scripted[batch.room][batch.pool, batch.pos] = ScriptedWrite(batch, callbacks)
            return
        self._queue.append((batch, callbacks))
        self._world.at(self._world.now, self._next)

    def cancel(self, xfer: int) -> int:
        """See `Transport`."""
        dropped_by_hand = 0
        for writes in self.scripted.values():
            for page in [p for p, write in writes.items() if write.batch.xfer == xfer and not write.flights]:
                del writes[page]
                dropped_by_hand += 1
        kept = [item for item in self._queue if item[0].xfer != xfer]
        dropped = len(self._queue) - len(kept) + dropped_by_hand
        self._queue = deque(kept)
        return dropped

    def gate(self, xfer: int) -> None:
        """See `Transport`."""
        self._gated.add(xfer)

    def ungate(self, xfer: int | None = None) -> None:
        """See `Transport`."""
        self._gated = set() if xfer is None else self._gated - {xfer}
        self._world.at(self._world.now, self._next)

    def spoil(self, xfer: int, chunk: int) -> None:
        """See `Transport`."""
        self._spoiled.add((xfer, chunk))

    def close(self) -> None:
        """See `Transport`."""
        self.alive = False

    def _next(self) -> None:
        """Post the first batch that may go, if the line is free."""
        if self._busy or not self.alive:
            return
        place = next((i for i, (batch, _) in enumerate(self._queue) if batch.xfer not in self._gated), None)
        if place is None:
            return
        batch, callbacks = self._queue[place]
        del self._queue[place]
        lanes = self._lanes(batch)
        spoiled = (batch.xfer, batch.chunk) in self._spoiled
        self._spoiled.discard((batch.xfer, batch.chunk))
        broken = batch.chunk % (1 + max((lane.rank for lane in lanes), default=0)) if spoiled else None
        if broken is not None:
            lanes = [lane for lane in lanes if lane.rank != broken]
        if not lanes:
            callbacks.failed(SPOILED if spoiled else f"{batch.dst} is gone", 0)
            self._ended()
            return
        self._busy = True
        count = len(batch.src_pages)
        page_bytes = self._page_bytes[batch.pool]
        step = max(self._transfer_us(count * page_bytes) // count, 1)
        callbacks.post()
        flights = [lane.flight(batch, self._world.now, step) for lane in lanes]
        for flight in flights:
            self._watch(flight)

        def land() -> None:
            for flight in flights:
                flight.advance(self._world.now)
                self._world.at(flight.end_us + CLOCK_SLACK_US, flight.forget)
            if self.alive:
                if broken is not None and callbacks.failed_on is not None:
                    callbacks.failed_on(SPOILED, broken, count * page_bytes)
                else:
                    callbacks.done(count * page_bytes)
                self._ended()

        self._world.at(flights[0].end_us, land)

    def _watch(self, flight: Flight) -> None:
        """Where pages that somebody reads are about to be overwritten, let each land at its own time."""
        read = flight.target.readers[flight.dst_pages]
        for index in read.nonzero()[0].tolist():
            self._world.at(flight.lands_us(index), lambda: flight.advance(self._world.now))

    def _ended(self) -> None:
        self._busy = False
        self._on_end()
        self._next()
