"""Every life of a ledger, column by column: what `lives.py` says row by row, for many pages at a time.

Invariant: pages of which the record says nothing odd are gone through in bulk; for every other page the lives are those
of `lives.lives_of_pages`, and for the ordinary ones they would be the same.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, fields
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from forensics.lives import FENCES, FREED, POOL_RULES, RESERVED, TAKEN, Life, PageKey, is_of, lives_of_pages
from forensics.order import INF
from forensics.ranking import distinct, order_of, places, ranked
from forensics.rows import Ints, Row, WorkerKey, WorkerRows, as_ints

Place = tuple[WorkerKey, str]
"""(worker epoch, pool)."""
ENDS = (None, FREED, TAKEN, RESERVED)
NOBODY = -1
"""Stands for a request that no row names."""
UNTAGGED = -2
"""Stands for the tag of a row that names none."""
_PAGE_BITS = 32


@dataclass(frozen=True)
class Columns:
    """Lives of one place: int64 per life; `ended` indexes ENDS, `req` NOBODY where lost."""

    page: Ints
    tag: Ints
    req: Ints
    reserve_seq: Ints
    end_seq: Ints
    ended: Ints
    held: NDArray[np.bool_]

    def where(self, chosen: NDArray[np.bool_] | Ints | slice) -> Columns:
        """Some of them."""
        return Columns(*(getattr(self, name)[chosen] for name in _NAMES))


_NAMES = [column.name for column in fields(Columns)]


class LifeTable:
    """Lives by place; a life is found by its place, tag and page."""

    def __init__(self, workers: dict[WorkerKey, WorkerRows]) -> None:
        self.of_place: dict[Place, PlaceLives] = {}
        for key, worker in workers.items():
            by_pool: dict[str, list[Row]] = defaultdict(list)
            for row in worker.pages:
                if row["pages"] is not None:
                    by_pool[row["pool"]].append(row)
            for pool, rows in by_pool.items():
                lives = _lives_at((key, pool), worker, rows)
                lives.hold([row for row in rows if row["op"] == "hold" and row["tag"] is not None])
                self.of_place[key, pool] = lives
        tables = [lives.columns for lives in self.of_place.values()]
        self.columns = _joined(tables)
        """Of all places, one after the other."""
        bounds = [0, *accumulate(len(columns.page) for columns in tables)]
        self._begin = dict(zip(self.of_place, bounds, strict=False))
        for lives, first, last in zip(self.of_place.values(), bounds, bounds[1:], strict=False):
            lives.columns = self.columns.where(slice(first, last))

    def rows(self, place: Place, tags: Ints, pages: Ints) -> Ints:
        """The row in `columns` of the life of each (tag, page) of a place; -1 where there is none."""
        lives = self.of_place.get(place)
        if lives is None:
            return np.full(len(tags), -1, np.int64)
        found = lives.rows(tags, pages)
        return np.where(found < 0, found, found + self._begin[place])

    def get(self, tag: int | None, page: PageKey) -> Life | None:
        """The life of a page under a tag."""
        lives = self.of_place.get(page[:2])
        if lives is None:
            return None
        row = int(lives.rows(np.array([UNTAGGED if tag is None else tag]), np.array([page[2]]))[0])
        return lives.life(row) if row >= 0 else None

    def pages_of(self, tag: int) -> list[int]:
        """Pages that had a life under a tag, on any worker."""
        return [page for lives in self.of_place.values() for page in lives.pages_under(tag)]


class PlaceLives:
    """The lives of one place, sorted by (tag, page)."""

    def __init__(self, place: Place, columns: Columns) -> None:
        self.place = place
        self.tags, rank = ranked(columns.tag)
        keys = (rank << _PAGE_BITS) + columns.page
        order = order_of(keys)
        self._keys = keys[order]
        self.columns = columns.where(order)

    def rows(self, tags: Ints, pages: Ints) -> Ints:
        """The row of each (tag, page); -1 where there is none."""
        if not len(self._keys):
            return np.full(len(tags), -1, np.int64)
        rank = np.minimum(np.searchsorted(self.tags, tags), len(self.tags) - 1)
        wanted = (rank << _PAGE_BITS) + pages
        found = np.minimum(places(self._keys, wanted), len(self._keys) - 1)
        return np.where((self.tags[rank] == tags) & (self._keys[found] == wanted), found, -1)

    def twice(self) -> Ints:
        """Pages that began a life under one tag more than once."""
        keys = self._keys
        return distinct(keys[1:][keys[1:] == keys[:-1]] & ((1 << _PAGE_BITS) - 1))

    def hold(self, rows: list[Row]) -> None:
        """Mark the lives that `hold` rows name."""
        lists = [as_ints(row["pages"]) for row in rows]
        if lists:
            tags = np.repeat([row["tag"] for row in rows], [len(pages) for pages in lists])
            found = self.rows(tags, np.concatenate(lists))
            self.columns.held[found[found >= 0]] = True

    def life(self, row: int) -> Life:
        """One life."""
        c = self.columns
        req = int(c.req[row])
        page = (*self.place, int(c.page[row]))
        ended, held, tag = ENDS[int(c.ended[row])], bool(c.held[row]), int(c.tag[row])
        return Life(
            page, None if tag == UNTAGGED else tag, None if req == NOBODY else req, int(c.reserve_seq[row]), self.place[0],
            int(c.end_seq[row]), ended, held,
        )  # fmt: skip

    def pages_under(self, tag: int) -> list[int]:
        """Pages that had a life under a tag."""
        rank = int(np.searchsorted(self.tags, tag))
        if rank == len(self.tags) or self.tags[rank] != tag:
            return []
        first, last = np.searchsorted(self._keys, [rank << _PAGE_BITS, (rank + 1) << _PAGE_BITS])
        return self.columns.page[first:last].tolist()


def _lives_at(place: Place, worker: WorkerRows, rows: list[Row]) -> PlaceLives:
    ordinary = _ordinary(rows)
    odd = _odd_pages(worker, rows)
    lives = PlaceLives(place, _told_apart(place, worker, ordinary, odd))
    twice = lives.twice()
    return PlaceLives(place, _told_apart(place, worker, ordinary, np.union1d(odd, twice))) if len(twice) else lives


def _told_apart(place: Place, worker: WorkerRows, ordinary: Columns, odd: Ints) -> Columns:
    """Ordinary lives, those of `odd` pages row by row."""
    if not len(odd):
        return ordinary
    ordinary = ordinary.where(~np.isin(ordinary.page, odd))
    return _joined([ordinary, _of_lives(list(lives_of_pages(worker, place[1], odd).values()))])


def _joined(tables: list[Columns]) -> Columns:
    none = _of_lives([])
    return Columns(*(np.concatenate([getattr(none, n), *(getattr(one, n) for one in tables)]) for n in _NAMES))


def _of_lives(lives: list[Life]) -> Columns:
    rows = [
        (
            life.page[2], UNTAGGED if life.tag is None else life.tag, NOBODY if life.req is None else life.req,
            life.reserve_seq, life.end_seq, ENDS.index(life.ended),
        )
        for life in lives
    ]  # fmt: skip
    page, tag, req, reserve_seq, end_seq, ended = np.array(rows, np.int64).reshape(-1, 6).T
    return Columns(page, tag, req, reserve_seq, end_seq, ended, np.array([life.held for life in lives], bool))


def _begins(row: Row) -> bool:
    return row["op"] in ("reserve", "append")


def _odd_pages(worker: WorkerRows, rows: list[Row]) -> Ints:
    """Pages with a life whose beginning is not on record where a row speaks of it, or whose request is not."""
    begun: dict[int, Row] = {}
    odd: list[Ints] = []
    for row in rows:
        pages, tag = as_ints(row["pages"]), row["tag"]
        if _begins(row):
            if tag is None or tag in begun or row["req"] is None or row["req"] < 0:
                odd.append(pages)
            begun[tag] = row
        elif row["op"] != "free" and tag is not None:
            if tag in begun:
                strange = outside(pages, as_ints(begun[tag]["pages"]))
                odd += [strange] if len(strange) and is_of(tag, worker) else []
            elif is_of(tag, worker):
                odd.append(pages)
    return distinct(np.concatenate([np.empty(0, np.int64), *odd]))


def outside(pages: Ints, known: Ints) -> Ints:
    """Those of `pages` that are not among `known`; in nearly every row they are a slice of it."""
    if not len(pages) or np.array_equal(known, pages):
        return pages[:0]
    at = np.flatnonzero(known == pages[0])
    if len(at) and np.array_equal(known[at[0] : at[0] + len(pages)], pages):
        return pages[:0]
    return pages[~np.isin(pages, known)]


def _ordinary(rows: list[Row]) -> Columns:
    """From each reserve to the next free or reserve of its page."""
    changes = [row for row in rows if _begins(row) or row["op"] == "free"]
    lists = [as_ints(row["pages"]) for row in changes]
    pages = np.concatenate([np.empty(0, np.int64), *lists])
    row_of = np.repeat(np.arange(len(changes)), [len(one) for one in lists])
    order = order_of(pages)
    pages, row_of = pages[order], row_of[order]
    begins = np.array([_begins(row) for row in changes], bool)
    seq, req, tag = (np.array([_number(row[name]) for row in changes], np.int64) for name in ("seq", "req", "tag"))
    start = np.flatnonzero(begins[row_of])
    following = np.minimum(start + 1, max(len(pages) - 1, 0))
    has_end = (following > start) & (pages[following] == pages[start])
    begun, ended_by = row_of[start], row_of[following]
    freed = has_end & ~begins[ended_by]
    by_rule = np.array([row["cause"] in POOL_RULES for row in changes], bool)
    fenced = np.array([row["op"] == "free" and row["cause"] in FENCES for row in changes], bool)
    another = (tag[ended_by] != NOBODY) & (tag[ended_by] != tag[begun])
    another |= (req[ended_by] != NOBODY) & ~by_rule[ended_by] & (req[ended_by] != req[begun])
    how = np.where(freed, np.where(another, ENDS.index(TAKEN), ENDS.index(FREED)), ENDS.index(RESERVED))
    return Columns(
        pages[start], tag[begun], req[begun], seq[begun], np.where(has_end, seq[ended_by], INF),
        np.where(has_end, how, 0), freed & fenced[ended_by],
    )  # fmt: skip


def _number(value: int | None) -> int:
    return NOBODY if value is None else value
