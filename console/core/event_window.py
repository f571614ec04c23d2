"""The stretch of events that the screen Events holds, and how it slides over the record.

Invariant: a window never holds more than MOST_ROWS rows, its rows stand without a hole between its two ends, and a step
reads at most what one page of `Events` may search, so that it says where it stopped instead of going on for ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from console.core.events import PAGE, EventKey, EventPage, key_at, keys_of
from console.core.filter_language import Filter
from console.core.filter_rows import filter_rows
from console.core.merged import Record
from console.core.sheet import SOURCE
from console.core.time_range import Span
from forensics.rows import Row, rows_of
from forensics.verdict import Verdict

MOST_ROWS = 200


@dataclass(frozen=True)
class Looked:
    """What is looked at: a filter, a range of time, and what `now` means in both (us UTC)."""

    wanted: Filter
    span: Span
    now_us: int


@dataclass(frozen=True)
class EventWindow:
    """Events in order. `earlier` and `later`: where to go on, None = the range begins or ends here. `hidden`: by the
    filter, between the two ends. `total`: events in the range, before the filter. `unused`: terms of the filter that name
    no column of events. `verdicts`: of the responses that the rows name, by rid, or by ledger and rid.
    """

    rows: pa.Table
    earlier: EventKey | None
    later: EventKey | None
    hidden: int
    total: int
    unused: tuple[str, ...] = ()
    verdicts: Mapping[str | tuple[str, str], Verdict] = field(default_factory=dict)

    @property
    def at_end(self) -> bool:
        """Whether nothing of the range comes after it."""
        return self.later is None

    @cached_property
    def keys(self) -> tuple[EventKey, ...]:
        """The places of its rows."""
        return keys_of(self.rows)

    def place_of(self, key: EventKey) -> int | None:
        """At which row an event stands; None = it is not among them."""
        return self.keys.index(key) if key in self.keys else None

    def verdict_of(self, row: Row) -> Verdict | None:
        """Of the response that one of the rows names."""
        return self.verdicts.get((row[SOURCE], row["rid"]) if SOURCE in row else row["rid"])


class EventWindows:
    """Windows over the events of one reading of a ledger, or of several. Slow to make for a long record: never in the event
    loop."""

    def __init__(self, record: Record) -> None:
        self._events, self._verdicts_there = record.events, record.verdicts

    def last(self, looked: Looked) -> EventWindow:
        """The end of the range."""
        return self._window(self._events.before(None, looked.wanted, looked.span, looked.now_us, MOST_ROWS), looked)

    def first(self, looked: Looked) -> EventWindow:
        """Its beginning."""
        return self._window(self._events.after(None, looked.wanted, looked.span, looked.now_us, MOST_ROWS), looked)

    def around(self, key: EventKey, looked: Looked) -> EventWindow:
        """The events on both sides of a place."""
        args = (looked.wanted, looked.span, looked.now_us, PAGE)
        above, below = self._events.before(key, *args), self._events.after(key, *args)
        rows = pa.concat_tables([above.rows, below.rows])
        return self._made(rows, above.earlier, below.later, above.total, looked)

    def up(self, window: EventWindow, looked: Looked) -> EventWindow:
        """A page earlier; what no longer fits is let go at the other end."""
        if window.earlier is None:
            return window
        page = self._events.before(window.earlier, looked.wanted, looked.span, looked.now_us)
        rows = pa.concat_tables([page.rows, window.rows])
        later = key_at(rows, MOST_ROWS) if len(rows) > MOST_ROWS else window.later
        return self._made(rows.slice(0, MOST_ROWS), page.earlier, later, page.total, looked)

    def down(self, window: EventWindow, looked: Looked) -> EventWindow:
        """A page later."""
        if window.later is None:
            return window
        page = self._events.after(window.later, looked.wanted, looked.span, looked.now_us)
        rows = pa.concat_tables([window.rows, page.rows])
        cut = max(len(rows) - MOST_ROWS, 0)
        earlier = key_at(rows, cut) if cut else window.earlier
        return self._made(rows.slice(cut), earlier, page.later, page.total, looked)

    def _window(self, page: EventPage, looked: Looked) -> EventWindow:
        return self._made(page.rows, page.earlier, page.later, page.total, looked)

    def _made(
        self, rows: pa.Table, earlier: EventKey | None, later: EventKey | None, total: int, looked: Looked
    ) -> EventWindow:
        unused = tuple(term.text for term in filter_rows(looked.wanted, rows.slice(0, 0), looked.now_us).unused)
        hidden = self._events.between(earlier, later, looked.span) - len(rows)
        return EventWindow(rows, earlier, later, hidden, total, unused, self._verdicts(rows))

    def _verdicts(self, rows: pa.Table) -> dict[str | tuple[str, str], Verdict]:
        rids, there = pc.unique(rows["rid"]).drop_null(), self._verdicts_there
        named = rows_of(there.filter(pc.is_in(there["rid"], value_set=rids)))
        return {(row[SOURCE], row["rid"]) if SOURCE in row else row["rid"]: Verdict(row["verdict"]) for row in named}


def words_of(window: EventWindow) -> str:
    """`200 of 41,208 events, 12 hidden by the filter, more above and below`."""
    parts = [f"{len(window.rows):,} of {window.total:,} events"]
    if window.hidden:
        parts.append(f"{window.hidden:,} hidden by the filter")
    parts += [f"{', '.join(window.unused)} names no column of events"] * bool(window.unused)
    more = [word for word, end in (("above", window.earlier), ("below", window.later)) if end is not None]
    parts += [f"more {' and '.join(more)}"] * bool(more)
    return ", ".join(parts)
