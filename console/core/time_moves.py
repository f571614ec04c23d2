"""Moving over the record: what is looked at, a stretch earlier or later, nearer or farther.

Invariant: a move never leaves the record; what shows all of it again is the range `all`, which follows.
"""

from __future__ import annotations

import re
from dataclasses import replace

from console.core.rollup import Rollup
from console.core.time_range import ALL, BadRange, Span, TimeRange, moment_us, rfc3339
from console.core.view import View

_CLOCK = re.compile(r"\d\d:\d\d:\d\d(\.\d+)?Z")
DAY_US = 86_400_000_000
STRETCHES = 20
"""`[` and `]` move by one of so many equal parts of what is looked at."""
_LEAST_US = 1_000


def extent(known: Rollup, span: Span) -> tuple[int, int] | None:
    """First and last moment of `span` within the record, us UTC; None where there is nothing recorded in it."""
    if known.first_us is None or known.data_us is None:
        return None
    start = max(known.first_us, span.start_us if span.start_us is not None else known.first_us)
    end = min(known.data_us, span.end_us if span.end_us is not None else known.data_us)
    return (start, end) if start <= end else None


def stepped(view: View, looked: tuple[int, int], by: int) -> View:
    """Point `by` stretches later; without a point yet, from the end backwards and from the beginning onwards."""
    start, end = looked
    at = view.cursor_us if view.cursor_us is not None else (end if by < 0 else start)
    return pointed(view, looked, at + by * max((end - start) // STRETCHES, 1))


def pointed(view: View, looked: tuple[int, int], at_us: int) -> View:
    """Point at a moment, or at the nearest that is looked at."""
    return replace(view, cursor_us=min(max(at_us, looked[0]), looked[1]))


def incident_beside(known: Rollup, looked: tuple[int, int], at_us: int, by: int) -> int | None:
    """When the next incident after a moment was first seen, or the last one before it (`by` < 0); None = there is none."""
    seen = [i.first_seen_us for i in known.incidents if i.first_seen_us is not None]
    inside = [t for t in seen if looked[0] <= t <= looked[1]]
    if by > 0:
        return min((t for t in inside if t > at_us), default=None)
    return max((t for t in inside if t < at_us), default=None)


def moment_in(text: str, looked: tuple[int, int]) -> int:
    """A moment as somebody writes it, us UTC: in RFC 3339, or as a time of day (`02:28:51Z`), the last such in [first,
    last] of what is looked at. Raises BadRange, also for one that is outside of it."""
    first, last = looked
    clock = _CLOCK.fullmatch(text.strip())
    if clock is None:
        at = moment_us(text)
    else:
        at = moment_us(f"{rfc3339(last).partition('T')[0]}T{text.strip()}")
        at -= DAY_US if at > last else 0
    if not first <= at <= last:
        raise BadRange(f"{text} is outside of what is looked at; :range all shows the whole record")
    return at


def marked(view: View, at_us: int) -> View:
    """A mark at a moment. Where there is one, the time between the two is looked at and the mark is gone; at the mark itself it
    is only gone."""
    if view.mark_us is None:
        return replace(view, mark_us=at_us)
    if view.mark_us == at_us:
        return replace(view, mark_us=None)
    start, end = sorted((view.mark_us, at_us))
    return replace(view, mark_us=None, back=None).with_range(TimeRange(rfc3339(start), rfc3339(end + 1)))


def zoomed(view: View, known: Rollup, looked: tuple[int, int], factor: float) -> View:
    """`factor` times as much time, around what is pointed at, else around the middle."""
    start, end = looked
    centre = view.cursor_us if view.cursor_us is not None and start <= view.cursor_us <= end else (start + end) // 2
    half = max(round((end - start) * factor / 2), _LEAST_US)
    first, last = known.first_us or 0, known.data_us or 0
    if centre - half <= first and centre + half >= last:
        return view.with_range(ALL)
    start, end = max(centre - half, first), min(centre + half, last)
    return view.with_range(TimeRange(rfc3339(start), rfc3339(end + 1)))
