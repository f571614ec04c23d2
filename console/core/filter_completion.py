"""What may follow in a filter that is being written: fields, then values that the table really has.

Invariant: every completion is a whole filter that begins with what was written.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from console.core.filter_language import ORDERED
from console.core.sheet import Sheet

MOST = 8


def completions(text: str, sheet: Sheet) -> tuple[str, ...]:
    """At most `MOST` filters that go on from `text`, in the order of the table's columns or the value's own."""
    before, blank, term = text.rpartition(" ")
    minus = "-" if term.startswith("-") else ""
    field, colon, begun = term.removeprefix("-").partition(":")
    if not colon:
        fitting: Iterable[str] = (f"{name}:" for name in sheet.rows.column_names if name.startswith(field.lower()))
    else:
        fitting = (f"{field}:{value}" for value in _values(sheet, field) if value.lower().startswith(begun.lower()))
    return tuple(f"{before}{blank}{minus}{word}" for word in list(fitting)[:MOST])


def _values(sheet: Sheet, field: str) -> tuple[str, ...]:
    if field not in sheet.rows.column_names:
        return ()
    column = sheet.rows[field]
    if pa.types.is_list(column.type):
        column = pc.list_flatten(column)
    if not (pa.types.is_string(column.type) or pa.types.is_dictionary(column.type)):
        return ()
    there = {str(value) for value in pc.unique(column).to_pylist() if value is not None}
    order = ORDERED.get(field, ())
    values = sorted(there, key=lambda value: (order.index(value) if value in order else len(order), value))
    return tuple(f'"{value}"' if " " in value else value for value in values)
