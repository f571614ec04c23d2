"""Lives of pages: who owned a page under which tag, from its reserve to its free or its next reserve.

Invariant: state follows the pages that a row names; what a row believed (its tag, its request) only tells how a
life ended.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.ledger.tag import split_tag
from forensics.order import INF
from forensics.rows import Ints, Row, WorkerKey, WorkerRows, as_ints

PageKey = tuple[WorkerKey, str, int]
"""(worker epoch, pool, page)."""

FREED, TAKEN, RESERVED = "freed", "taken", "reserved"
"""How a life ended: by its owner or the pool's own rules; by a free of somebody else; by a reserve without a free."""

FENCES = frozenset({"drained", "timeout", "lease"})
"""Causes of a free that only a page that was kept back can have."""
POOL_RULES = frozenset({"evict", "operator", "quarantine"})
"""Causes for which somebody else may free a page: the row then names who asked, not who owned."""


@dataclass
class Life:
    """One life of a page under a tag: (reserve_seq, end_seq]. `at` is the worker whose request `req` owned it."""

    page: PageKey
    tag: int | None
    req: int | None
    reserve_seq: int
    at: WorkerKey
    end_seq: int = INF
    ended: str | None = None
    held: bool = False

    def end(self, seq: int, how: str | None) -> None:
        """End at `seq`, unless it ended before."""
        if seq < self.end_seq:
            self.end_seq, self.ended = seq, how


Lives = dict[tuple[int | None, PageKey], Life]
"""By (tag, page)."""


def lives_of_pages(worker: WorkerRows, pool: str, wanted: Ints) -> Lives:
    """Every life of the pages `wanted`, row by row. A tag whose reserve row is lost is known from the rows that name it;
    its owner from its writes."""
    lives: Lives = {}
    current: dict[PageKey, Life] = {}
    for row in worker.pages:
        if row["pool"] == pool and row["pages"] is not None:
            pages = as_ints(row["pages"])
            for number in pages[np.isin(pages, wanted)].tolist():
                _apply(row, (worker.key, pool, number), worker, current, lives)
    return lives


def _apply(row: Row, page: PageKey, worker: WorkerRows, current: dict[PageKey, Life], lives: Lives) -> None:
    op, tag = row["op"], row["tag"]
    if op in ("reserve", "append"):
        if page in current:
            current[page].end(row["seq"], RESERVED)
        current[page] = lives[tag, page] = Life(page, tag, row["req"], row["seq"], page[0])
    elif op == "free":
        life = current.pop(page, None)
        if life is not None:
            life.held = life.held or row["cause"] in FENCES
            life.end(row["seq"], TAKEN if _by_another(row, life) else FREED)
    elif tag is not None:
        life = lives.get((tag, page))
        if life is None and is_of(tag, worker):
            life = Life(page, tag, None, split_tag(tag).seq, page[0])
            if page in current:
                current[page].end(life.reserve_seq, None)
            current[page] = lives[tag, page] = life
        if life is not None:
            _note(life, row)


def _by_another(free: Row, life: Life) -> bool:
    if free["tag"] is not None and free["tag"] != life.tag:
        return True
    known = free["req"] is not None and life.req is not None and free["cause"] not in POOL_RULES
    return known and free["req"] != life.req


def _note(life: Life, row: Row) -> None:
    if row["op"] == "hold":
        life.held = True
    elif row["op"] == "write" and life.req is None:
        life.req = row["req"]


def is_of(tag: int, worker: WorkerRows) -> bool:
    """Whether a tag was given out by this worker epoch."""
    parts = split_tag(tag)
    return parts.epoch == worker.key[1] and (worker.ordinal is None or parts.ordinal == worker.ordinal)
