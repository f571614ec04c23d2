"""All ledgers that are served, as one: what their own feeds show, merged.

Invariant: it reads nothing; one ledger that is slow or gone delays no other, since each feed answers with what it has.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace

from console.core.desk import Desk
from console.core.ledger_names import ALL_LEDGERS
from console.core.merged import said_of
from console.core.source_states import SourceState, merged_of, source_states
from console.core.triage import Entry
from console.core.view import View
from console.web.feed import AnyFeed, Feed
from console.web.past import Past


class MergedFeed(AnyFeed):
    """Over the feeds of the ledgers, by name; one at least."""

    def __init__(self, feeds: Mapping[str, Feed]) -> None:
        self._feeds, self._first = dict(feeds), next(iter(feeds.values()))
        super().__init__(self._first.now_us(), ALL_LEDGERS, self._first.ledgers)
        self.desk, self.past = Desk(View(ledger=ALL_LEDGERS)), Past()
        self.entries = self._said
        self._merge()
        for feed in self._feeds.values():
            feed.told.append(self._heard)

    @property
    def states(self) -> tuple[SourceState, ...]:
        """How each ledger stands."""
        return source_states({name: feed.desk for name, feed in self._feeds.items()}, self.now_us())

    def now_us(self) -> int:
        """The clock of the first."""
        return self._first.now_us()

    async def fresh(self) -> Desk:
        """What the ledgers show, after a look at each."""
        await asyncio.gather(*(feed.fresh() for feed in self._feeds.values()))
        self._merge()
        return self.desk

    async def run(self) -> None:
        """The feeds of the ledgers look for news; whoever waits for it here waits for it there."""

    async def news(self, seen: str) -> AsyncIterator[str]:
        """Marks after `seen`, the newest only, until the feed closes."""
        for feed in self._feeds.values():
            feed.subscribers += 1
        try:
            async for mark in super().news(seen):
                yield mark
        finally:
            for feed in self._feeds.values():
                feed.subscribers -= 1

    def _said(self) -> tuple[Entry, ...]:
        return tuple(entry for name, feed in self._feeds.items() for entry in said_of(name, feed.entries()))

    async def _heard(self) -> None:
        self._merge()
        await self.tell()

    def _merge(self) -> None:
        merged = merged_of({name: feed.desk for name, feed in self._feeds.items()}, self.desk.merged)
        self.desk = replace(self.desk, merged=merged)
