"""Classes of views: pages that the same rows touched in the same way, of which one stands for all.

Invariant: two views are of one class only if the same runs touch both (at places of their lists that are equally far
apart), with equal lives, takings and bounds, and each transfer into one came from a source view of the class of the
other's. Nothing that a verdict rests on tells such pages apart, so what is found of one holds for each: the coarsest such
partition, by refinement (Kanellakis and Smolka 1983) on digests; every member is compared with the first in the end.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forensics.cache import Taking
from forensics.life_table import LifeTable, PlaceLives
from forensics.outcomes import Outcomes
from forensics.rows import Ints, WorkerKey
from forensics.views import PAGE_BITS, WHOLE, Runs, Views, page_number

Digest = NDArray[np.uint64]
Mask = NDArray[np.bool_]
NONE = -1
NO_PLACE = 1 << 60
FILLS = frozenset({"write", "growth", "rewrite", "landing"})
_FAILED, _RETURNED, _HELD, _ENDED = 1, 2, 4, 8


@dataclass(frozen=True)
class Classes:
    """`of_view`: the class of each view; `first`: per class, the view that stands for it. Classes are in order of `first`."""

    of_view: Ints
    first: Ints


@dataclass(frozen=True)
class Elements:
    """What views consist of, view by view: element i is of view `view[i]`; numbers that must be equal; its source view."""

    view: Ints
    values: tuple[Ints, ...]
    source: Ints


def classes(
    runs: Runs, views: Views, lives: LifeTable, outcomes: Outcomes, takings: list[tuple[WorkerKey, Taking]]
) -> Classes:
    """The classes of all views."""
    count = len(views.page)
    events = _Events(runs, views)
    reads = _Reads(runs, views)
    least = np.minimum(_least(events.view, events.pos, count), _least(reads.view, reads.pos, count))
    own = (
        views.page >> PAGE_BITS, views.tag, views.lo, views.hi, _takings_of(runs, views, takings),
        np.where(_alone(runs, views, events), np.arange(count), NONE), *_life_numbers(runs, lives, outcomes, views.page, views.tag),
    )  # fmt: skip
    parts = (
        Elements(
            events.view, (*events.values(lives, outcomes), _beyond(events.pos, least[events.view])), events.source
        ),
        Elements(
            reads.view,
            (reads.run, _beyond(reads.pos, least[reads.view]), _further(views, events, reads, least)),
            np.full(len(reads.view), NONE),
        ),
    )
    digest = base = _digest(own) + sum(
        (_sums(part, _digest(part.values), count) for part in parts), np.zeros(count, np.uint64)
    )
    known = 0
    while True:
        _, first, of_view = np.unique(digest, return_index=True, return_inverse=True)
        if len(first) == known:
            break
        known = len(first)
        digest = base + _from_sources(parts[0], of_view, count)
    if _differ(own, parts, of_view, first):
        raise ArithmeticError("two histories of pages have one digest")
    return _in_order(of_view.astype(np.int64), first)


class _Events:
    """The events of every view."""

    def __init__(self, runs: Runs, views: Views) -> None:
        lengths = views.stop - views.start
        self._runs = runs
        self.view = np.repeat(np.arange(len(lengths)), lengths)
        skipped = np.repeat(views.start - (np.cumsum(lengths) - lengths), lengths)
        self.at = views.event[np.arange(len(self.view)) + skipped]
        self.run = runs.event.run[self.at]
        self.tag = np.array([one.event.tag or 0 for one in runs.events], np.int64)[self.run]
        source_of = np.full(len(runs.event.run), NONE, np.int64)
        source_of[runs.has_source[runs.event.run]] = views.of_source
        self.source = source_of[self.at]
        positions = np.array([NO_PLACE if one.event.pos is None else one.event.pos for one in runs.events], np.int64)
        index = np.concatenate([np.empty(0, np.int64), *(one.index for one in runs.events)])
        self.pos = np.where(positions[self.run] == NO_PLACE, NO_PLACE, positions[self.run] + index[self.at])

    def values(self, lives: LifeTable, outcomes: Outcomes) -> tuple[Ints, ...]:
        """Which run, whether two owners met in it, and the life that its tag had at the page."""
        runs = self._runs
        tags = np.array([one.event.tag or 0 for one in runs.events], np.int64)[runs.event.run]
        numbers = _life_numbers(runs, lives, outcomes, runs.event.page, tags)
        collided = np.zeros(len(tags), np.int64)
        for number, one in enumerate(runs.events):
            if one.collided:
                mine = np.flatnonzero(runs.event.run == number)
                collided[mine] = np.isin(page_number(runs.event.page[mine]), list(one.collided))
        return self.run, collided[self.at], *(column[self.at] for column in numbers)


class _Reads:
    """The reads of every view."""

    def __init__(self, runs: Runs, views: Views) -> None:
        order = np.lexsort((runs.read.run, views.of_read))
        self.view, self.run = views.of_read[order], runs.read.run[order]
        positions = np.array([NO_PLACE if one.read.pos is None else one.read.pos for _, one in runs.reads], np.int64)
        index = np.concatenate([np.empty(0, np.int64), *(one.index for _, one in runs.reads)])
        self.pos = np.where(positions[self.run] == NO_PLACE, NO_PLACE, positions[self.run] + index[order])
        lasts = np.array([NONE if one.read.pos_last is None else one.read.pos_last for _, one in runs.reads], np.int64)
        self.last = lasts[self.run]


def _least(view: Ints, pos: Ints, count: int) -> Ints:
    least = np.full(count, NO_PLACE, np.int64)
    np.minimum.at(least, view, pos)
    return least


def _beyond(pos: Ints, least: Ints) -> Ints:
    return np.where(pos == NO_PLACE, NONE, pos - least)


def _further(views: Views, events: _Events, reads: _Reads, least: Ints) -> Ints:
    """How many places a read's bind goes on behind its page, as far as an event under the view's tag is of a later place."""
    ahead = np.zeros(len(views.page), np.int64)
    own = (events.tag == views.tag[events.view]) & (events.pos != NO_PLACE)
    np.maximum.at(ahead, events.view[own], events.pos[own] - least[events.view[own]])
    further = np.where(reads.last == NONE, 0, reads.last - reads.pos)
    return np.minimum(np.maximum(further, 0), ahead[reads.view])


def _alone(runs: Runs, views: Views, events: _Events) -> Mask:
    """Views that no other is compared with: whole histories, and those whose tag several writers filled."""
    movers: dict[WorkerKey, int] = {}
    number = np.array(
        [
            NONE
            if one.event.mover is None or one.event.kind not in FILLS
            else movers.setdefault(one.event.mover, len(movers))
            for one in runs.events
        ],
        np.int64,
    )[events.run]
    mine = (number != NONE) & (events.tag == views.tag[events.view])
    least, most = np.full(len(views.page), NO_PLACE, np.int64), np.full(len(views.page), NONE, np.int64)
    np.minimum.at(least, events.view[mine], number[mine])
    np.maximum.at(most, events.view[mine], number[mine])
    return (views.tag == WHOLE) | ((most != NONE) & (least != most))


def _takings_of(runs: Runs, views: Views, takings: list[tuple[WorkerKey, Taking]]) -> Ints:
    """Per view, a number that equal takings of its page and tag have in common; -1: none."""
    known: dict[tuple[object, ...], int] = {}
    of_page: dict[tuple[int, int], list[int]] = defaultdict(list)
    for key, one in takings:
        what = (key, one.req, one.seq, one.end_seq, id(one.given), id(one.taken))
        page = (runs.place(one.page[:2]) << PAGE_BITS) + one.page[2]
        of_page[page, one.tag].append(known.setdefault(what, len(known)))
    sets: dict[tuple[int, ...], int] = {}
    found = np.full(len(views.page), NONE, np.int64)
    if of_page:
        for view in np.flatnonzero(np.isin(views.page, [page for page, _ in of_page])).tolist():
            numbers = of_page.get((int(views.page[view]), int(views.tag[view])))
            if numbers:
                found[view] = sets.setdefault(tuple(sorted(numbers)), len(sets))
    return found


def _life_numbers(
    runs: Runs, lives: LifeTable, outcomes: Outcomes, pages: Ints, tags: Ints
) -> tuple[Ints, Ints, Ints, Ints]:
    """(reserve_seq, end_seq, req, flags) of the life of each (page, tag); all -1 where there is none."""
    reserve, end, req, flags = (np.full(len(pages), NONE, np.int64) for _ in range(4))
    places = pages >> PAGE_BITS
    for number, place in enumerate(runs.places):
        table = lives.of_place.get(place)
        here = np.flatnonzero(places == number) if table is not None else ()
        if table is None or not len(here):
            continue
        rows = table.rows(tags[here], page_number(pages[here]))
        here, rows = here[rows >= 0], rows[rows >= 0]
        reserve[here], end[here] = table.columns.reserve_seq[rows], table.columns.end_seq[rows]
        req[here], flags[here] = table.columns.req[rows], _flags(table, outcomes)[rows]
    return reserve, end, req, flags


def _flags(table: PlaceLives, outcomes: Outcomes) -> Ints:
    flags = table.columns.ended * _ENDED + table.columns.held * _HELD
    for named, flag in ((outcomes.failed, _FAILED), (outcomes.returned, _RETURNED)):
        if named:
            tags, pages = (np.array(column, np.int64) for column in zip(*named, strict=True))
            rows = table.rows(tags, pages)
            flags[rows[rows >= 0]] |= flag
    return flags


def _mix(x: Digest) -> Digest:
    """Splitmix64 (Steele, Lea and Flood 2014)."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _digest(columns: tuple[Ints, ...]) -> Digest:
    digest = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        digest = _mix(digest ^ column.astype(np.uint64))
    return digest


