"""What views consist of: their events and their reads, in columns that are equal, element by element, where views are alike.

Invariant: columns are made for some views at a time and let go, so comparing all of them takes memory for a few.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from forensics.laid_out import NOWHERE, Runs, page_number
from forensics.life_table import LifeTable
from forensics.outcomes import Outcomes
from forensics.ranking import distinct, order_of
from forensics.rows import Ints, WorkerKey
from forensics.views import Views, source_views

Mask = NDArray[np.bool_]
NONE = NOWHERE
NO_PLACE = 1 << 60
STRIDE = 1 << 18
"""Elements that are looked at together, if a view has not more."""
FILLS = frozenset({"write", "growth", "rewrite", "landing"})
_FAILED, _RETURNED, _HELD, _ENDED = 1, 2, 4, 8


@dataclass(frozen=True)
class Stretch:
    """The elements of the views [first, last): `view` and `place` of each, view by view; those of view v are
    [bounds[v - first], bounds[v - first + 1])."""

    first: int
    last: int
    view: Ints
    place: Ints
    bounds: Ints


class Elements(ABC):
    """Element k of view v has the place `begin[v] + k`, k below `lengths[v]`."""

    def __init__(self, begin: Ints, lengths: Ints) -> None:
        self.begin, self.lengths = begin, lengths

    def stretches(self) -> Iterator[Stretch]:
        """All elements, some views at a time."""
        for first, last in strides(self.lengths):
            lengths = self.lengths[first:last]
            bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
            view = np.repeat(np.arange(first, last), lengths)
            place = np.arange(len(view)) + np.repeat(self.begin[first:last] - bounds[:-1], lengths)
            yield Stretch(first, last, view, place, bounds)

    @abstractmethod
    def columns(self, view: Ints, place: Ints) -> Iterator[Ints]:
        """The numbers of elements, one column after the other."""


def strides(lengths: Ints) -> list[tuple[int, int]]:
    """[first, last) of views that have about STRIDE elements together, for all views in order."""
    ends = np.cumsum(lengths + 1)
    cuts = np.searchsorted(ends, np.arange(STRIDE, int(ends[-1]) if len(ends) else 0, STRIDE), "right")
    bounds = distinct(np.concatenate([np.array([0, len(lengths)], np.int64), cuts])).tolist()
    return list(pairwise(bounds))


class LifeNumbers:
    """(reserve_seq, end_seq, req, flags) of lives by their rows in `LifeTable.columns`; all NONE for row -1."""

    def __init__(self, lives: LifeTable, outcomes: Outcomes) -> None:
        columns = lives.columns
        flags = (columns.ended * _ENDED + columns.held * _HELD).astype(np.int8)
        for named, flag in ((outcomes.failed, _FAILED), (outcomes.returned, _RETURNED)):
            if named:
                tags, pages = (np.array(column, np.int64) for column in zip(*named, strict=True))
                for place in lives.of_place:
                    rows = lives.rows(place, tags, pages)
                    flags[rows[rows >= 0]] |= flag
        self._columns = (columns.reserve_seq, columns.end_seq, columns.req, flags)

    def of(self, rows: Ints) -> Iterator[Ints]:
        """Those of each row, one column after the other."""
        is_none = rows < 0
        for column in self._columns:
            found = column[rows].astype(np.int64) if len(column) else np.zeros(len(rows), np.int64)
            found[is_none] = NONE
            yield found


class Events(Elements):
    """The events of every view: which run, whether two owners met in it, the life that its tag had at the page, and how far
    on in its request's page table it is from `least`.

    `least`, `most`: the least place in that table of each view's events and reads, the greatest of its events (NO_PLACE,
    NONE where there is none). Where a page stood in the table of another tag's request, nothing asks for.
    `is_of_several`: views whose own tag several writers filled.
    """

    def __init__(self, runs: Runs, views: Views, numbers: LifeNumbers) -> None:
        super().__init__(views.start, views.stop - views.start)
        self._runs, self._views, self._numbers = runs, views, numbers
        self._tags = np.array([one.event.tag or 0 for one in runs.events], np.int64)
        self._first = np.array([NO_PLACE if one.event.pos is None else one.event.pos for one in runs.events], np.int64)
        self._listed = _listed([one.index for one in runs.events])
        self._collided = _collided(runs)
        count = len(views.page)
        self.least = least_of_reads(runs, views)
        self.most, self.is_of_several = np.full(count, NONE, np.int64), np.zeros(count, bool)
        self._span_tables()

    def _span_tables(self) -> None:
        movers = _movers(self._runs)
        low, high = np.full(len(self.most), NO_PLACE, np.int64), np.full(len(self.most), NONE, np.int64)
        for part in self.stretches():
            touch = self._views.event[part.place]
            run = self._runs.event.run[touch]
            own = self._tags[run] == self._views.tag[part.view]
            touch, run, view = touch[own], run[own], part.view[own]
            placed = self._first[run] != NO_PLACE
            pos = self._first[run[placed]] + self._listed[touch[placed]]
            np.minimum.at(self.least, view[placed], pos)
            np.maximum.at(self.most, view[placed], pos)
            mover = movers[run]
            mine = mover != NONE
            np.minimum.at(low, view[mine], mover[mine])
            np.maximum.at(high, view[mine], mover[mine])
        self.is_of_several = (high != NONE) & (low != high)

    def columns(self, view: Ints, place: Ints) -> Iterator[Ints]:
        """See `Elements`."""
        touch = self._views.event[place]
        run = self._runs.event.run[touch]
        yield run
        if self._collided is not None:
            yield self._collided[touch].astype(np.int64)
        yield from self._numbers.of(self._views.event_life[place])
        is_placed = (self._first[run] != NO_PLACE) & (self._tags[run] == self._views.tag[view])
        yield np.where(is_placed, self._first[run] + self._listed[touch] - self.least[view], NONE)

    def sources(self, place: Ints) -> Ints:
        """The view that each element's bytes came from; NONE where it is none's."""
        return source_views(self._runs, self._views, self._views.event[place])


class Reads(Elements):
    """The reads of every view: which run, how many places its bind goes on behind the page (as far as an event under the
    view's tag is of a later place), and how far on in its request's page table it is."""

    def __init__(self, runs: Runs, views: Views, events: Events) -> None:
        lengths = np.bincount(views.of_read, minlength=len(views.page))
        super().__init__(np.cumsum(lengths) - lengths, lengths)
        self._order, self._run_of = order_of(views.of_read), runs.read.run
        self._first = _first_of_reads(runs)
        self._listed = _listed([one.index for _, one in runs.reads])
        self._last = np.array(
            [NONE if one.read.pos_last is None else one.read.pos_last for _, one in runs.reads], np.int64
        )
        self._least = events.least
        self._ahead = np.where(events.most == NONE, 0, np.maximum(events.most - events.least, 0))

    def columns(self, view: Ints, place: Ints) -> Iterator[Ints]:
        """See `Elements`."""
        touch = self._order[place]
        run = self._run_of[touch]
        yield run
        is_placed = self._first[run] != NO_PLACE
        pos = np.where(is_placed, self._first[run] + self._listed[touch], NO_PLACE)
        further = np.where(self._last[run] == NONE, 0, self._last[run] - pos)
        yield np.minimum(np.maximum(further, 0), self._ahead[view])
        yield np.where(is_placed, pos - self._least[view], NONE)


def least_of_reads(runs: Runs, views: Views) -> Ints:
    """The least place in a request's page table at which each view is read; NO_PLACE where nothing says."""
    least = np.full(len(views.page), NO_PLACE, np.int64)
    first = _first_of_reads(runs)[runs.read.run]
    placed = first != NO_PLACE
    np.minimum.at(least, views.of_read[placed], (first + _listed([one.index for _, one in runs.reads]))[placed])
    return least


def _first_of_reads(runs: Runs) -> Ints:
    return np.array([NO_PLACE if one.read.pos is None else one.read.pos for _, one in runs.reads], np.int64)


def _listed(index: list[Ints]) -> NDArray[np.int32]:
    """The place in its row's list of each touch."""
    return np.concatenate([np.empty(0, np.int64), *index], dtype=np.int32, casting="unsafe")


def _collided(runs: Runs) -> Mask | None:
    """Of each touch, whether two owners met in it; None where none did."""
    if not any(one.collided for one in runs.events):
        return None
    collided = np.zeros(len(runs.event.run), bool)
    for number, one in enumerate(runs.events):
        if one.collided:
            mine = slice(*runs.event.bounds[number : number + 2].tolist())
            collided[mine] = np.isin(page_number(runs.pages[runs.event.group[mine]]), list(one.collided))
    return collided


def _movers(runs: Runs) -> Ints:
    """A number for who filled pages by each run; NONE where it fills none or nobody knows."""
    movers: dict[WorkerKey, int] = {}
    return np.array(
        [
            NONE
            if one.event.mover is None or one.event.kind not in FILLS
            else movers.setdefault(one.event.mover, len(movers))
            for one in runs.events
        ],
        np.int64,
    )
