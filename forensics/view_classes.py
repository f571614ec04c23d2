"""Classes of views: pages that the same rows touched in the same way, of which one stands for all.

Invariant: two views are of one class only if the same runs touch both (at places of their lists that are equally far
apart), with equal lives, takings and bounds, and each transfer into one came from a source view of the class of the
other's. Nothing that a verdict rests on tells such pages apart, so what is found of one holds for each: the coarsest such
partition, by refinement (Kanellakis and Smolka 1983) on digests; every member is compared with the first in the end.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forensics.cache import Taking
from forensics.life_table import LifeTable
from forensics.outcomes import Outcomes
from forensics.ranking import distinct, order_of
from forensics.rows import Ints, WorkerKey
from forensics.views import PAGE_BITS, WHOLE, Runs, Touches, Views, page_number

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
    """What views consist of, view by view: those of view v are [bounds[v], bounds[v + 1]).

    `touch`: the row of each in `of_touch`, numbers that must be equal, as must be `beyond`; `digest`: of them all; `source`:
    the source view of each, NONE where there is none.
    """

    bounds: Ints
    touch: Ints
    of_touch: tuple[Ints, ...]
    beyond: Ints
    digest: Digest
    source: Ints | None = None

    def columns(self) -> Iterator[Ints]:
        """The numbers of every element, one column at a time: together they take more memory than all the rest."""
        yield self.beyond
        yield from (column[self.touch] for column in self.of_touch)


def classes(
    runs: Runs, views: Views, lives: LifeTable, outcomes: Outcomes, takings: list[tuple[WorkerKey, Taking]]
) -> Classes:
    """The classes of all views."""
    count = len(views.page)
    events, reads = _Events(runs, views), _Reads(runs, views)
    least = np.minimum(_least(events.view, events.pos, count), _least(reads.view, reads.pos, count))
    numbers = _life_numbers(lives, outcomes)
    own = (
        views.page >> PAGE_BITS, views.tag, views.lo, views.hi, _takings_of(runs, views, takings),
        np.where(_alone(runs, views, events), np.arange(count), NONE), *_of_lives(numbers, views.life),
    )  # fmt: skip
    of_events = events.elements(_of_lives(numbers, views.event_life), least)
    of_reads = reads.elements(least, events)
    digest = _digest(own) + _sums(of_events) + _sums(of_reads)
    of_view, first = _refined(*_alike(digest), of_events)
    if _differ(own, (of_events, of_reads), of_view, first):
        raise ArithmeticError("two histories of pages have one digest")
    return _in_order(of_view, first)


def _alike(digest: Digest) -> tuple[Ints, Ints]:
    """(the number of each one's digest, the first that has each number). What is alike mostly lies together."""
    if not len(digest):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    begins = np.r_[True, digest[1:] != digest[:-1]]
    begin = np.flatnonzero(begins)
    order = np.argsort(digest[begin], kind="stable")
    ordered = digest[begin[order]]
    is_first = np.r_[True, ordered[1:] != ordered[:-1]]
    of = np.empty(len(order), np.int64)
    of[order] = np.cumsum(is_first) - 1
    return of[np.cumsum(begins) - 1], begin[order[is_first]]


def _refined(of_view: Ints, first: Ints, events: Elements) -> tuple[Ints, Ints]:
    """The classes told further apart by those of the views that transfers came from, until none is."""
    if events.source is None:
        return of_view, first
    at = np.flatnonzero(events.source != NONE)
    if not len(at):
        return of_view, first
    view = np.searchsorted(events.bounds, at, "right") - 1
    begin = np.flatnonzero(np.r_[True, view[1:] != view[:-1]])
    sourced, source = view[begin], events.source[at]
    of_event = events.digest[at]
    base = of_view[sourced].astype(np.uint64)
    known, count = len(distinct(of_view[sourced])), len(first)
    while True:
        of_sources = np.add.reduceat(_mix(of_event ^ _mix(of_view[source].astype(np.uint64))), begin)
        finer, first_of = _alike(_mix(of_sources ^ _mix(base)))
        # Views without a source are of no class that has views with one, and keep their numbers, below the new ones.
        of_view[sourced] = count + finer
        if len(first_of) == known:
            break
        known = len(first_of)
    is_there = np.zeros(count + known, bool)
    is_there[of_view] = True
    return (np.cumsum(is_there) - 1)[of_view], np.concatenate([first, sourced[first_of]])[is_there]


class _Events:
    """The events of every view."""

    def __init__(self, runs: Runs, views: Views) -> None:
        lengths = views.stop - views.start
        self.bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        self.view = np.repeat(np.arange(len(lengths)), lengths)
        self._place = np.arange(len(self.view)) + (views.start - self.bounds[:-1])[self.view]
        self._runs, self._views = runs, views
        at = views.event[self._place]
        self.run = runs.event.run[at]
        source_of = np.full(len(runs.event.run), NONE, np.int64)
        source_of[runs.has_source[runs.event.run]] = views.of_source
        self._source = source_of[at]
        positions = np.array([NO_PLACE if one.event.pos is None else one.event.pos for one in runs.events], np.int64)
        tags = np.array([one.event.tag or 0 for one in runs.events], np.int64)
        pos = _positions(positions, runs.event, [one.index for one in runs.events])[at]
        # Where a page stood in the table of another tag's request, nothing asks for.
        self.pos = np.where(tags[self.run] == views.tag[self.view], pos, NO_PLACE)

    def elements(self, of_lives: tuple[Ints, ...], least: Ints) -> Elements:
        """Which run, how far on, whether two owners met in it, and the life that its tag had at the page."""
        runs, views = self._runs, self._views
        collided = np.zeros(len(runs.event.run), np.int64)
        for number, one in enumerate(runs.events):
            if one.collided:
                mine = slice(*runs.event.bounds[number : number + 2].tolist())
                collided[mine] = np.isin(page_number(runs.event.page[mine]), list(one.collided))
        of_touch = (runs.event.run[views.event], collided[views.event], *of_lives)
        beyond = _beyond(self.pos, least[self.view])
        digest = _mix(_digest(of_touch)[self._place] ^ beyond.view(np.uint64))
        return Elements(self.bounds, self._place, of_touch, beyond, digest, self._source)


class _Reads:
    """The reads of every view."""

    def __init__(self, runs: Runs, views: Views) -> None:
        order = order_of(views.of_read)
        self.view, self.run = views.of_read[order], runs.read.run[order]
        positions = np.array([NO_PLACE if one.read.pos is None else one.read.pos for _, one in runs.reads], np.int64)
        self.pos = _positions(positions, runs.read, [one.index for _, one in runs.reads])[order]
        lasts = np.array([NONE if one.read.pos_last is None else one.read.pos_last for _, one in runs.reads], np.int64)
        self._last = lasts[self.run]
        self._bounds = np.searchsorted(self.view, np.arange(len(views.page) + 1))

    def elements(self, least: Ints, events: _Events) -> Elements:
        """Which run, how far on, and how many places its bind goes on behind the page."""
        beyond, further = _beyond(self.pos, least[self.view]), self._further(least, events)
        of_touch = self.run, further
        return Elements(self._bounds, np.arange(len(further)), of_touch, beyond, _digest((*of_touch, beyond)))

    def _further(self, least: Ints, events: _Events) -> Ints:
        """Places of the bind behind the page, as far as an event under the view's tag is of a later place."""
        ahead = np.zeros(len(least), np.int64)
        placed = events.pos != NO_PLACE
        np.maximum.at(ahead, events.view[placed], events.pos[placed] - least[events.view[placed]])
        further = np.where(self._last == NONE, 0, self._last - self.pos)
        return np.minimum(np.maximum(further, 0), ahead[self.view])


def _positions(first: Ints, touches: Touches, index: list[Ints]) -> Ints:
    """The place in the request's page table of each touch; NO_PLACE where its run names none."""
    of_run = first[touches.run]
    return np.where(of_run == NO_PLACE, NO_PLACE, of_run + np.concatenate([np.empty(0, np.int64), *index]))


def _least(view: Ints, pos: Ints, count: int) -> Ints:
    least = np.full(count, NO_PLACE, np.int64)
    np.minimum.at(least, view, pos)
    return least


def _beyond(pos: Ints, least: Ints) -> Ints:
    return np.where(pos == NO_PLACE, NONE, pos - least)


def _alone(runs: Runs, views: Views, events: _Events) -> Mask:
    """Views that no other is compared with: whole histories, and those whose tag several writers filled."""
    movers: dict[WorkerKey, int] = {}
    of_run = np.array(
        [
            NONE
            if one.event.mover is None or one.event.kind not in FILLS
            else movers.setdefault(one.event.mover, len(movers))
            for one in runs.events
        ],
        np.int64,
    )
    tags = np.array([one.event.tag or 0 for one in runs.events], np.int64)[events.run]
    number = of_run[events.run]
    mine = np.flatnonzero((number != NONE) & (tags == views.tag[events.view]))
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


def _life_numbers(lives: LifeTable, outcomes: Outcomes) -> tuple[Ints, ...]:
    """(reserve_seq, end_seq, req, flags) of every life, and of none (all NONE) in a last row."""
    columns = lives.columns
    flags = columns.ended * _ENDED + columns.held * _HELD
    for named, flag in ((outcomes.failed, _FAILED), (outcomes.returned, _RETURNED)):
        if named:
            tags, pages = (np.array(column, np.int64) for column in zip(*named, strict=True))
            for place in lives.of_place:
                rows = lives.rows(place, tags, pages)
                flags[rows[rows >= 0]] |= flag
    none = np.full(1, NONE, np.int64)
    return tuple(np.concatenate([one, none]) for one in (columns.reserve_seq, columns.end_seq, columns.req, flags))


def _of_lives(numbers: tuple[Ints, ...], rows: Ints) -> tuple[Ints, ...]:
    return tuple(column[rows] for column in numbers)


def _mix(x: Digest) -> Digest:
    """Splitmix64 (Steele, Lea and Flood 2014)."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x ^= x >> np.uint64(shift)
        x *= np.uint64(factor)
    x ^= x >> np.uint64(31)
    return x


def _digest(columns: tuple[Ints, ...]) -> Digest:
    digest = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        digest = _mix(digest ^ column.astype(np.int64).view(np.uint64))
    return digest


def _sums(part: Elements) -> Digest:
    """Sums of the digests of each view's elements."""
    total = np.concatenate([np.zeros(1, np.uint64), np.cumsum(part.digest, dtype=np.uint64)])
    return total[part.bounds[1:]] - total[part.bounds[:-1]]


def _differ(own: tuple[Ints, ...], parts: tuple[Elements, ...], of_view: Ints, first: Ints) -> bool:
    """Whether any view is not in every respect like the first of its class."""
    like = first[of_view]
    if any(bool(np.any(column != column[like])) for column in own):
        return True
    for part in parts:
        begin, lengths = part.bounds[:-1], np.diff(part.bounds)
        if bool(np.any(lengths != lengths[like])):
            return True
        twin = np.arange(len(part.digest)) + np.repeat(begin[like] - begin, lengths)
        if any(bool(np.any(column != column[twin])) for column in part.columns()):
            return True
        if part.source is not None:
            there = np.where(part.source == NONE, NONE, of_view[part.source])
            if bool(np.any(there != there[twin])):
                return True
    return False


def _in_order(of_view: Ints, first: Ints) -> Classes:
    order = order_of(first)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return Classes(rank[of_view], first[order])
