"""Lives of pages in one pool of one worker epoch, as its allocator recorded them, column by column.

Invariant: a life begins at a reserve or append and ends at the next free or reserve of the same page, whatever tag that
row believed in. Lives say who owned a page; what was in it is for `forensics` to say.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from forensics.rows import Row, WorkerRows, as_ints

Ints = NDArray[np.int64]
NONE = -1
"""Stands for a request that is not named, and for an end or a hold that has not come."""
_BEGINS, _FREES, _HOLDS = ("reserve", "append"), "free", "hold"
_ROW_BITS = 32


@dataclass(frozen=True)
class Life:
    """One page under one tag. Times in us of the worker's clock; ends are None while the life goes on."""

    page: int
    tag: int
    req: int | None
    pos: int
    start_seq: int
    start_us: int
    end_seq: int | None = None
    end_us: int | None = None
    cause: str | None = None
    held_us: int | None = None

    def covers(self, seq: int) -> bool:
        """Whether the life was going on at row `seq`."""
        return self.start_seq <= seq and (self.end_seq is None or seq < self.end_seq)


@dataclass(frozen=True)
class PoolLives:
    """All lives of a pool, int64 per life, by page and then in the order in which they began. `cause` indexes `causes`."""

    page: Ints
    tag: Ints
    req: Ints
    pos: Ints
    start_seq: Ints
    start_us: Ints
    end_seq: Ints
    end_us: Ints
    cause: Ints
    held_us: Ints
    causes: tuple[str | None, ...] = (None,)

    def __len__(self) -> int:
        return len(self.page)

    @property
    def highest_page(self) -> int:
        """The highest page that anybody had; 0 where nobody had any."""
        return int(self.page[-1]) if len(self) else 0

    @property
    def span_us(self) -> tuple[int, int] | None:
        """From the first beginning to the last beginning or end; None without lives."""
        return (int(self.start_us.min()), int(max(self.start_us.max(), self.end_us.max()))) if len(self) else None

    @property
    def is_open(self) -> bool:
        """Whether a life goes on."""
        return bool((self.end_seq == NONE).any())

    @cached_property
    def first_ends(self) -> dict[int, tuple[int, int]]:
        """By tag: the seq and the time (us) at which the first of its lives ended; without tags that go on whole."""
        ended = self.end_seq != NONE
        tags, place = np.unique(self.tag[ended], return_inverse=True)
        seqs, times = (np.full(len(tags), np.iinfo(np.int64).max) for _ in range(2))
        np.minimum.at(seqs, place, self.end_seq[ended])
        np.minimum.at(times, place, self.end_us[ended])
        return dict(zip(tags.tolist(), zip(seqs.tolist(), times.tolist(), strict=True), strict=True))

    def where(self, chosen: NDArray[np.bool_]) -> PoolLives:
        """Some of them."""
        return self._with({name: getattr(self, name)[chosen] for name in _COLUMNS})

    def _with(self, columns: dict[str, Ints]) -> PoolLives:
        return PoolLives(**columns, causes=self.causes)

    def inside(self, start_us: int, end_us: int, first_page: int, last_page: int) -> PoolLives:
        """Those of pages [first, last] that touch [start, end]."""
        low, high = np.searchsorted(self.page, [first_page, last_page + 1])
        of_pages = self._with({name: getattr(self, name)[low:high] for name in _COLUMNS})
        over = (of_pages.end_us != NONE) & (of_pages.end_us < start_us)
        return of_pages.where((of_pages.start_us <= end_us) & ~over)

    def life(self, at: int) -> Life:
        """One of them."""
        page, tag, req, pos, seq, t, end_seq, end_us, cause, held = (int(getattr(self, name)[at]) for name in _COLUMNS)
        ended = end_seq != NONE
        return Life(
            page, tag, None if req == NONE else req, pos, seq, t, end_seq if ended else None, end_us if ended else None,
            self.causes[cause], None if held == NONE else held,
        )  # fmt: skip

    def of_page(self, page: int) -> list[Life]:
        """The page's lives in order."""
        low, high = np.searchsorted(self.page, [page, page + 1])
        return [self.life(at) for at in range(int(low), int(high))]

    def at(self, page: int, seq: int) -> Life | None:
        """The life of the page at row `seq`."""
        return next((life for life in reversed(self.of_page(page)) if life.covers(seq)), None)

    def of_tag(self, page: int, tag: int) -> Life | None:
        """The page's life under `tag`."""
        low, high = np.searchsorted(self.page, [page, page + 1])
        found = np.flatnonzero(self.tag[low:high] == tag)
        return self.life(int(low + found[-1])) if len(found) else None


_COLUMNS = [column.name for column in fields(PoolLives) if column.name != "causes"]


def pool_lives(worker: WorkerRows, pool: str) -> PoolLives:
    """Read the lives of `pool` from the worker's `pages` rows; rows whose page list is lost are left out."""
    kept = (*_BEGINS, _FREES, _HOLDS)
    rows = [row for row in worker.pages if row["pool"] == pool and row["pages"] is not None and row["op"] in kept]
    if not rows:
        return PoolLives(**{name: np.empty(0, np.int64) for name in _COLUMNS}, causes=(None,))
    lists = [as_ints(row["pages"]) for row in rows]
    lengths = [len(pages) for pages in lists]
    page, row_of = np.concatenate(lists), np.repeat(np.arange(len(rows)), lengths)
    offset = np.concatenate([np.arange(n) for n in lengths])
    begins, holds = (np.array([row["op"] in ops for row in rows])[row_of] for ops in (_BEGINS, (_HOLDS,)))
    order = np.argsort(page << _ROW_BITS | row_of, kind="stable")
    order = order[~holds[order]]
    page_in, row_in, begins_in = page[order], row_of[order], begins[order]
    starts = np.flatnonzero(begins_in)
    after = np.minimum(starts + 1, len(order) - 1)
    ends = (starts + 1 < len(order)) & (page_in[after] == page_in[starts])
    causes = tuple(dict.fromkeys([None, *(row["cause"] for row in rows)]))
    of_row = {name: _column(rows, name) for name in ("tag", "req", "pos", "seq", "t")}
    of_row["cause"] = np.array([causes.index(row["cause"]) for row in rows], np.int64)
    start_row, end_row = row_in[starts], row_in[after]
    lived = PoolLives(
        page=page_in[starts], tag=of_row["tag"][start_row], req=of_row["req"][start_row],
        pos=np.maximum(of_row["pos"][start_row], 0) + offset[order][starts], start_seq=of_row["seq"][start_row],
        start_us=of_row["t"][start_row], end_seq=np.where(ends, of_row["seq"][end_row], NONE),
        end_us=np.where(ends, of_row["t"][end_row], NONE), cause=np.where(ends, of_row["cause"][end_row], 0),
        held_us=np.full(len(starts), NONE, np.int64), causes=causes,
    )  # fmt: skip
    _mark_held(
        lived, lived.page << _ROW_BITS | start_row, page[holds] << _ROW_BITS | row_of[holds], of_row["t"][row_of[holds]]
    )
    return lived


def _column(rows: list[Row], name: str) -> Ints:
    return np.array([NONE if row[name] is None else row[name] for row in rows], np.int64)


def _mark_held(lived: PoolLives, begun: Ints, held: Ints, t: Ints) -> None:
    """A hold is of the life that its page had last; keys are page and row."""
    if not len(lived):
        return
    at = np.searchsorted(begun, held) - 1
    known = (at >= 0) & (lived.page[np.maximum(at, 0)] == held >> _ROW_BITS)
    lived.held_us[at[known]] = t[known]
