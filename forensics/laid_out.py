"""Runs laid out: every page that an event, a read or a transfer's source touches, one by one, in columns.

Invariant: a touch is known by its place among those of its kind; which run it is of, at which place of it and on which page
follow from that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from forensics.content import EventRun
from forensics.life_table import Place
from forensics.ranking import ranked
from forensics.reading import ReadRun
from forensics.rows import Ints, WorkerKey

NOWHERE = -1
PAGE_BITS = 32
DENSE = 64
"""Numbers that are looked up in a table: up to so many rows of it for each number that is there."""


def page_number(pages: Ints) -> Ints:
    """The number of each page (as in `Touches`) in its pool."""
    return pages & ((1 << PAGE_BITS) - 1)


@dataclass(frozen=True)
class Touches:
    """Every page that runs touch, one by one: its `run`, and `group`, the place of the page in `Runs.pages`.

    The touches of run r are [bounds[r], bounds[r + 1]).
    """

    run: Ints
    group: Ints
    bounds: Ints

    def index(self, touch: Ints) -> Ints:
        """The place of each touch in its run."""
        return touch - self.bounds[self.run[touch]]


class Runs:
    """The runs of a ledger with numbers for their places and tags, and their pages laid out. `pages`: all, ascending, each as
    place << 32 + page."""

    def __init__(self, events: list[EventRun], reads: list[tuple[WorkerKey, ReadRun]]) -> None:
        self.events, self.reads = events, reads
        self.places: list[Place] = []
        self._ids: dict[Place, int] = {}
        of_events = [self.place(run.event.page[:2]) for run in events]
        of_reads = [self.place((key, run.read.pool)) for key, run in reads]
        of_sources = [
            NOWHERE if run.event.source is None or run.sources is None else self.place(run.event.source.page[:2])
            for run in events
        ]
        self.has_source = np.array(of_sources, np.int64) != NOWHERE
        empty = np.empty(0, np.int64)
        sources = [
            empty if at == NOWHERE or run.sources is None else run.sources[run.index]
            for at, run in zip(of_sources, events, strict=True)
        ]
        laid_out = [
            _laid_out(*each)
            for each in (
                (of_events, [run.pages for run in events]),
                (of_reads, [run.pages for _, run in reads]),
                (of_sources, sources),
            )
        ]
        self.pages, group = _numbered(np.concatenate([pages for pages, _ in laid_out]))
        ends = np.cumsum([len(pages) for pages, _ in laid_out]).tolist()
        groups = np.split(group, ends[:-1])
        self.event, self.read, self.source = (
            _touches(of_page, lengths) for (_, lengths), of_page in zip(laid_out, groups, strict=True)
        )

    def place(self, place: Place) -> int:
        """The number of a place."""
        if place not in self._ids:
            self._ids[place] = len(self.places)
            self.places.append(place)
        return self._ids[place]


def _laid_out(at: list[int], lists: Sequence[Ints]) -> tuple[Ints, Ints]:
    """(place << 32 + page of every page, how many each run has)."""
    lengths = np.array([len(pages) for pages in lists], np.int64)
    pages = np.concatenate([np.empty(0, np.int64), *lists])
    return pages + (np.repeat(np.array(at, np.int64), lengths) << PAGE_BITS), lengths


def _touches(group: Ints, lengths: Ints) -> Touches:
    bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    return Touches(np.repeat(np.arange(len(lengths)), lengths), group, bounds)


def _numbered(pages: Ints) -> tuple[Ints, Ints]:
    """The different pages, ascending, and the place among them of each: from a table where page numbers are dense."""
    at, number = pages >> PAGE_BITS, page_number(pages)
    width = np.zeros(int(at.max()) + 1 if len(at) else 0, np.int64)
    np.maximum.at(width, at, number + 1)
    if not len(pages) or int(width.sum()) >= DENSE * len(pages):
        return ranked(pages)
    begin = np.cumsum(width) - width
    row = begin[at] + number
    is_there = np.zeros(int(width.sum()), bool)
    is_there[row] = True
    group = (np.cumsum(is_there) - 1)[row]
    known = np.empty(int(np.count_nonzero(is_there)), np.int64)
    known[group] = pages
    return known, group
