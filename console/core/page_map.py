"""Page ownership in space and time, binned: who had which page when, and where foreign bytes were written and read.

Invariant: a bin shows the latest life that touched it, so a life shorter than a bin is never lost; foreign reads and
writes are marks beside the cells, so that no zoom can average them away.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from console.core.incidents import Incident
from console.core.lives import NONE, PoolLives
from console.core.owners import OTHER
from console.core.page_marks import Marker
from forensics.rows import WorkerKey

if TYPE_CHECKING:
    from console.core.snapshot import Snapshot

MAX_ROWS, MAX_COLS, MAX_MARKERS, MAX_TENURES = 512, 600, 2000, 200
FREE, HELD, SHARED_RANK, FIRST_NAMED = 0, 1, 2, 3
"""Cell values: free, held, any tenant without a letter, and 3 + rank of a tenant with one."""
_PATCHES = (50, 20)
"""Across and down; with two kinds of marks no more than MAX_MARKERS."""


@dataclass(frozen=True)
class Area:
    """What to draw: a pool, a time range [start_us, end_us] in its worker's clock, pages [first_page, last_page]."""

    key: WorkerKey
    pool: str
    start_us: int
    end_us: int
    first_page: int
    last_page: int


@dataclass(frozen=True)
class Tenure:
    """One allocation, for the table: pages of one request under one tag."""

    pages: tuple[int, ...]
    rid: str | None
    tenant: str | None
    start_us: int
    end_us: int | None
    cause: str | None


@dataclass(frozen=True)
class PageMap:
    """`cells` uint8 [rows, cols].

    Row i begins at page `area.first_page + i * pages_per_row`, column j at `area.start_us + j * bin_us`.
    """

    area: Area
    pages_per_row: int
    bin_us: float
    cells: np.ndarray
    markers: tuple[Marker, ...]
    markers_left_out: int
    tenures: tuple[Tenure, ...]
    tenures_total: int


def whole_area(snapshot: Snapshot, key: WorkerKey, pool: str) -> Area:
    """All pages and all time of a pool."""
    lives = snapshot.lives(key, pool)
    start, last = lives.span_us or (0, 0)
    end = max([last, *(row["t"] for _, row in snapshot.landings.get(key[0], ()))])
    if lives.is_open and snapshot.data_us is not None:
        end = max(end, snapshot.data_us)
    highest = max(lives.highest_page, snapshot.pool_pages.get((*key, pool), 0) - 1)
    return Area(key, pool, start, max(end, start + 1), 0, highest)


def incident_area(snapshot: Snapshot, incident: Incident, margin_us: int = 120_000_000) -> Area | None:
    """The pool of its gravest response from `margin_us` before it was first seen to as much after, within the record."""
    readings = (r for r in snapshot.readings(incident) if r.pool and (r.worker, r.epoch) in snapshot.workers)
    gravest = next(readings, None)
    if gravest is None:
        return None
    whole = whole_area(snapshot, (gravest.worker, gravest.epoch), gravest.pool)
    if incident.first_seen_us is None or incident.last_seen_us is None:
        return whole
    start = max(whole.start_us, incident.first_seen_us - margin_us)
    # An incident's times are when its responses began; what was read was read later.
    last = max([incident.last_seen_us, *(r.seen_us for r in snapshot.readings(incident) if r.seen_us is not None)])
    end = min(whole.end_us, last + margin_us)
    return whole if start >= end else Area(whole.key, whole.pool, start, end, whole.first_page, whole.last_page)


