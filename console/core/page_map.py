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
from console.core.lives import NONE, Life, PoolLives
from console.core.owners import OTHER
from console.core.readings import first_read_us
from forensics.rows import Row, WorkerKey
from forensics.verdict import Kind

if TYPE_CHECKING:
    from console.core.snapshot import Snapshot

MAX_ROWS, MAX_COLS, MAX_MARKERS, MAX_TENURES = 512, 600, 2000, 200
FREE, HELD, SHARED_RANK, FIRST_NAMED = 0, 1, 2, 3
"""Cell values: free, held, any tenant without a letter, and 3 + rank of a tenant with one."""
_BLOCK_PAGES = 8192
_PATCHES = (50, 20)
"""Across and down; with two kinds of marks no more than MAX_MARKERS."""
FOREIGN_READ, LATE_WRITE = "foreign read", "late write"


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
class Marker:
    """A foreign read (at the first pass that saw it) or a write that landed after its page's life had ended."""

    kind: str
    t_us: int
    page: int
    rid: str | None
    donor: str | None
    incident: str | None
    words: str


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
    end = max([last, *_landings(snapshot, key)])
    if lives.is_open and snapshot.data_us is not None:
        end = max(end, snapshot.data_us)
    return Area(key, pool, start, max(end, start + 1), 0, _last_page(snapshot, key, pool))


def _landings(snapshot: Snapshot, key: WorkerKey) -> list[int]:
    """When remote writes to a worker were done, by the movers' clocks."""
    rows = (row for worker in snapshot.workers.values() for row in worker.transfers)
    return [row["t"] for row in rows if row["op"] == "done" and row["peer"] == key[0]]


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


def _last_page(snapshot: Snapshot, key: WorkerKey, pool: str) -> int:
    sizes = [
        row["pool_pages"] or 0
        for row in snapshot.ledger.tables["workers"].to_pylist()
        if row["op"] == "config" and row["pool"] == pool and (row["worker"], row["epoch"]) == key
    ]
    return max([snapshot.lives(key, pool).highest_page, *(size - 1 for size in sizes)])


