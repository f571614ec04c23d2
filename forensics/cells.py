"""Cells: token ranges of pages cut so finely that every event and every read covers each wholly or not at all.

Invariant: a cell of a landing's target lies inside one cell of its source page, so cuts travel along transfers
(a transfer moves whole pages, and token offsets stay).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise

from forensics.content import ContentEvent, PageKey
from forensics.reading import PageRead
from forensics.rows import WorkerKey


class Cells:
    """Cells of all pages; `of(page, lo, hi)` gives the ids of those that a range covers, per part."""

    def __init__(self, events: Iterable[ContentEvent], reads: Iterable[tuple[WorkerKey, PageRead]]) -> None:
        events, reads = list(events), list(reads)
        cuts: dict[PageKey, set[int]] = defaultdict(set)
        for event in events:
            cuts[event.page] |= {event.tok_lo, event.tok_hi}
        for worker, read in reads:
            cuts[worker, read.pool, read.page] |= {read.tok_lo, read.tok_hi}
        _propagate(cuts, events)
        parts: dict[tuple[WorkerKey, str], int] = defaultdict(lambda: 1)
        for event in events:
            pool = event.page[:2]
            parts[pool] = max(parts[pool], (event.part or 0) + 1)
        self.parts = parts
        self.rows: list[tuple[PageKey, int, int, int]] = []
        self._bounds: dict[PageKey, list[int]] = {}
        self._first: dict[PageKey, int] = {}
        for page in sorted(cuts):
            bounds = sorted(cuts[page])
            self._bounds[page], self._first[page] = bounds, len(self.rows)
            for part in range(parts[page[:2]]):
                self.rows += [(page, part, lo, hi) for lo, hi in pairwise(bounds)]

    def of(self, page: PageKey, lo: int, hi: int, part: int | None) -> list[int]:
        """Cell ids inside [lo, hi) of `page`, of one part or (None) of all."""
        bounds, first = self._bounds[page], self._first[page]
        width = len(bounds) - 1
        wanted = range(self.parts[page[:2]]) if part is None else (part,)
        inside = [i for i in range(width) if lo <= bounds[i] and bounds[i + 1] <= hi]
        return [first + p * width + i for p in wanted for i in inside]

    def holding(self, page: PageKey, token: int, part: int) -> int | None:
        """The cell of `page` and `part` that holds slot `token`; None where nothing was ever recorded there."""
        bounds = self._bounds.get(page)
        if bounds is None:
            return None
        for i in range(len(bounds) - 1):
            if bounds[i] <= token < bounds[i + 1]:
                return self._first[page] + min(part, self.parts[page[:2]] - 1) * (len(bounds) - 1) + i
        return None

    def page_extents(self) -> dict[PageKey, int]:
        """The highest recorded token bound of every page."""
        return {page: bounds[-1] for page, bounds in self._bounds.items()}


def _propagate(cuts: dict[PageKey, set[int]], events: list[ContentEvent]) -> None:
    """Carry the cuts of source pages to target pages until nothing changes; source pages cover what is read of them."""
    links: dict[PageKey, set[PageKey]] = defaultdict(set)
    for event in events:
        if event.source is not None:
            links[event.source.page].add(event.page)
            cuts[event.source.page] |= {event.tok_lo, event.tok_hi}
    pending = list(links)
    while pending:
        source = pending.pop()
        for target in links.get(source, ()):
            before = len(cuts[target])
            low, high = min(cuts[target]), max(cuts[target])
            cuts[target] |= {cut for cut in cuts[source] if low < cut < high}
            if len(cuts[target]) > before:
                pending.append(target)
