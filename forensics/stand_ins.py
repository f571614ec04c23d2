"""Stand-ins: one page for each class of views, with the history of that class; the pages it stands for are `members`.

Invariant: a stand-in's page number is the number of its class, and every event, read, life and taking on it is one of
the view that comes first in the class.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from forensics.content import ContentEvent
from forensics.life_table import LifeTable
from forensics.lives import Life, Lives, PageKey
from forensics.loss import PoolGhost
from forensics.reading import PageRead
from forensics.rows import Row, WorkerKey
from forensics.view_classes import Classes
from forensics.views import PAGE_BITS, WHOLE, Runs, Views, page_number


@dataclass
class StandIns:
    """What `prepare` makes its tables of. A growth event has the number of its run in `growths`, by its place in `events`."""

    events: list[ContentEvent] = field(default_factory=list)
    reads: list[tuple[WorkerKey, PageRead]] = field(default_factory=list)
    page_of: dict[PageKey, PageKey] = field(default_factory=dict)
    """The page that a stand-in shows."""
    tag_of: dict[PageKey, int] = field(default_factory=dict)
    """The tag under which it is read; WHOLE where it is a whole history."""
    bounds: dict[PageKey, tuple[int, int]] = field(default_factory=dict)
    tags: dict[PageKey, set[int]] = field(default_factory=dict)
    """The tags that its events and reads name."""
    members: list[Row] = field(default_factory=list)


def stand_ins(runs: Runs, views: Views, classes: Classes) -> StandIns:
    """The stand-in of every class."""
    found = StandIns()
    keys: list[PageKey] = []
    for number, view in enumerate(classes.first.tolist()):
        place = runs.places[int(views.page[view]) >> PAGE_BITS]
        key = (*place, number)
        keys.append(key)
        found.page_of[key] = (*place, int(page_number(views.page[view])))
        found.tag_of[key], found.bounds[key] = int(views.tag[view]), (int(views.lo[view]), int(views.hi[view]))
        found.tags[key] = {found.tag_of[key]} - {WHOLE}
    _add_members(found, views, classes, keys)
    _add_events(found, runs, views, classes, keys)
    _add_reads(found, runs, views, classes, keys)
    return found


def _add_members(found: StandIns, views: Views, classes: Classes, keys: list[PageKey]) -> None:
    numbers = page_number(views.page)
    order = np.lexsort((numbers, classes.of_view))
    bounds = np.searchsorted(classes.of_view[order], np.arange(len(keys) + 1)).tolist()
    numbers = numbers[order].astype(np.int32)
    for number, ((worker, epoch), pool, _) in enumerate(keys):
        pages = numbers[bounds[number] : bounds[number + 1]]
        found.members.append({"worker": worker, "epoch": epoch, "pool": pool, "page": number, "numbers": pages})


def _add_events(found: StandIns, runs: Runs, views: Views, classes: Classes, keys: list[PageKey]) -> None:
    source_of = np.full(len(runs.event.run), -1, np.int64)
    source_of[runs.has_source[runs.event.run]] = classes.of_view[views.of_source]
    run, index = runs.event.run, runs.event.index
    for key, view in zip(keys, classes.first.tolist(), strict=True):
        for at in views.event[views.start[view] : views.stop[view]].tolist():
            source = int(source_of[at])
            event = runs.events[run[at]].at(int(index[at]), key, keys[source] if source >= 0 else None)
            found.events.append(event)
            found.tags[key].add(event.tag or 0)


def _add_reads(found: StandIns, runs: Runs, views: Views, classes: Classes, keys: list[PageKey]) -> None:
    stands = np.full(len(views.page), -1, np.int64)
    stands[classes.first] = np.arange(len(keys))
    number = stands[views.of_read]
    for at in np.flatnonzero(number >= 0).tolist():
        worker, run = runs.reads[int(runs.read.run[at])]
        key = keys[int(number[at])]
        found.reads.append((worker, run.at(int(runs.read.index[at]), key[2])))
        if run.read.tag is not None:
            found.tags[key].add(run.read.tag)


def ghosts_on(found: StandIns, ghosts: list[PoolGhost], extents: dict[PageKey, int]) -> Iterator[ContentEvent]:
    """Ghosts of whole pools, on every stand-in that they may touch. `extents`: tokens per page of each that has cells."""
    for ghost in ghosts:
        for key, tokens in extents.items():
            lo, hi = found.bounds[key]
            if key[0] == ghost.worker and ghost.pool in (None, key[1]) and ghost.hi > lo and ghost.lo < hi:
                yield ContentEvent(key, "ghost", 0, tokens, ghost.lo, ghost.hi, reason=ghost.reason)


def lives_on(found: StandIns, lives: LifeTable, of_tiers: Lives) -> Iterator[tuple[PageKey, Life]]:
    """(stand-in, life) for every life that a verdict on it may ask for."""
    whole = {page: key for key, page in found.page_of.items() if found.tag_of[key] == WHOLE}
    named = [(key, tag) for key, tags in found.tags.items() if found.tag_of[key] != WHOLE for tag in sorted(tags)]
    asked = lives.get_all([tag for _, tag in named], [found.page_of[key] for key, _ in named])
    yield from ((key, life) for (key, _), life in zip(named, asked, strict=True) if life is not None)
    for (_, page), life in of_tiers.items():
        if page in whole:
            yield whole[page], life
    for place, table in lives.of_place.items():
        pages = [page[2] for page in whole if page[:2] == place]
        for row in np.flatnonzero(np.isin(table.columns.page, pages)).tolist() if pages else ():
            life = table.life(row)
            yield whole[life.page], life


def widened(event: ContentEvent, extents: dict[PageKey, int]) -> ContentEvent:
    """A ghost of named pages, on all tokens of its page."""
    return replace(event, tok_hi=extents[event.page])
