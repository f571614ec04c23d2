"""The feed: one reader of a ledger for all browsers, and who is waiting for news of it.

Invariant: at most one reading at a time, in a thread; nobody waits for one where there is anything to show, and a
subscriber that is slow gets the newest state, never a queue.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

from console.core.desk import Desk
from console.core.live_edge import Looked
from console.core.snapshot import Snapshot
from console.core.source import Failure, LedgerSource
from console.core.source_states import SourceState
from console.core.triage import Entry
from console.web.kept import Kept, Pinned
from console.web.past import Past

POLL_SECONDS, EDGE_SECONDS = 1.0, 0.5
MOST_PINNED = 4
STALE_TELL_S = 5.0
"""How often a picture that is stale is told anew, so that its age moves on."""
REST_FACTOR = 4
MOST_SUBSCRIBERS = 64
FIRST_PATIENCE_S, PATIENCE_S = 1.0, 0.1
"""How long an answer waits for a reading: where there is nothing to show yet, and where there is something older."""


class AnyFeed(ABC):
    """A desk, and who waits for news of it. `name`: of its ledger; `ledgers`: where several are served, what can be looked at."""

    desk: Desk
    kept: Kept | None = None
    past: Past

    def __init__(self, born_us: int, name: str, ledgers: tuple[str, ...]) -> None:
        self.name, self.ledgers = name, ledgers
        self.subscribers = 0
        self.closing = False
        self._life, self._shown = f"{born_us:x}", 0
        self._changed = asyncio.Condition()
        self.told: list[Callable[[], Awaitable[None]]] = []
        self._pinned: OrderedDict[int, Pinned] = OrderedDict()
        self.entries: Callable[[], tuple[Entry, ...]] = tuple
        """Reads what people said of the incidents that are shown."""

    @property
    def mark(self) -> str:
        """Names what is shown, and the life of this server: another server's marks are never taken for its own."""
        return f"{self._life}.{self._shown}"

    @property
    @abstractmethod
    def states(self) -> tuple[SourceState, ...]:
        """How each of several ledgers that are looked at stands."""

    @abstractmethod
    def now_us(self) -> int:
        """The clock, us UTC."""

    @abstractmethod
    async def fresh(self) -> Desk:
        """The desk, after a look at what is not of this second; as it is where that takes long."""

    def pin(self, as_of_us: int, shown: Pinned) -> None:
        """Keep what is shown for whoever paused it; of several pauses the last `MOST_PINNED`, others are judged anew."""
        self._pinned[as_of_us] = shown
        while len(self._pinned) > MOST_PINNED:
            self._pinned.popitem(last=False)

    def pinned(self, as_of_us: int) -> Pinned | None:
        """What was shown when somebody paused at that moment, if it is kept still."""
        return self._pinned.get(as_of_us)

    @abstractmethod
    async def run(self) -> None:
        """Look for news while anybody waits for it."""

    async def tell(self) -> None:
        """There is something new."""
        async with self._changed:
            self._shown += 1
            self._changed.notify_all()
        for hear in self.told:
            await hear()

    async def close(self) -> None:
        """Let every subscriber go."""
        self.closing = True
        async with self._changed:
            self._changed.notify_all()

    async def news(self, seen: str) -> AsyncIterator[str]:
        """Marks after `seen`, the newest only, until the feed closes."""
        self.subscribers += 1
        try:
            while not self.closing:
                async with self._changed:
                    while not self.closing and self.mark == seen:
                        await self._changed.wait()
                if self.closing:
                    return
                seen = self.mark
                yield seen
        finally:
            self.subscribers -= 1


