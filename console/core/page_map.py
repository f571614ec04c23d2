"""Page ownership in space and time, binned: who had which page when, and where foreign bytes were written and read.

Invariant: a bin shows the latest life that touched it, so a life shorter than a bin is never lost; foreign reads and
writes are marks beside the cells, so that no zoom can average them away.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from console.core.incidents import Incident
from console.core.lives import Life
from console.core.owners import OTHER
from console.core.readings import first_read_us
from console.core.snapshot import Snapshot
from forensics.rows import Row, WorkerKey
from forensics.verdict import Kind

MAX_ROWS, MAX_COLS, MAX_MARKERS, MAX_TENURES = 512, 600, 2000, 200
FREE, HELD, SHARED_RANK, FIRST_NAMED = 0, 1, 2, 3
"""Cell values: free, held, any tenant without a letter, and 3 + rank of a tenant with one."""
_BLOCK_PAGES = 8192
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
    starts = [life.start_us for life in lives.lives]
    ends = [life.end_us or life.start_us for life in lives.lives] + _landings(snapshot, key)
    still = any(life.end_us is None for life in lives.lives)
    end = max(ends, default=0)
    if still and snapshot.data_us is not None:
        end = max(end, snapshot.data_us)
    return Area(
        key, pool, min(starts, default=0), max(end, min(starts, default=0) + 1), 0, _last_page(snapshot, key, pool)
    )


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
    inside = [life for life in snapshot.lives(area.key, area.pool).lives if _touches(life, area)]
    ranks = _ranks(snapshot, area.key, inside)
    cells = _cells(area, inside, ranks, per_row, cols)
    markers = sorted(
        (m for m in (*_reads(snapshot, area), *_late_writes(snapshot, area)) if _shown(m, area)),
        key=lambda m: (m.t_us, m.page, m.kind),
    )
    tenures = _tenures(snapshot, area, inside)
    return PageMap(
        area, per_row, bin_us, cells, tuple(markers[:MAX_MARKERS]), max(len(markers) - MAX_MARKERS, 0),
        tuple(tenures[:MAX_TENURES]), len(tenures),
    )  # fmt: skip


def _touches(life: Life, area: Area) -> bool:
    in_time = life.start_us <= area.end_us and (life.end_us is None or life.end_us >= area.start_us)
    return in_time and area.first_page <= life.page <= area.last_page


def _shown(marker: Marker, area: Area) -> bool:
    return area.start_us <= marker.t_us <= area.end_us and area.first_page <= marker.page <= area.last_page


def _ranks(snapshot: Snapshot, key: WorkerKey, lives: list[Life]) -> dict[int | None, int]:
    found = {}
    for req in {life.req for life in lives}:
        owner = snapshot.owners.of(snapshot.tenant_of(key, req))
        found[req] = SHARED_RANK if owner.rank == OTHER.rank else FIRST_NAMED + owner.rank
    return found


def _cells(area: Area, lives: list[Life], ranks: dict[int | None, int], per_row: int, cols: int) -> np.ndarray:
    scale = cols / (area.end_us - area.start_us)
    pages = area.last_page - area.first_page + 1
    block = max(_BLOCK_PAGES // per_row, 1) * per_row
    by_block: dict[int, list[Life]] = {}
    for life in lives:
        by_block.setdefault((life.page - area.first_page) // block, []).append(life)
    parts = []
    for first in range(0, pages, block):
        height = min(block, pages - first)
        grid = np.zeros((-(-height // per_row) * per_row, cols), np.uint8)
        for life in by_block.get(first // block, []):
            row = life.page - area.first_page - first
            start = max(int((life.start_us - area.start_us) * scale), 0)
            end = cols - 1 if life.end_us is None else min(int((life.end_us - area.start_us) * scale), cols - 1)
            grid[row, min(start, cols - 1) : end + 1] = ranks[life.req]
            if life.held_us is not None:
                grid[row, max(int((life.held_us - area.start_us) * scale), 0) : end + 1] = HELD
        parts.append(_majority(grid, per_row))
    return np.concatenate(parts)


def _majority(grid: np.ndarray, per_row: int) -> np.ndarray:
    """The commonest value of each group of `per_row` pages; the higher value where two are as common."""
    if per_row == 1:
        return grid
    groups = grid.reshape(-1, per_row, grid.shape[1])
    values = np.unique(grid)
    counts = np.stack([(groups == value).sum(axis=1) for value in values[::-1]])
    return np.asarray(values[::-1][counts.argmax(axis=0)], np.uint8)


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
    found = []
    for key, worker in snapshot.workers.items():
        for row in worker.transfers:
            if (
                row["op"] != "done"
                or row["dst_pool"] not in (None, area.pool)
                or row["peer"] not in (None, area.key[0])
            ):
                continue
            for page in row["dst_pages"] or ():
                life = lives.of_tag(page, row["dst_tag"])
                if life is not None and life.end_seq is not None:
                    marker = _late_write(snapshot, area, key, row, life)
                    found += [marker] if marker else []
    return found


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


def _tenures(snapshot: Snapshot, area: Area, lives: list[Life]) -> list[Tenure]:
    by_tag: dict[tuple[int, int | None, str | None], list[Life]] = {}
    for life in lives:
        by_tag.setdefault((life.tag, life.end_seq, life.cause), []).append(life)
    return [
        Tenure(
            tuple(sorted(life.page for life in group)), snapshot.rid_of(area.key, group[0].req),
            snapshot.tenant_of(area.key, group[0].req), group[0].start_us, group[0].end_us, group[0].cause,
        )
        for group in by_tag.values()
    ]  # fmt: skip