def _sums(part: Elements, digest: Digest, count: int) -> Digest:
    """Sums of the digests of each view's elements (which lie together, by view)."""
    total = np.concatenate([np.zeros(1, np.uint64), np.cumsum(digest, dtype=np.uint64)])
    bounds = _bounds(part, count)
    return total[bounds[1:]] - total[bounds[:-1]]


def _bounds(part: Elements, count: int) -> Ints:
    """Where the elements of each view begin, and where those of the last end."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(np.bincount(part.view, minlength=count))])


def _from_sources(part: Elements, of_view: Ints, count: int) -> Digest:
    of_source = np.where(part.source == NONE, NONE, of_view[part.source])
    return _mix(_sums(part, _digest((part.values[0], of_source)), count))


def _differ(own: tuple[Ints, ...], parts: tuple[Elements, ...], of_view: Ints, first: Ints) -> bool:
    """Whether any view is not in every respect like the first of its class."""
    like = first[of_view]
    if any(bool(np.any(column != column[like])) for column in own):
        return True
    for part in parts:
        bounds = _bounds(part, len(of_view))
        begin, stop = bounds[:-1], bounds[1:]
        if bool(np.any(stop - begin != (stop - begin)[like])):
            return True
        twin = np.arange(len(part.view)) + (begin[like] - begin)[part.view]
        if any(bool(np.any(column != column[twin])) for column in part.values):
            return True
        there = np.where(part.source == NONE, NONE, of_view[part.source])
        if bool(np.any(there != there[twin])):
            return True
    return False


def _in_order(of_view: Ints, first: Ints) -> Classes:
    order = np.argsort(first, kind="stable")
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return Classes(rank[of_view], first[order])
