"""Marks of one pool: where pages were read that were not the reader's, and where writes landed too late.

Invariant: a mark is a finding of the verdict or a write of the record; how far one zooms decides nothing about them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from console.core.incidents import Incident
from console.core.lives import Life
from console.core.readings import first_read_us
from forensics.rows import Row, WorkerKey
from forensics.verdict import Kind

if TYPE_CHECKING:
    from console.core.snapshot import Snapshot

FOREIGN_READ, LATE_WRITE = "foreign read", "late write"


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
class PoolMarks:
    """All marks of a pool, by time, then page, then kind; times in its worker's clock."""

    markers: tuple[Marker, ...]

    def inside(self, start_us: int, end_us: int, first_page: int, last_page: int) -> Sequence[Marker]:
        """Those of pages [first, last] in [start, end]."""
        low = bisect_left(self.markers, start_us, key=lambda m: m.t_us)
        high = bisect_right(self.markers, end_us, key=lambda m: m.t_us)
        return [m for m in self.markers[low:high] if first_page <= m.page <= last_page]


def pool_marks(snapshot: Snapshot, key: WorkerKey, pool: str) -> PoolMarks:
    """The marks of one pool of one worker epoch."""
    found = [*_reads(snapshot, key, pool), *_late_writes(snapshot, key, pool)]
    return PoolMarks(tuple(sorted(found, key=lambda m: (m.t_us, m.page, m.kind))))


def _reads(snapshot: Snapshot, key: WorkerKey, pool: str) -> list[Marker]:
    found = []
    for incident in snapshot.incidents:
        for reading in snapshot.readings(incident):
            if (reading.worker, reading.epoch, reading.pool) != (*key, pool):
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


def _late_writes(snapshot: Snapshot, of: WorkerKey, pool: str) -> list[Marker]:
    lives = snapshot.lives(of, pool)
    ends, found = lives.first_ends, []
    for key, row in (*snapshot.landings.get(of[0], ()), *snapshot.landings.get(None, ())):
        if row["dst_pool"] not in (None, pool) or not _may_be_late(snapshot, of, key, row, ends.get(row["dst_tag"])):
            continue
        for page in row["dst_pages"] or ():
            life = lives.of_tag(page, row["dst_tag"])
            if life is not None and life.end_seq is not None:
                marker = _late_write(snapshot, (of, pool), key, row, life)
                found += [marker] if marker else []
    return found


def _may_be_late(snapshot: Snapshot, of: WorkerKey, key: WorkerKey, row: Row, ends: tuple[int, int] | None) -> bool:
    """Whether a write can be late for any page of its grant. `ends`: when the first of its lives ended, seq and us."""
    if ends is None:
        return False
    bounds = snapshot.order.convert(row["t"], key, of) or (row["t"], row["t"])
    return bounds[0] > ends[1] or snapshot.order.known(of, key, row["seq"]) >= ends[0]


def _late_write(
    snapshot: Snapshot, where: tuple[WorkerKey, str], key: WorkerKey, row: Row, life: Life
) -> Marker | None:
    of, pool = where
    if life.end_seq is None or life.end_us is None:
        return None
    bounds = snapshot.order.convert(row["t"], key, of) or (row["t"], row["t"])
    proved = snapshot.order.known(of, key, row["seq"]) >= life.end_seq
    if not proved and bounds[0] <= life.end_us:
        return None
    t = (bounds[0] + bounds[1]) // 2
    owner = snapshot.rid_of(of, life.req)
    under = next((other for other in snapshot.lives(of, pool).of_page(life.page)
                  if other.start_us <= t and (other.end_us is None or t < other.end_us)), None)  # fmt: skip
    reader = snapshot.rid_of(of, under.req) if under else None
    words = "proved" if proved else "inferred from clocks"
    return Marker(LATE_WRITE, t, life.page, reader, owner, None, f"{words}, by {row['worker']}")