def page_map(snapshot: Snapshot, area: Area, *, rows: int = MAX_ROWS, cols: int = MAX_COLS) -> PageMap:
    """Bin an area into at most `rows` x `cols` cells (never more than MAX_ROWS x MAX_COLS)."""
    rows, cols = min(rows, MAX_ROWS), min(cols, MAX_COLS)
    pages = area.last_page - area.first_page + 1
    per_row = -(-pages // rows)
    bin_us = (area.end_us - area.start_us) / cols
    inside = snapshot.lives(area.key, area.pool).inside(area.start_us, area.end_us, area.first_page, area.last_page)
    cells = _cells(area, inside, _ranks(snapshot, area.key, inside), per_row, cols)
    markers = sorted(
        (m for m in _pool_marks(snapshot, area) if _shown(m, area)),
        key=lambda m: (m.t_us, m.page, m.kind),
    )
    kept = thinned(markers, area)
    tenures, tenures_total = _tenures(snapshot, area, inside)
    return PageMap(
        area, per_row, bin_us, cells, kept, len(markers) - len(kept),
        tenures, tenures_total,
    )  # fmt: skip


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


def _shown(marker: Marker, area: Area) -> bool:
    return area.start_us <= marker.t_us <= area.end_us and area.first_page <= marker.page <= area.last_page


def _ranks(snapshot: Snapshot, key: WorkerKey, lives: PoolLives) -> np.ndarray:
    """The cell value of every life's owner, uint8."""
    requests, place = np.unique(lives.req, return_inverse=True)
    found = np.empty(len(requests), np.uint8)
    for i, req in enumerate(requests.tolist()):
        owner = snapshot.owners.of(snapshot.tenant_of(key, None if req == NONE else req))
        found[i] = SHARED_RANK if owner.rank == OTHER.rank else FIRST_NAMED + owner.rank
    return found[place]


def _cells(area: Area, lives: PoolLives, ranks: np.ndarray, per_row: int, cols: int) -> np.ndarray:
    pages = area.last_page - area.first_page + 1
    block = max(_BLOCK_PAGES // per_row, 1) * per_row
    parts = []
    for first in range(0, pages, block):
        height = min(block, pages - first)
        low, high = np.searchsorted(lives.page, [area.first_page + first, area.first_page + first + height])
        grid = np.zeros((-(-height // per_row) * per_row, cols), np.uint8)
        if low < high:
            grid[:height] = _grid(area, lives, ranks, slice(int(low), int(high)), first, height, cols)
        parts.append(_majority(grid, per_row))
    return np.concatenate(parts)


def _grid(
    area: Area, lives: PoolLives, ranks: np.ndarray, chosen: slice, first: int, height: int, cols: int
) -> np.ndarray:
    """Cells of single pages: in every bin the life that began last, if it touches the bin."""
    scale = cols / (area.end_us - area.start_us)

    def column(t: np.ndarray) -> np.ndarray:
        return np.clip(np.floor((t - area.start_us) * scale).astype(np.int64), 0, cols - 1)

    ended, held = lives.end_us[chosen], lives.held_us[chosen]
    begin, end = column(lives.start_us[chosen]), np.where(ended == NONE, cols - 1, column(ended))
    latest = np.zeros((height, cols), np.int32)  # lives are counted from 1, since 0 is none
    row = lives.page[chosen] - area.first_page - first
    np.maximum.at(latest, (row, begin), np.arange(1, len(row) + 1, dtype=np.int32))
    latest = np.maximum.accumulate(latest, axis=1)
    at, bins = np.maximum(latest - 1, 0), np.arange(cols)
    touches = (latest > 0) & (bins <= end[at])
    cells = np.where(touches, ranks[chosen][at], FREE)
    is_held = touches & (held[at] != NONE) & (bins >= column(held)[at])
    return np.where(is_held, HELD, cells).astype(np.uint8)


def _majority(grid: np.ndarray, per_row: int) -> np.ndarray:
    """The commonest value of each group of `per_row` pages; the higher value where two are as common."""
    if per_row == 1:
        return grid
    groups = grid.reshape(-1, per_row, grid.shape[1])
    values = np.unique(grid)
    counts = np.stack([(groups == value).sum(axis=1) for value in values[::-1]])
    return np.asarray(values[::-1][counts.argmax(axis=0)], np.uint8)


def _pool_marks(snapshot: Snapshot, area: Area) -> tuple[Marker, ...]:
    """All marks of the area's pool, whatever its time and pages; found once for a snapshot."""
    pool = area.key, area.pool
    if pool not in snapshot.pool_marks:
        snapshot.pool_marks[pool] = (*_reads(snapshot, area), *_late_writes(snapshot, area))
    return snapshot.pool_marks[pool]


def _reads(snapshot: Snapshot, area: Area) -> list[Marker]:
    found = []
    for incident in snapshot.incidents:
        for reading in snapshot.readings(incident):
            if (reading.worker, reading.epoch, reading.pool) != (*area.key, area.pool):
                continue
            for finding in reading.findings:
                t = first_read_us(finding, snapshot.workers) if finding["kind"] == Kind.FOREIGN else None
                if t is not None:
                    found += [_read(incident, finding, page, t) for page in finding["page_list"] or ()]
    return found


def _read(incident: Incident, finding: Row, page: int, t: int) -> Marker:
    step = "" if finding["first_step"] is None else f", first step {finding['first_step']}"
    words = f"{finding['proof']}, {finding['mechanism']}{step}"
    return Marker(FOREIGN_READ, t, page, finding["rid"], finding["donor_rid"], incident.id, words)


def _late_writes(snapshot: Snapshot, area: Area) -> list[Marker]:
    lives = snapshot.lives(area.key, area.pool)
    ends, found = lives.first_ends, []
    for key, worker in snapshot.workers.items():
        for row in worker.transfers:
            if (
                row["op"] != "done"
                or row["dst_pool"] not in (None, area.pool)
                or row["peer"] not in (None, area.key[0])
            ):
                continue
            if not _may_be_late(snapshot, area, key, row, ends.get(row["dst_tag"])):
                continue
            for page in row["dst_pages"] or ():
                life = lives.of_tag(page, row["dst_tag"])
                if life is not None and life.end_seq is not None:
                    marker = _late_write(snapshot, area, key, row, life)
                    found += [marker] if marker else []
    return found


def _may_be_late(snapshot: Snapshot, area: Area, key: WorkerKey, row: Row, ends: tuple[int, int] | None) -> bool:
    """Whether a write can be late for any page of its grant. `ends`: when the first of its lives ended, seq and us."""
    if ends is None:
        return False
    bounds = snapshot.order.convert(row["t"], key, area.key) or (row["t"], row["t"])
    return bounds[0] > ends[1] or snapshot.order.known(area.key, key, row["seq"]) >= ends[0]


def _late_write(snapshot: Snapshot, area: Area, key: WorkerKey, row: Row, life: Life) -> Marker | None:
    order = snapshot.order
    if life.end_seq is None or life.end_us is None:
        return None
    bounds = order.convert(row["t"], key, area.key) or (row["t"], row["t"])
    proved = order.known(area.key, key, row["seq"]) >= life.end_seq
    if not proved and bounds[0] <= life.end_us:
        return None
    t = (bounds[0] + bounds[1]) // 2
    owner = snapshot.rid_of(area.key, life.req)
    under = next((other for other in snapshot.lives(area.key, area.pool).of_page(life.page)
                  if other.start_us <= t and (other.end_us is None or t < other.end_us)), None)  # fmt: skip
    reader = snapshot.rid_of(area.key, under.req) if under else None
    words = "proved" if proved else "inferred from clocks"
    return Marker(LATE_WRITE, t, life.page, reader, owner, None, f"{words}, by {row['worker']}")


def _tenures(snapshot: Snapshot, area: Area, lives: PoolLives) -> tuple[tuple[Tenure, ...], int]:
    """The first MAX_TENURES allocations, by when they began, and how many there are."""
    columns = {"tag": lives.tag, "end": lives.end_seq, "cause": lives.cause, "began": lives.start_seq}
    groups = pa.table(columns).group_by(["tag", "end", "cause"]).aggregate([("began", "min")])
    firsts = groups.sort_by([("began_min", "ascending"), ("end", "ascending")]).slice(0, MAX_TENURES).to_pylist()
    lives = lives.where(np.isin(lives.tag, [group["tag"] for group in firsts]))
    tenures = []
    for group in firsts:
        mine = np.flatnonzero(
            (lives.tag == group["tag"]) & (lives.end_seq == group["end"]) & (lives.cause == group["cause"])
        )
        life = lives.life(int(mine[0]))
        rid, tenant = snapshot.rid_of(area.key, life.req), snapshot.tenant_of(area.key, life.req)
        pages = tuple(sorted(lives.page[mine].tolist()))
        tenures.append(Tenure(pages, rid, tenant, life.start_us, life.end_us, life.cause))
    return tuple(tenures), len(groups)
