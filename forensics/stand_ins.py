"""Stand-ins: one page for each class of views, with the history of that class; the pages it stands for are `members`.

Invariant: a stand-in's page number is the number of its class, and every event, read, life and taking on it is one of
the view that comes first in the class.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from forensics.content import ContentEvent
from forensics.laid_out import NOWHERE, PAGE_BITS, Runs, page_number
from forensics.life_table import ENDS, NOBODY, UNTAGGED, Columns, LifeTable, Place
from forensics.lives import Life, Lives, PageKey
from forensics.loss import PoolGhost
from forensics.ranking import order_of
from forensics.reading import PageRead
from forensics.rows import Ints, WorkerKey
from forensics.view_classes import Classes
from forensics.views import WHOLE, Views, source_views


@dataclass
class StandIns:
    """What `prepare` makes its tables of. A growth event has the number of its run in `growths`, by its place in `events`."""

    events: list[ContentEvent] = field(default_factory=list)
    reads: list[tuple[WorkerKey, PageRead]] = field(default_factory=list)
    keys: list[PageKey] = field(default_factory=list)
    """Every stand-in, by the number of its class."""
    page_of: dict[PageKey, PageKey] = field(default_factory=dict)
    """The page that a stand-in shows."""
    tag_of: dict[PageKey, int] = field(default_factory=dict)
    """The tag under which it is read; WHOLE where it is a whole history."""
    bounds: dict[PageKey, tuple[int, int]] = field(default_factory=dict)
    tags: dict[PageKey, set[int]] = field(default_factory=dict)
    """The tags that its events and reads name."""
    members: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    """The pages that each stands for, one stand-in after the other: those of class c are [bounds[c], bounds[c + 1]) of it."""
    bounds_of_members: Ints = field(default_factory=lambda: np.zeros(1, np.int64))


@dataclass
class LivesOn:
    """Lives of pages, in columns: `stand_in`, on which a verdict may ask for it; `page`, whose it is; `at`, the worker whose
    request `req` owned it; and what `Life` says of it."""

    stand_in: list[PageKey] = field(default_factory=list)
    page: list[int] = field(default_factory=list)
    at: list[WorkerKey] = field(default_factory=list)
    tag: list[int | None] = field(default_factory=list)
    req: list[int | None] = field(default_factory=list)
    reserve_seq: list[int] = field(default_factory=list)
    end_seq: list[int] = field(default_factory=list)
    ended: list[str | None] = field(default_factory=list)
    held: list[bool] = field(default_factory=list)

    def add(self, stand_ins: list[PageKey], columns: Columns) -> None:
        """Lives of a table, each on the stand-in beside it."""
        self.stand_in += stand_ins
        self.at += [page[0] for page in stand_ins]
        self.page += columns.page.tolist()
        self.tag += [None if tag == UNTAGGED else tag for tag in columns.tag.tolist()]
        self.req += [None if req == NOBODY else req for req in columns.req.tolist()]
        self.reserve_seq += columns.reserve_seq.tolist()
        self.end_seq += columns.end_seq.tolist()
        self.ended += [ENDS[how] for how in columns.ended.tolist()]
        self.held += columns.held.tolist()

    def add_life(self, stand_in: PageKey, life: Life) -> None:
        """One life."""
        self.stand_in.append(stand_in)
        self.at.append(life.at)
        self.page.append(life.page[2])
        for name in ("tag", "req", "reserve_seq", "end_seq", "ended", "held"):
            getattr(self, name).append(getattr(life, name))


def stand_ins(runs: Runs, views: Views, classes: Classes) -> StandIns:
    """The stand-in of every class."""
    found = StandIns()
    keys = found.keys
    for number, view in enumerate(classes.first.tolist()):
        place = runs.places[int(views.page[view]) >> PAGE_BITS]
        key = (*place, number)
        keys.append(key)
        found.page_of[key] = (*place, int(page_number(views.page[view])))
        found.tag_of[key], found.bounds[key] = int(views.tag[view]), (int(views.lo[view]), int(views.hi[view]))
        found.tags[key] = {found.tag_of[key]} - {WHOLE}
    _add_members(found, views, classes)
    _add_events(found, runs, views, classes)
    _add_reads(found, runs, views, classes)
    return found


def _add_members(found: StandIns, views: Views, classes: Classes) -> None:
    numbers = page_number(views.page)
    order = order_of((classes.of_view << PAGE_BITS) + numbers)
    found.members = numbers[order].astype(np.int32)
    found.bounds_of_members = np.searchsorted(classes.of_view[order], np.arange(len(found.keys) + 1))


def _add_events(found: StandIns, runs: Runs, views: Views, classes: Classes) -> None:
    begin, lengths = views.start[classes.first], (views.stop - views.start)[classes.first]
    of = np.repeat(np.arange(len(lengths)), lengths)
    touch = views.event[np.arange(len(of)) + (begin - np.cumsum(lengths) + lengths)[of]]
    source = source_views(runs, views, touch)
    source = np.where(source == NOWHERE, NOWHERE, classes.of_view[source]) if len(classes.of_view) else source
    where = (of, runs.event.run[touch], runs.event.index(touch), source)
    for number, run, index, come_from in zip(*(column.tolist() for column in where), strict=True):
        key = found.keys[number]
        event = runs.events[run].at(index, key, None if come_from == NOWHERE else found.keys[come_from])
        found.events.append(event)
        found.tags[key].add(event.tag or 0)


def _add_reads(found: StandIns, runs: Runs, views: Views, classes: Classes) -> None:
    stands = np.full(len(views.page), -1, np.int64)
    stands[classes.first] = np.arange(len(found.keys))
    number = stands[views.of_read]
    touch = np.flatnonzero(number >= 0)
    where = (number[touch], runs.read.run[touch], runs.read.index(touch))
    for number_of, run_of, index in zip(*(column.tolist() for column in where), strict=True):
        worker, run = runs.reads[run_of]
        key = found.keys[number_of]
        found.reads.append((worker, run.at(index, key[2])))
        if run.read.tag is not None:
            found.tags[key].add(run.read.tag)


def ghosts_on(found: StandIns, ghosts: list[PoolGhost], extents: dict[PageKey, int]) -> Iterator[ContentEvent]:
    """Ghosts of whole pools, on every stand-in that they may touch. `extents`: tokens per page of each that has cells."""
    for ghost in ghosts:
        for key, tokens in extents.items():
            lo, hi = found.bounds[key]
            if key[0] == ghost.worker and ghost.pool in (None, key[1]) and ghost.hi > lo and ghost.lo < hi:
                yield ContentEvent(key, "ghost", 0, tokens, ghost.lo, ghost.hi, reason=ghost.reason)


def lives_on(found: StandIns, lives: LifeTable, of_tiers: Lives) -> LivesOn:
    """Every life that a verdict on a stand-in may ask for."""
    on = LivesOn()
    whole = {page: key for key, page in found.page_of.items() if found.tag_of[key] == WHOLE}
    named = [(key, tag) for key, tags in found.tags.items() if found.tag_of[key] != WHOLE for tag in sorted(tags)]
    rows = _rows_of_named(found, lives, named)
    is_known = np.flatnonzero(rows >= 0)
    on.add([named[i][0] for i in is_known.tolist()], lives.columns.where(rows[is_known]))
    for (_, page), life in of_tiers.items():
        if page in whole:
            on.add_life(whole[page], life)
    for place, table in lives.of_place.items():
        here = {page[2]: key for page, key in whole.items() if page[:2] == place}
        if here:
            columns = table.columns.where(np.isin(table.columns.page, list(here)))
            on.add([here[page] for page in columns.page.tolist()], columns)
    return on


def _rows_of_named(found: StandIns, lives: LifeTable, named: list[tuple[PageKey, int]]) -> Ints:
    """The row in `LifeTable.columns` of the life of each stand-in's page under the tag beside it; -1 where there is none."""
    rows = np.full(len(named), -1, np.int64)
    by_place: dict[Place, list[int]] = defaultdict(list)
    for i, (key, _) in enumerate(named):
        by_place[key[:2]].append(i)
    for place, asked in by_place.items():
        tags = np.array([named[i][1] for i in asked], np.int64)
        rows[asked] = lives.rows(place, tags, np.array([found.page_of[named[i][0]][2] for i in asked], np.int64))
    return rows


def widened(event: ContentEvent, extents: dict[PageKey, int]) -> ContentEvent:
    """A ghost of named pages, on all tokens of its page."""
    return replace(event, tok_hi=extents[event.page])
