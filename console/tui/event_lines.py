"""The Events screen's lines: one event a row, and all of the one under the cursor.

Invariant: a row's key names the event's place in the record, and nothing of the ledger is drawn without `printable`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial

import numpy as np
import pyarrow as pa
from rich.text import Text

from console.core.event_window import EventWindow
from console.core.events import EventKey
from console.core.marks import VERDICT_MARKS
from console.core.owners import Owners
from console.core.printable import NOTHING, printable, shorten
from console.core.sheet import SOURCE
from console.core.times import clock_ms, moment
from console.tui.columns import Column, fit, heading, row_text, source_column
from console.tui.line_list import CURSOR, Line
from console.tui.lines import cut, owner_text, rule
from console.tui.palette import Palette
from forensics.rows import Row, rows_of

DETAIL_LINES = 3


def key_text(key: EventKey) -> str:
    """An event's key as the key of a line."""
    return json.dumps([key.t_us, key.source, key.worker, key.epoch, key.seq])


def key_of_text(text: str) -> EventKey:
    """And back; names may hold anything."""
    t, source, worker, epoch, seq = json.loads(text)
    return EventKey(t, worker, epoch, seq, source=source)


def event_table(window: EventWindow, owners: Owners, width: int, palette: Palette) -> tuple[Text, list[Line]]:
    """Titles and rows."""

    def verdict(row: Row) -> Text:
        found = window.verdict_of(row)
        return Text(VERDICT_MARKS[found].glyph, style=palette.verdict(found, bold=True)) if found else Text(" ")

    def tenant(row: Row) -> Text:
        return owner_text(owners, row["tenant"], palette) if row["tenant"] is not None else Text("   ")

    columns: list[Column[Row]] = [
        Column("TIME UTC", 12, lambda r: clock_ms(r["t"])),
        Column("", 1, verdict),
        Column("OP", 11, lambda r: printable(r["op"]).upper()),
        Column("TABLE", 9, lambda r: r["table"], priority=5),
        Column("WORKER", 11, lambda r: shorten(printable(r["worker"]), 11), priority=2),
        Column("SEQ", 8, lambda r: str(r["seq"]), priority=6, right=True),
        Column("", 3, tenant, priority=1),
        Column("RESPONSE", 18, lambda r: shorten(printable(r["rid"]), 18), priority=1),
        Column("PAGES", 6, lambda r: NOTHING if r["pages"] is None else f"{r['pages']:,}", priority=3, right=True),
        Column("SAYS", 16, lambda r: printable(r["says"] or ""), flexible=True),
    ]
    rows = rows_of(window.rows)
    if SOURCE in window.rows.column_names:
        columns.insert(1, source_column(lambda r: str(r[SOURCE]), rows))
    fitted = fit(columns, width - len(CURSOR) - 1)  # the last is the scroll bar's
    lines = [Line(key_text(key), partial(row_text, fitted, row)) for key, row in zip(window.keys, rows, strict=True)]
    titles = Text(" " * len(CURSOR), style=palette.quiet, end="").append_text(heading(fitted))
    return titles, lines


def with_mark(
    window: EventWindow, lines: Sequence[Line], mark_us: int | None, width: int, palette: Palette
) -> list[Line]:
    """The rows with a dated line below the last event that is not later than the mark, where that lies in the window."""
    n = len(window.rows)
    if mark_us is None or n == 0:
        return list(lines)
    place = int(np.searchsorted(window.rows["t"].cast(pa.int64()).to_numpy(), mark_us, side="right"))
    if (place == 0 and window.earlier is not None) or (place == n and window.later is not None):
        return list(lines)
    dated = Line(None, rule(f"m {moment(mark_us)}", width - len(CURSOR) - 1, palette, "a second m makes the range"))
    return [*lines[:place], dated, *lines[place:]]


def event_detail(window: EventWindow, key: EventKey, width: int, palette: Palette) -> list[Text]:
    """Everything that is known of one event, in DETAIL_LINES lines."""
    at = window.place_of(key)
    if at is None:
        return [cut(Text("", end=""), width)] * DETAIL_LINES
    row = rows_of(window.rows.slice(at, 1))[0]
    source = f"{printable(row[SOURCE])}  " if SOURCE in row else ""
    where = f" {moment(row['t'])}  {source}{printable(row['worker'])} epoch {row['epoch']} seq {row['seq']}"
    first = Text(where, end="", style=palette.strong)
    second = Text(f" {row['table']}.{printable(row['op'])}", end="")
    second.append(f"  pool {printable(row['pool'])}" * (row["pool"] is not None))
    second.append(f"  response {printable(row['rid'])}  tenant {printable(row['tenant'])}" * (row["rid"] is not None))
    found = window.verdict_of(row)
    if found is not None:
        mark = VERDICT_MARKS[found]
        second.append(f"  {mark.glyph} {mark.word}", style=palette.verdict(found, bold=True))
    says = Text(f" {printable(row['says'] or '')}", end="", style=palette.quiet)
    return [cut(line, width) for line in (first, second, says)]
