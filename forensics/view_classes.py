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
from forensics.laid_out import PAGE_BITS, Runs
from forensics.life_table import LifeTable
from forensics.outcomes import Outcomes
from forensics.ranking import distinct, order_of
from forensics.rows import Ints, WorkerKey
from forensics.view_elements import NONE, STRIDE, Elements, Events, LifeNumbers, Reads
from forensics.views import WHOLE, Views

Digest = NDArray[np.uint64]
_FACTOR = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Classes:
    """`of_view`: the class of each view; `first`: per class, the view that stands for it. Classes are in order of `first`."""

    of_view: Ints
    first: Ints


@dataclass(frozen=True)
class Sourced:
    """Elements whose bytes came from a view: the `view` of each (ascending), that `source` view, and its `digest`."""

    view: Ints
    source: Ints
    digest: Digest


def classes(
    runs: Runs, views: Views, lives: LifeTable, outcomes: Outcomes, takings: list[tuple[WorkerKey, Taking]]
) -> Classes:
    """The classes of all views."""
    numbers = LifeNumbers(lives, outcomes)
    events = Events(runs, views, numbers)
    reads = Reads(runs, views, events)
    # No other is compared with whole histories, nor with views whose tag several writers filled.
    alone = (views.tag == WHOLE) | events.is_of_several
    own = _Own(views, alone, _takings_of(runs, views, takings), numbers)
    digest, sourced = own.digest(), []
    for part in events.stretches():
        of_each = _digest(events.columns(part.view, part.place))
        digest[part.first : part.last] += _sums(of_each, part.bounds)
        source = events.sources(part.place)
        at = np.flatnonzero(source != NONE)
        sourced.append(Sourced(part.view[at], source[at], of_each[at]))
    for part in reads.stretches():
        digest[part.first : part.last] += _sums(_digest(reads.columns(part.view, part.place)), part.bounds)
    of_view, first = _refined(*_alike(digest), _joined(sourced))
    like = first[of_view]
    if own.differ(like) or _differ(events, like) or _differ(reads, like) or _differ_in_source(events, like, of_view):
        raise ArithmeticError("two histories of pages have one digest")
    return _in_order(of_view, first)


class _Own:
    """What views must have in common beside their elements: place, tag, bounds, takings and life."""

    def __init__(self, views: Views, alone: NDArray[np.bool_], takings: Ints, numbers: LifeNumbers) -> None:
        self._views, self._alone, self._takings, self._numbers = views, alone, takings, numbers

    def digest(self) -> Digest:
        """One of each view."""
        return np.concatenate([np.empty(0, np.uint64), *(_digest(self._columns(some)) for some in self._parts())])

    def differ(self, like: Ints) -> bool:
        """Whether any view is not like that which stands beside it in `like`."""
        return any(_are_two(self._columns(some), self._columns(like[some])) for some in self._parts())

    def _parts(self) -> Iterator[Ints]:
        count = len(self._views.page)
        for first in range(0, count, STRIDE):
            yield np.arange(first, min(first + STRIDE, count))

    def _columns(self, some: Ints) -> Iterator[Ints]:
        views = self._views
        yield views.page[some] >> PAGE_BITS
        yield from (column[some] for column in (views.tag, views.lo, views.hi, self._takings))
        yield np.where(self._alone[some], some, NONE)
        yield from self._numbers.of(views.life[some])


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


def _joined(parts: list[Sourced]) -> Sourced:
    empty = np.empty(0, np.int64)
    return Sourced(
        np.concatenate([empty, *(part.view for part in parts)]),
        np.concatenate([empty, *(part.source for part in parts)]),
        np.concatenate([np.empty(0, np.uint64), *(part.digest for part in parts)]),
    )


def _refined(of_view: Ints, first: Ints, elements: Sourced) -> tuple[Ints, Ints]:
    """The classes told further apart by those of the views that transfers came from, until none is."""
    view, source = elements.view, elements.source
    if not len(view):
        return of_view, first
    begin = np.flatnonzero(np.r_[True, view[1:] != view[:-1]])
    sourced = view[begin]
    base = of_view[sourced].astype(np.uint64)
    known, count = len(distinct(of_view[sourced])), len(first)
    while True:
        of_sources = np.add.reduceat(_mix(elements.digest ^ _mix(of_view[source].astype(np.uint64))), begin)
        finer, first_of = _alike(_mix(of_sources ^ _mix(base)))
        # Views without a source are of no class that has views with one, and keep their numbers, below the new ones.
        of_view[sourced] = count + finer
        if len(first_of) == known:
            break
        known = len(first_of)
    is_there = np.zeros(count + known, bool)
    is_there[of_view] = True
    return (np.cumsum(is_there) - 1)[of_view], np.concatenate([first, sourced[first_of]])[is_there]


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


def _mix(x: Digest) -> Digest:
    """Splitmix64 (Steele, Lea and Flood 2014)."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x ^= x >> np.uint64(shift)
        x *= np.uint64(factor)
    x ^= x >> np.uint64(31)
    return x


def _digest(columns: Iterator[Ints]) -> Digest:
    """One digest of each row of the columns, of which there is one at least."""
    digest = np.zeros(1, np.uint64)
    for column in columns:
        digest = (digest ^ column.view(np.uint64)) * _FACTOR
        digest ^= digest >> np.uint64(32)
    return _mix(digest)


def _sums(digest: Digest, bounds: Ints) -> Digest:
    """Sums of the digests of each view's elements."""
    total = np.concatenate([np.zeros(1, np.uint64), np.cumsum(digest, dtype=np.uint64)])
    return total[bounds[1:]] - total[bounds[:-1]]


def _differ(elements: Elements, like: Ints) -> bool:
    """Whether the elements of any view are not those of the view beside it in `like`."""
    if bool(np.any(elements.lengths != elements.lengths[like])):
        return True
    return any(
        _are_two(elements.columns(view, place), elements.columns(like[view], twin))
        for view, place, twin in _twins(elements, like)
    )


def _differ_in_source(events: Events, like: Ints, of_view: Ints) -> bool:
    """Whether any transfer came from a view of another class than its twin, for views of equal lengths."""
    for _, place, twin in _twins(events, like):
        here, there = events.sources(place), events.sources(twin)
        if bool(np.any(np.where(here == NONE, NONE, of_view[here]) != np.where(there == NONE, NONE, of_view[there]))):
            return True
    return False


def _twins(elements: Elements, like: Ints) -> Iterator[tuple[Ints, Ints, Ints]]:
    """(view, place, place of what stands as far on in the view that it is like) of all elements that are not their own twins."""
    begin = elements.begin
    for part in elements.stretches():
        at = np.flatnonzero(like[part.view] != part.view)
        view, place = part.view[at], part.place[at]
        yield view, place, place + (begin[like[view]] - begin[view])


def _are_two(some: Iterator[Ints], others: Iterator[Ints]) -> bool:
    return any(bool(np.any(one != other)) for one, other in zip(some, others, strict=True))


def _in_order(of_view: Ints, first: Ints) -> Classes:
    order = order_of(first)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return Classes(rank[of_view], first[order])