class Feed(AnyFeed):
    """Of one ledger. `patience_s` replaces both patiences; `beside` names the state of what pages show besides the ledger:
    another one is news too.
    """

    def __init__(
        self, source: LedgerSource, patience_s: float | None = None, *, beside: Callable[[], object] = lambda: None,
        name: str = "", ledgers: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        super().__init__(source.now_us(), name or source.path.resolve().name, ledgers)
        self.source, self.desk = source, Desk(remembered=source.remembered())
        self._patience_s = patience_s
        self._beside, self._seen_beside = beside, beside()
        self._looking: asyncio.Task[None] | None = None
        self._edge: asyncio.Task[None] | None = None
        self._began = self._next_look = self._next_edge = self._told_stale = 0.0
        self.past = Past(patience_s)

    @property
    def states(self) -> tuple[SourceState, ...]:
        """None: it is of one ledger."""
        return ()

    def now_us(self) -> int:
        """The clock of the source."""
        return self.source.now_us()

    async def fresh(self) -> Desk:
        """The desk, after a look at the ledger if the last one is not of this second; as it is where that takes long."""
        looking = self._look()
        self._look_at_edge()
        if looking is not None:
            left = self._patience() - (time.monotonic() - self._began)
            await asyncio.wait({looking}, timeout=max(left, 0.0))
        self._date()
        return self.desk

    def _date(self) -> None:
        """How old the last look is by now."""
        self.desk = replace(self.desk, last_look=self.source.looks.last)

    async def _tell_of_age(self) -> None:
        """Pages that are open hear that looks do not come back, or do again."""
        was_overdue = self.desk.is_overdue
        self._date()
        now = time.monotonic()
        if self.desk.is_overdue != was_overdue or (self.desk.is_stale and now >= self._told_stale + STALE_TELL_S):
            self._told_stale = now
            await self.tell()

    def _patience(self) -> float:
        if self._patience_s is not None:
            return self._patience_s
        return PATIENCE_S if self.desk.rollup or self.desk.failure else FIRST_PATIENCE_S

    def _look(self) -> asyncio.Task[None] | None:
        """The reading that goes on, or one that is due and begins now."""
        if self._looking is None and time.monotonic() >= self._next_look and not self.closing:
            self._began = time.monotonic()
            self._looking = asyncio.create_task(self._read_and_show())
        return self._looking

    async def _read_and_show(self) -> None:
        took = 0.0
        try:
            reading, beyond, took, beside = await asyncio.to_thread(self._read)
            if reading is not None:
                self._take(reading, beyond)
            if reading is not None or beside != self._seen_beside:
                self._seen_beside = beside
                await self.tell()
        finally:
            self._next_look = time.monotonic() + max(POLL_SECONDS / 2, REST_FACTOR * took)
            self._looking = None

    def _look_at_edge(self) -> None:
        """What the streams hold beyond the reading, beside a reading that may take long."""
        if (
            self._edge is None
            and self.desk.shown is not None
            and time.monotonic() >= self._next_edge
            and not self.closing
        ):
            self._edge = asyncio.create_task(self._take_edge())

    async def _take_edge(self) -> None:
        try:
            found = await asyncio.to_thread(self.source.edge)
            before = self.desk
            if found is not None:
                self.desk = before.offer_edge(*found)
            if self.desk.live is not before.live:
                await self.tell()
        finally:
            self._next_edge = time.monotonic() + EDGE_SECONDS
            self._edge = None

    def _read(self) -> tuple[Snapshot | Failure | None, Looked | None, float, object]:
        """A reading, what the streams hold beyond it by now, for how many seconds it computed, and the state of what is
        beside it."""
        started = time.thread_time()
        reading = self.source.read_if_changed()
        if isinstance(reading, Snapshot):
            # Computed here rather than in the event loop.
            _ = reading.rollup.incidents, reading.rollup.owners, reading.incidents, reading.order
        return reading, self.source.edge(), time.thread_time() - started, self._beside()

    def _take(self, reading: Snapshot | Failure, beyond: Looked | None) -> None:
        self.desk = self.desk.offer(reading)
        if beyond is not None:
            self.desk = self.desk.offer_edge(*beyond)
        if self.desk.shown is not None and (self.kept is None or self.kept.snapshot is not self.desk.shown):
            self.kept = Kept(self.desk.shown)

    async def run(self) -> None:
        """Look for news while anybody waits for it."""
        while not self.closing:
            if self.subscribers:
                self._look()
                self._look_at_edge()
                await self._tell_of_age()
            await asyncio.sleep(POLL_SECONDS)