def page_map(snapshot: Snapshot, area: Area, *, rows: int = MAX_ROWS, cols: int = MAX_COLS) -> PageMap:
    """Bin an area into at most `rows` x `cols` cells (never more than MAX_ROWS x MAX_COLS)."""
    rows, cols = min(rows, MAX_ROWS), min(cols, MAX_COLS)
    pages = area.last_page - area.first_page + 1
    per_row = -(-pages // rows)
    bin_us = (area.end_us - area.start_us) / cols
    inside = snapshot.lives(area.key, area.pool).inside(area.start_us, area.end_us, area.first_page, area.last_page)
    cells = _cells(area, inside, _ranks(snapshot, area.key, inside), per_row, cols)
    markers = snapshot.marks(area.key, area.pool).inside(area.start_us, area.end_us, area.first_page, area.last_page)
    kept = thinned(markers, area)
    tenures, tenures_total = tenures_of(snapshot, area, inside, MAX_TENURES)
    return PageMap(
        area, per_row, bin_us, cells, kept, len(markers) - len(kept),
        tenures, tenures_total,
    )  # fmt: skip


def mark_counts(snapshot: Snapshot, drawn: PageMap, kind: str) -> np.ndarray:
    """How many marks of a kind lie in each cell, uint32 [rows, cols]; all count, also those left out of `markers`."""
    area, (rows, cols) = drawn.area, drawn.cells.shape
    counts = np.zeros((rows, cols), np.uint32)
    marks = snapshot.marks(area.key, area.pool).inside(area.start_us, area.end_us, area.first_page, area.last_page)
    mine = [(m.page, m.t_us) for m in marks if m.kind == kind]
    if mine:
        pages, times = np.array(mine, np.int64).T
        row = (pages - area.first_page) // drawn.pages_per_row
        col = np.clip(np.floor((times - area.start_us) / drawn.bin_us).astype(np.int64), 0, cols - 1)
        np.add.at(counts, (row, col), 1)
    return counts


def thinned(markers: Sequence[Marker], area: Area) -> tuple[Marker, ...]:
    """All markers, or where they are more than MAX_MARKERS the first of each kind in every patch of the area, so that none
    that stands alone is lost. In the order given.
    """
    if len(markers) <= MAX_MARKERS:
        return tuple(markers)
    across, down = _PATCHES
    lasts, pages = area.end_us - area.start_us + 1, area.last_page - area.first_page + 1
    first: dict[tuple[str, int, int], Marker] = {}
    for marker in markers:
        column = (marker.t_us - area.start_us) * across // lasts
        first.setdefault((marker.kind, column, (marker.page - area.first_page) * down // pages), marker)
    return tuple(first.values())


def _ranks(snapshot: Snapshot, key: WorkerKey, lives: PoolLives) -> np.ndarray:
    """The cell value of every life's owner, uint8."""
    requests, place = np.unique(lives.req, return_inverse=True)
    found = np.empty(len(requests), np.uint8)
    for i, req in enumerate(requests.tolist()):
        owner = snapshot.owners.of(snapshot.tenant_of(key, None if req == NONE else req))
        found[i] = SHARED_RANK if owner.rank == OTHER.rank else FIRST_NAMED + owner.rank
    return found[place]


def _cells(area: Area, lives: PoolLives, ranks: np.ndarray, per_row: int, cols: int) -> np.ndarray:
    """The commonest value of each group of `per_row` pages, uint8 [rows, cols]; the higher one where two are as common."""
    rows = -(-(area.last_page - area.first_page + 1) // per_row)
    row, value, begin, after = _runs(area, lives, ranks, per_row, cols)
    cells = np.zeros((rows, cols), np.uint8)
    most, taken = (np.zeros((rows, cols), np.int32) for _ in range(2))
    for one in np.unique(value)[::-1]:
        mine = value == one
        edges = np.zeros(rows * (cols + 1), np.int32)
        np.add.at(edges, row[mine] * (cols + 1) + begin[mine], np.int32(1))
        np.subtract.at(edges, row[mine] * (cols + 1) + after[mine], np.int32(1))
        counts = edges.reshape(rows, cols + 1)[:, :cols].cumsum(axis=1, dtype=np.int32)
        cells[counts > most] = one
        np.maximum(most, counts, out=most)
        taken += counts
    cells[per_row - taken > most] = FREE
    return cells


def _runs(
    area: Area, lives: PoolLives, ranks: np.ndarray, per_row: int, cols: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(row, value, begin, after) of what is drawn: a page shows `value` in the columns [begin, after).

    In every bin that is the life that began last, if it touches the bin, and held from its hold on.
    """
    scale = cols / (area.end_us - area.start_us)

    def column(t: np.ndarray) -> np.ndarray:
        return np.clip(np.floor((t - area.start_us) * scale).astype(np.int64), 0, cols - 1)

    begin, page = column(lives.start_us), lives.page
    after = np.where(lives.end_us == NONE, cols, column(lives.end_us) + 1)
    # The first column in which a later life of the same page has begun: a clock may go back, so any of them.
    first = np.minimum.accumulate((page * cols + begin)[::-1])[::-1]
    same = np.flatnonzero(page[1:] == page[:-1])
    after[same] = np.minimum(after[same], (first[1:] - page[1:] * cols)[same])
    held = np.where(lives.held_us == NONE, cols, column(lives.held_us))
    row = (page - area.first_page) // per_row
    owned, kept = begin < np.minimum(after, held), np.maximum(begin, held) < after
    return (
        np.concatenate([row[owned], row[kept]]),
        np.concatenate([ranks[owned], np.full(kept.sum(), HELD, np.uint8)]),
        np.concatenate([begin[owned], np.maximum(begin, held)[kept]]),
        np.concatenate([np.minimum(after, held)[owned], after[kept]]),
    )


def tenures_of(snapshot: Snapshot, area: Area, lives: PoolLives, most: int | None) -> tuple[tuple[Tenure, ...], int]:
    """The allocations of these lives by when they began, `most` at most, and how many there are."""
    columns = {"tag": lives.tag, "end": lives.end_seq, "cause": lives.cause, "began": lives.start_seq}
    numbered = pa.table(columns | {"at": np.arange(len(lives.tag))})
    groups = numbered.group_by(["tag", "end", "cause"]).aggregate([("began", "min"), ("at", "list")])
    firsts = groups.sort_by([("began_min", "ascending"), ("end", "ascending")]).slice(0, most)
    tenures = []
    for mine in firsts["at_list"].to_pylist():
        life = lives.life(min(mine))
        rid, tenant = snapshot.rid_of(area.key, life.req), snapshot.tenant_of(area.key, life.req)
        pages = tuple(sorted(lives.page[mine].tolist()))
        tenures.append(Tenure(pages, rid, tenant, life.start_us, life.end_us, life.cause))
    return tuple(tenures), len(groups)
