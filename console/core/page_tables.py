"""Marks and allocations of an area of a pool's pages as tables, for pages, files and plain words.

Invariant: a table of an area holds all of it; what a picture keeps of it for want of room says how much is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from console.core.page_map import Area, Tenure, tenures_of
from console.core.page_marks import Marker
from console.core.sheet import Sheet

if TYPE_CHECKING:
    from console.core.snapshot import Snapshot

_TIME = pa.timestamp("us", tz="UTC")


def marks_sheet(markers: Sequence[Marker], left_out: int = 0) -> Sheet:
    """Foreign reads and late writes, in their order."""
    columns: dict[str, Any] = {
        "t": pa.array([m.t_us for m in markers], _TIME), "what": pa.array([m.kind for m in markers], pa.string()),
        "page": pa.array([m.page for m in markers], pa.int64()), "rid": pa.array([m.rid for m in markers], pa.string()),
        "donor_rid": pa.array([m.donor for m in markers], pa.string()), "incident": pa.array([m.incident for m in markers], pa.string()),
        "says": pa.array([m.words for m in markers], pa.string()),
    }  # fmt: skip
    return Sheet("marks", pa.table(columns), begins="t", left_out=left_out)


def allocations_sheet(tenures: Sequence[Tenure], left_out: int = 0) -> Sheet:
    """Who had which pages from when to when, in their order."""
    columns: dict[str, Any] = {
        "pages": pa.array([list(t.pages) for t in tenures], pa.list_(pa.int64())),
        "rid": pa.array([t.rid for t in tenures], pa.string()),
        "tenant": pa.array([t.tenant for t in tenures], pa.string()),
        "since": pa.array([t.start_us for t in tenures], _TIME),
        "until": pa.array([t.end_us for t in tenures], _TIME),
        "ended_by": pa.array([t.cause for t in tenures], pa.string()),
    }
    return Sheet("allocations", pa.table(columns), begins="since", ends="until", left_out=left_out)


def marks_of(snapshot: Snapshot, area: Area) -> Sheet:
    """Every mark of an area."""
    marks = snapshot.marks(area.key, area.pool)
    return marks_sheet(marks.inside(area.start_us, area.end_us, area.first_page, area.last_page))


def allocations_of(snapshot: Snapshot, area: Area) -> Sheet:
    """Every allocation of an area."""
    lives = snapshot.lives(area.key, area.pool)
    inside = lives.inside(area.start_us, area.end_us, area.first_page, area.last_page)
    return allocations_sheet(tenures_of(snapshot, area, inside, None)[0])
