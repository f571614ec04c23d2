"""What the range and the filter of a view mean of one rollup, whatever stands in them.

Invariant: a range or a filter that cannot be used is said in words, and then leaves everything in sight; nothing is
hidden by a fault. `now` is the time of the wall while somebody writes, the end of a record that nobody writes, and the
moment of a replay or of a pause that its address names; where it is not the wall's, the screen says what it is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa

from console.core.filter_language import FilterError, parse_filter
from console.core.filter_rows import filter_rows
from console.core.incidents import Incident
from console.core.rollup import Rollup
from console.core.sheet import SOURCE, Shown, shown
from console.core.sorting import sort_fault
from console.core.time_range import BadRange, Span
from console.core.times import clock
from console.core.view import View


@dataclass(frozen=True)
class Looking:
    """`view` as it can be used, its range in times, what `now` means in it (us UTC), and what could not be used, in words
    (else empty). `now_words`: what now is, where the range counts from it and it is not the time of the wall.
    """

    view: View
    span: Span
    now_us: int
    fault: str = ""
    now_words: str = ""


def range_now(known: Rollup, view: View, clock_us: int) -> int:
    """What `now` means in ranges and filters, us UTC; `clock_us`: the time of the wall."""
    if view.replay is not None and view.cursor_us is not None:
        return view.cursor_us + 1
    if view.as_of_us is not None:
        return view.as_of_us + 1
    return clock_us if known.writing or known.data_us is None else known.data_us + 1


def now_words(known: Rollup, view: View, now_us: int) -> str:
    """What `now` is, where the view's range counts from it and it is not the time of the wall; else empty."""
    if not view.range.is_relative:
        return ""
    if view.replay is not None and view.cursor_us is not None:
        return f"now = {clock(now_us - 1)}, the moment replayed"
    if view.as_of_us is not None:
        return f"now = {clock(now_us - 1)}, the moment paused at"
    return "" if known.writing or known.data_us is None else f"now = {clock(now_us - 1)}, the record's end"


def looking(known: Rollup, view: View, clock_us: int) -> Looking:
    """A view against the rollup that it looks at."""
    span, faults, now_us = Span(), [], range_now(known, view, clock_us)
    try:
        span = view.range.resolve(now_us, known.span)
    except BadRange as error:
        faults.append(f"range: {error}")
    usable = view
    for sheet in known.sheets.values() if view.filter else ():
        try:
            # What a filter asks of a table is wrong by the kinds of its columns, never by its rows.
            filter_rows(parse_filter(usable.filter), sheet.rows.slice(0, 0), now_us)
        except FilterError as error:
            faults.append(f"filter: {error}")
            usable = replace(usable, filter="")
    fault = sort_fault(known, view)
    if fault:
        faults.append(f"order: {fault}")
        usable = replace(usable, sort=None)
    return Looking(usable, span, now_us, "; ".join(faults), now_words(known, view, now_us))


def left_of(known: Rollup, name: str, at: Looking) -> Shown:
    """What the view leaves of one of the rollup's tables."""
    return shown(known.sheets[name], at.view, at.span, at.now_us)


def incidents_left(known: Rollup, at: Looking) -> tuple[Incident, ...]:
    """The incidents that the view leaves, gravest first."""
    left = set(incident_keys(left_of(known, "incidents", at).rows))
    return tuple(incident for incident in known.incidents if incident.key in left)


def incident_keys(rows: pa.Table) -> list[str]:
    """The key of the incident of every row."""
    ids: list[str] = rows["id"].to_pylist()
    if SOURCE not in rows.column_names:
        return ids
    return [f"{source}:{incident_id}" for source, incident_id in zip(rows[SOURCE].to_pylist(), ids, strict=True)]


def fields_of(known: Rollup) -> frozenset[str]:
    """Every field that some table has, so that a filter carries over from screen to screen."""
    return frozenset(name for sheet in known.sheets.values() for name in sheet.rows.column_names)
