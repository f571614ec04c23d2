"""A table as every screen has it: rows, what its columns mean, and what the view leaves of them.

Invariant: filter and order come from the view, the same for every skin and for export; rows that stand alike keep the
order they came in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from console.core.filter_language import ORDERED, Term, parse_filter
from console.core.filter_rows import filter_rows
from console.core.time_range import Span
from console.core.view import Sort, View
from forensics.catalogue import Column

SOURCE = "source"
"""The column that says of which ledger a row is, where those of several stand together."""
_FIRST_DECIDES = frozenset({"state"})
"""Lists that stand by their first word; others by how many they are."""


@dataclass(frozen=True)
class Sheet:
    """Rows of one kind. `columns` says what each is; `begins` and `ends` name the times by which a range picks rows.
    `left_out`: how many more there are in the record than are kept here.
    """

    name: str
    rows: pa.Table
    columns: Mapping[str, Column] = field(default_factory=dict)
    begins: str | None = None
    ends: str | None = None
    left_out: int = 0


@dataclass(frozen=True)
class Shown:
    """What a view leaves of a sheet: `hidden` by the filter, `outside` the range, `left_out` of the sheet; `total` of all."""

    rows: pa.Table
    hidden: int
    outside: int
    left_out: int
    total: int
    unused: tuple[Term, ...]

    @property
    def words(self) -> str:
        """`8 of 214, 206 hidden`: what is not seen is said."""
        return seen_words(len(self.rows), self.total, self.hidden, self.outside, self.left_out, self.unused)


def seen_words(n: int, total: int, hidden: int, outside: int, left_out: int, unused: Iterable[Term]) -> str:
    """`n` of `total` rows are seen, and where the others are."""
    parts = [f"{n:,} of {total:,}"]
    parts += [f"{hidden:,} hidden"] if hidden else []
    parts += [f"{outside:,} outside the range"] if outside else []
    parts += [f"{left_out:,} not looked at"] if left_out else []
    words = " ".join(term.text for term in unused)
    return ", ".join(parts + ([f"here without {words}"] if words else []))


def shown(sheet: Sheet, view: View, span: Span, now_us: int) -> Shown:
    """The rows of a sheet that overlap `span` (the view's range, resolved), filtered and in order. Raises FilterError."""
    inside = (
        sheet.rows if sheet.begins is None else overlapping(sheet.rows, span, sheet.begins, sheet.ends or sheet.begins)
    )
    left = filter_rows(parse_filter(view.filter), inside, now_us)
    return Shown(
        in_order(left.rows, view.sort), left.hidden, len(sheet.rows) - len(inside), sheet.left_out,
        len(sheet.rows) + sheet.left_out, left.unused,
    )  # fmt: skip


def overlapping(rows: pa.Table, span: Span, begins: str, ends: str) -> pa.Table:
    """Rows that had begun before the range ended, and had not ended before it began; what has no time is kept."""
    if span.end_us is not None:
        rows = rows.filter(pc.fill_null(pc.less(rows[begins].cast(pa.int64()), span.end_us), True))
    if span.start_us is not None:
        rows = rows.filter(pc.fill_null(pc.greater_equal(rows[ends].cast(pa.int64()), span.start_us), True))
    return rows


def in_order(rows: pa.Table, sort: Sort | None) -> pa.Table:
    """Rows by one column; what is not there stands last. A column that the table lacks changes nothing."""
    if sort is None or sort.column not in rows.column_names or not len(rows):
        return rows
    column = rows[sort.column]
    if sort.column in ORDERED:
        column = pc.index_in(column, value_set=pa.array(ORDERED[sort.column]))
    elif pa.types.is_list(column.type):
        column = pc.list_element(column, 0) if sort.column in _FIRST_DECIDES else pc.list_value_length(column)
    keys = pa.table({"by": column, "place": np.arange(len(rows))})
    direction = "descending" if sort.descending else "ascending"
    return rows.take(pc.sort_indices(keys, sort_keys=[("by", direction), ("place", "ascending")]))
