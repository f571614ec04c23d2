"""Cells: token ranges of pages cut so finely that every event and every read covers each wholly or not at all.

Invariant: a cell of a landing's target lies inside one cell of its source page, so cuts and parts travel along
transfers (a transfer moves whole pages, and token offsets stay).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise
from math import lcm

from forensics.content import ContentEvent
from forensics.lives import PageKey
from forensics.reading import PageRead
from forensics.rows import WorkerKey

Pool = tuple[WorkerKey, str]


class Cells:
    """Cells of all pages; `of(page, lo, hi, part, parts)` gives the ids of those that one part of a range covers."""

    def __init__(self, events: Iterable[ContentEvent], reads: Iterable[tuple[WorkerKey, PageRead]]) -> None:
        events, reads = list(events), list(reads)
        cuts: dict[PageKey, set[int]] = defaultdict(set)
        for event in events:
            cuts[event.page].update((event.tok_lo, event.tok_hi))
        for worker, read in reads:
            cuts[worker, read.pool, read.page].update((read.tok_lo, read.tok_hi))
        _propagate(cuts, events)
        self.parts = _parts(events)
        self.rows: list[tuple[PageKey, int, int, int]] = []
        self._bounds: dict[PageKey, list[int]] = {}
        self._first: dict[PageKey, int] = {}
        for page in sorted(cuts):
            bounds = sorted(cuts[page])
            self._bounds[page], self._first[page] = bounds, len(self.rows)
            for part in range(self.parts[page[:2]]):
                self.rows += [(page, part, lo, hi) for lo, hi in pairwise(bounds)]

    def of(self, page: PageKey, lo: int, hi: int, part: int = 0, parts: int = 1) -> list[int]:
        """Cell ids inside [lo, hi) of `page`, of part `part` of `parts` (0 of 1 = the whole)."""
        bounds, first = self._bounds[page], self._first[page]
        width = len(bounds) - 1
        all_parts = self.parts[page[:2]]
        if width == all_parts == 1:
            return [first] if lo <= bounds[0] and bounds[1] <= hi else []
        inside = [i for i in range(width) if lo <= bounds[i] and bounds[i + 1] <= hi]
        if all_parts == 1:
            return [first + i for i in inside]
        wanted = range(part * all_parts // parts, (part + 1) * all_parts // parts)
        return [first + p * width + i for p in wanted for i in inside]

    def holding(self, page: PageKey, token: int, part: int, parts: int) -> int | None:
        """The cell of `page` that holds slot `token` in part `part` of `parts`; None where nothing was ever recorded."""
        bounds = self._bounds.get(page)
        if bounds is None:
            return None
        place = part * self.parts[page[:2]] // parts
        for i in range(len(bounds) - 1):
            if bounds[i] <= token < bounds[i + 1]:
                return self._first[page] + place * (len(bounds) - 1) + i
        return None

    def page_extents(self) -> dict[PageKey, int]:
        """The highest recorded token bound of every page."""
        return {page: bounds[-1] for page, bounds in self._bounds.items()}


def _parts(events: list[ContentEvent]) -> dict[Pool, int]:
    """Parts that the pages of each pool are told apart in; a whole page takes on the parts of where it came from."""
    parts: dict[Pool, int] = defaultdict(lambda: 1)
    links: set[tuple[Pool, Pool]] = set()
    for event in events:
        if event.parts > 1:
            parts[event.page[:2]] = lcm(parts[event.page[:2]], event.parts)
        elif event.source is not None:
            links.add((event.source.page[:2], event.page[:2]))
    changed = bool(parts)
    while changed:
        changed = False
        for source, target in links:
            together = lcm(parts[source], parts[target])
            changed = changed or together != parts[target]
            parts[target] = together
    return parts


def _propagate(cuts: dict[PageKey, set[int]], events: list[ContentEvent]) -> None:
    """Carry the cuts of source pages to target pages until nothing changes; source pages cover what is read of them."""
    links: dict[PageKey, set[PageKey]] = defaultdict(set)
    for event in events:
        if event.source is not None:
            links[event.source.page].add(event.page)
            cuts[event.source.page].update((event.tok_lo, event.tok_hi))
    pending = list(links)
    while pending:
        source = pending.pop()
        for target in links.get(source, ()):
            before = len(cuts[target])
            low, high = min(cuts[target]), max(cuts[target])
            cuts[target] |= {cut for cut in cuts[source] if low < cut < high}
            if len(cuts[target]) > before:
                pending.append(target)
