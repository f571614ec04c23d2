"""The events of a range as a file: CSV, Parquet, JSON lines, Markdown.

Invariant: the file holds every event of the range that the filter leaves, in time, however many there are, while memory
holds some thousands of them; and it says which view of which ledger it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO
from zoneinfo import ZoneInfo

import pyarrow as pa

from console.core.event_window import Looked
from console.core.events import Events
from console.core.export import checked, told_view
from console.core.filter_language import Term
from console.core.filter_rows import filter_rows
from console.core.merged_events import MergedEvents
from console.core.redaction import Redaction
from console.core.rollup import Rollup
from console.core.sheet import seen_words
from console.core.view import View
from forensics.render import write_parts


@dataclass(frozen=True)
class Written:
    """`rows` events are in the file, of `total` in the record: `hidden` by the filter, `outside` the range."""

    rows: int
    total: int
    hidden: int
    outside: int
    unused: tuple[Term, ...]

    @property
    def words(self) -> str:
        """`12 of 41,208, 41,196 hidden`."""
        return seen_words(self.rows, self.total, self.hidden, self.outside, 0, self.unused)


def events_file(known: Rollup, fmt: str) -> str:
    """The name of the file."""
    return f"{known.name}-events.{fmt}"


def export_events(
    known: Rollup,
    events: Events | MergedEvents,
    looked: Looked,
    view: View,
    fmt: str,
    redaction: Redaction,
    out: BinaryIO,
) -> Written:
    """Write them to `out`; `looked` is what the view means. Slow for a long record. Raises ExportError, FilterError."""
    checked(fmt)
    rows, total, inside = 0, len(events), events.between(None, None, looked.span)
    unused = filter_rows(looked.wanted, events.columns.empty_table(), looked.now_us).unused

    def covered() -> Iterator[pa.Table]:
        nonlocal rows
        for part in events.all(looked.wanted, looked.span, looked.now_us):
            rows += len(part)
            yield redaction.cover(part).cast(events.columns)

    def written() -> Written:
        return Written(rows, total, inside - rows, total - inside, unused)

    def envelope() -> dict[str, Any]:
        done = written()
        return {
            "ledger": known.name, "table": "events", "view": told_view(view, redaction), "rows": done.rows, "of": done.total,
            "hidden": done.hidden, "outside": done.outside, "left_out": 0, "order": "time", "ledger_read_us": known.taken_us,
            "record": known.record_words, "names": redaction.words or "as recorded",
        }  # fmt: skip

    tz = ZoneInfo("UTC")
    write_parts(covered(), fmt, out, schema=events.columns, envelope=envelope, columns=events.columns.names, tz=tz)
    if fmt == "md":
        out.write(f"\nevents of {known.name}, {written().words}; view {told_view(view, redaction)}\n".encode())
    return written()
