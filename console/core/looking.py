"""What the range and the filter of a view mean of one rollup, whatever stands in them.

Invariant: a range or a filter that cannot be used is said in words, and then leaves everything in sight; nothing is
hidden by a fault.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from console.core.filter_language import FilterError, parse_filter
from console.core.filter_rows import filter_rows
from console.core.rollup import Rollup
from console.core.sheet import Shown, shown
from console.core.time_range import BadRange, Span
from console.core.view import View


@dataclass(frozen=True)
class Looking:
    """`view` as it can be used, its range in times, and what could not be used, in words (else empty)."""

    view: View
    span: Span
    fault: str = ""


def looking(known: Rollup, view: View, now_us: int) -> Looking:
    """A view against the rollup that it looks at."""
    span, faults = Span(), []
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
            usable = replace(view, filter="")
    return Looking(usable, span, "; ".join(faults))


def left_of(known: Rollup, name: str, at: Looking, now_us: int) -> Shown:
    """What the view leaves of one of the rollup's tables."""
    return shown(known.sheets[name], at.view, at.span, now_us)


def fields_of(known: Rollup) -> frozenset[str]:
    """Every field that some table has, so that a filter carries over from screen to screen."""
    return frozenset(name for sheet in known.sheets.values() for name in sheet.rows.column_names)
