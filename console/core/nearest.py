"""What lies nearest to a range in which there is nothing: what was before it, what came after it, and how to get there.

Invariant: nothing is said of a range that holds anything; of what a filter hides, nothing is said here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from console.core.looking import Looking
from console.core.page_map import whole_area
from console.core.page_view import pool_looked_at
from console.core.places import Place
from console.core.rollup import Rollup
from console.core.snapshot import Snapshot
from console.core.time_range import DEFAULT_MARGIN, Span, TimeRange, rfc3339
from console.core.times import duration, moment
from console.core.view import View

Intervals = tuple[np.ndarray, np.ndarray]
"""When things begin and end, us UTC, each in order; a moment does both at once."""


@dataclass(frozen=True)
class Nearest:
    """The last before the range `span` and the first after it, us UTC; None = there is none."""

    span: Span
    before_us: int | None
    after_us: int | None

    def words(self, earlier: str, later: str) -> str:
        """`nearest: 2026-09-21 14:13:21.366Z, 4m 02s before it ([ goes there)`. `earlier`, `later`: what goes there."""
        parts = []
        if self.before_us is not None and self.span.start_us is not None:
            ago = duration(self.span.start_us - self.before_us)
            parts.append(f"{moment(self.before_us)}, {ago} before it ({earlier} goes there)")
        if self.after_us is not None and self.span.end_us is not None:
            ahead = duration(self.after_us - self.span.end_us)
            parts.append(f"{moment(self.after_us)}, {ahead} after it ({later} goes there)")
        return f"nearest: {' and '.join(parts)}" if parts else ""


def nearest_to(span: Span, known: Intervals) -> Nearest | None:
    """None where something lies in the range, or nothing anywhere."""
    begins, ends = known
    started = len(begins) if span.end_us is None else int(np.searchsorted(begins, span.end_us, side="left"))
    ended = 0 if span.start_us is None else int(np.searchsorted(ends, span.start_us, side="left"))
    if started > ended or not len(begins):
        return None
    before = int(ends[ended - 1]) if ended else None
    return Nearest(span, before, int(begins[started]) if started < len(begins) else None)


def nearest_of(place: Place, known: Rollup, shown: Snapshot | None, at: Looking) -> Nearest | None:
    """Of what a screen draws. `known`: of all of the record."""
    if shown is None or at.span == Span() or place not in _KNOWN:
        return None
    return nearest_to(at.span, _KNOWN[place](known, shown, at.view))


def shifted(view: View, near: Nearest, by: int) -> View | None:
    """As much time as was looked at, with the nearest in it: the one before (`by` < 0) or after; None where there is none."""
    at, span = near.before_us if by < 0 else near.after_us, near.span
    if at is None:
        return None
    if span.start_us is None or span.end_us is None:
        wanted = TimeRange(around=f"{rfc3339(at)}±{DEFAULT_MARGIN}")
    else:
        start = at if by > 0 else at + 1 - (span.end_us - span.start_us)
        wanted = TimeRange(rfc3339(start), rfc3339(start + span.end_us - span.start_us))
    return replace(view, cursor_us=at, back=None).with_range(wanted)


def _moments(t: np.ndarray) -> Intervals:
    return t, t


def _incidents(known: Rollup, _: Snapshot, view: View) -> Intervals:
    timed = [i for i in known.incidents if i.first_seen_us is not None]
    begins, ends = ([getattr(i, name) or i.first_seen_us for i in timed] for name in ("first_seen_us", "last_seen_us"))
    return np.sort(np.array(begins, np.int64)), np.sort(np.array(ends, np.int64))


def _prefills(_: Rollup, shown: Snapshot, view: View) -> Intervals:
    return _moments(shown.once(("received by prefill",), lambda: _received(shown)))


def _received(shown: Snapshot) -> np.ndarray:
    """When prefill workers received requests."""
    workers, requests = shown.ledger.tables["workers"], shown.ledger.tables["requests"]
    prefills = workers.filter(pc.and_(pc.equal(workers["op"], "start"), pc.equal(workers["role"], "prefill")))[
        "worker"
    ].unique()
    mine = requests.filter(
        pc.and_(pc.equal(requests["op"], "receive"), pc.is_in(requests["worker"], value_set=prefills))
    )
    return np.sort(mine["t"].cast(pa.int64()).to_numpy())


def _pool(_: Rollup, shown: Snapshot, view: View) -> Intervals:
    found = pool_looked_at(shown, view)
    if found is None:
        return _moments(np.zeros(0, np.int64))
    whole = whole_area(shown, *found)
    return np.array([whole.start_us]), np.array([whole.end_us])


_KNOWN: dict[Place, Callable[[Rollup, Snapshot, View], Intervals]] = {
    Place.EVENTS: lambda _, shown, __: _moments(shown.events.times),
    Place.OVERVIEW: lambda _, shown, __: _moments(shown.events.times),
    Place.HELD: lambda _, shown, __: _moments(shown.gauge_times),
    Place.LATENCY: _prefills, Place.INCIDENTS: _incidents, Place.PAGES: _pool,
}  # fmt: skip
