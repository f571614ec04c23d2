"""Figures of a stretch of the record: what Held, Latency and the latest events show while a range is set.

Invariant: counted anew from the rows of the stretch, as finely as it is short; with the whole record as the range
nothing changes. Forecasts and holders stay those of the record's end.
"""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pyarrow as pa

from console.core.bins import bin_seconds
from console.core.filter_language import parse_filter
from console.core.held_capacity import held_series
from console.core.looking import Looking, left_of
from console.core.merged import Record
from console.core.places import Place
from console.core.rollup import LATEST_EVENTS, Rollup
from console.core.snapshot import OF_PREFILLS, Snapshot
from console.core.stretch_stats import gauge_stats
from console.core.time_range import Span

_GRAIN = 10
RANGED = frozenset({Place.HELD, Place.LATENCY, Place.OVERVIEW, Place.EVENTS})
"""Screens whose figures are counted anew for a range."""


def stretch(known: Rollup, span: Span) -> tuple[int, int, int]:
    """(begin, end, length of a bin) in us: the range in whole bins, an open end being that of the record.

    It begins and ends at every _GRAIN-th bin at most, so that a range that moves with the time is not counted anew each second.
    """
    first, last = known.first_us or 0, (known.data_us or 0) + 1
    begin = first if span.start_us is None else min(max(span.start_us, first), last)
    end = last if span.end_us is None else max(min(span.end_us, last), begin)
    bin_us = bin_seconds(begin, end) * 1_000_000
    grain = bin_us * (_GRAIN if (end - begin) >= _GRAIN * _GRAIN * bin_us else 1)
    return begin - (begin - first) % grain, end + (first - end) % grain, bin_us


def in_range(place: Place, known: Rollup, shown: Record | None, at: Looking) -> Rollup:
    """The rollup with the tables that `place` shows counted of the view's range. May take seconds the first time; what a
    snapshot was asked for before is kept. Raises QueryStopped.
    """
    if shown is None or place not in RANGED:
        return known
    made = {}
    if place in (Place.OVERVIEW, Place.EVENTS):
        if not len(left_of(known, "events", at).rows):
            made = _latest(shown, at)
    elif at.span != Span():
        times = stretch(known, at.span)
        assert isinstance(shown, Snapshot)  # what has figures is of one ledger
        one, make = shown, _held if place is Place.HELD else _latency
        made = one.once((place, times), lambda: make(one, times))
    return known.with_tables(made) if made else known


def _held(shown: Snapshot, times: tuple[int, int, int]) -> dict[str, pa.Table]:
    begin, end, bin_us = times
    low, high = np.searchsorted(shown.gauge_times, [begin, end]).tolist()
    inside = shown.gauges.slice(low, high - low)
    return {"held-course": held_series(inside, begin, bin_us), "held-stats": gauge_stats(inside)}


def _latency(shown: Snapshot, times: tuple[int, int, int]) -> dict[str, pa.Table]:
    begin, end, bin_us = times
    given = {"from": _instant(begin), "to": _instant(end), "bucket": f"{bin_us // 1_000_000}s"}
    return shown.prefill_times(given, *OF_PREFILLS)


def _latest(shown: Record, at: Looking) -> dict[str, pa.Table]:
    found = shown.events.before(None, parse_filter(at.view.filter), at.span, at.now_us, LATEST_EVENTS)
    return {"events": found.rows} if len(found.rows) else {}


def _instant(t_us: int) -> str:
    return datetime.fromtimestamp(t_us / 1e6, UTC).isoformat().replace("+00:00", "Z")
