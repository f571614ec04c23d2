"""The feed: one reader of the ledger for all browsers, and who is waiting for news of it.

Invariant: at most one reading at a time, in a thread; a subscriber that is slow gets the newest state, never a queue.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

from console.core.desk import Desk
from console.core.snapshot import Snapshot
from console.core.source import Failure, LedgerSource

POLL_SECONDS = 1.0
REST_FACTOR = 4
MOST_SUBSCRIBERS = 32


class Feed:
    """Holds the desk of the web console; `version` counts what it has shown."""

    def __init__(self, source: LedgerSource) -> None:
        self.source, self.desk, self.version = source, Desk(remembered=source.remembered()), 0
        self.subscribers = 0
        self.closing = False
        self._changed = asyncio.Condition()
        self._reading = asyncio.Lock()
        self._next_look = 0.0

    async def fresh(self) -> Desk:
        """The desk, after a look at the ledger if the last one is not of this second."""
        async with self._reading:
            if time.monotonic() >= self._next_look:
                reading, took = await asyncio.to_thread(self._read)
                self._next_look = time.monotonic() + max(POLL_SECONDS / 2, REST_FACTOR * took)
                if reading is not None:
                    await self._show(reading)
        return self.desk

    def _read(self) -> tuple[Snapshot | Failure | None, float]:
        """A reading, and for how many seconds it computed."""
        started = time.thread_time()
        reading = self.source.read_if_changed()
        if isinstance(reading, Snapshot):
            _ = (
                reading.rollup.incidents,
                reading.rollup.owners,
                reading.order,
            )  # computed here rather than in the event loop
        return reading, time.thread_time() - started

    async def _show(self, reading: Snapshot | Failure) -> None:
        self.desk = self.desk.offer(reading)
        async with self._changed:
            self.version += 1
            self._changed.notify_all()

    async def run(self) -> None:
        """Look for news while anybody waits for it."""
        while not self.closing:
            if self.subscribers:
                await self.fresh()
            await asyncio.sleep(POLL_SECONDS)

    async def close(self) -> None:
        """Let every subscriber go."""
        self.closing = True
        async with self._changed:
            self._changed.notify_all()

    async def news(self, seen: int) -> AsyncIterator[int]:
        """Versions after `seen`, the newest only, until the feed closes."""
        self.subscribers += 1
        try:
            while not self.closing:
                async with self._changed:
                    while not self.closing and self.version == seen:
                        await self._changed.wait()
                if self.closing:
                    return
                seen = self.version
                yield seen
        finally:
            self.subscribers -= 1
