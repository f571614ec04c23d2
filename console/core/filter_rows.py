"""A filter applied to the rows of any table.

Invariant: a term whose field a table does not have says nothing about its rows: it is handed back as `unused`, so that
the screen can say so. What is hidden is counted.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc

from console.core.filter_language import ORDERED, Filter, FilterError, Term, number_of, word_of
from forensics.window import BadWindow, instant

STAND_FOR = {"tenant": ("reader_tenants", "donor_tenants_named")}
"""Columns that together say of a row what a field says where a table has it: either of them is meant."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_COMPARE: dict[str, Callable[[pa.Array, pa.Scalar], pa.Array]] = {
    ":": pc.equal, ">": pc.greater, ">=": pc.greater_equal, "<": pc.less, "<=": pc.less_equal,
}  # fmt: skip


@dataclass(frozen=True)
class Filtered:
    """The rows that are left, how many are hidden, and the terms that say nothing about this table."""

    rows: pa.Table
    hidden: int
    unused: tuple[Term, ...]


def filter_rows(wanted: Filter, rows: pa.Table, now_us: int) -> Filtered:
    """`rows` as `wanted` leaves them, in their order. `now_us`: what `now` means. Raises FilterError."""
    used = [term for term in wanted.terms if term.field is None or _columns_of(term.field, rows)]
    unused = tuple(term for term in wanted.terms if term not in used)
    kept = rows
    for term in used:
        kept = kept.filter(_mask(term, kept, now_us))
    return Filtered(kept, len(rows) - len(kept), unused)


def _mask(term: Term, rows: pa.Table, now_us: int) -> pa.ChunkedArray:
    mask = _none(len(rows)) if term.field is not None else _anywhere(rows, term.values[0])
    for name in _columns_of(term.field, rows) if term.field is not None else ():
        mask = pc.or_(mask, _of_column(term, rows[name], now_us))
    return pc.invert(mask) if term.negated else mask


def _columns_of(field: str, rows: pa.Table) -> tuple[str, ...]:
    """The columns in which a field of a filter stands; none = the table knows nothing of it."""
    wanted = (field,) if field in rows.column_names else STAND_FOR.get(field, ())
    return tuple(name for name in wanted if name in rows.column_names)


def _anywhere(rows: pa.Table, text: str) -> pa.ChunkedArray:
    mask = _none(len(rows))
    for column in rows.columns:
        if _is_text(column.type):
            mask = pc.or_(mask, _sure(pc.match_substring(_plain(column), text, ignore_case=True)))
        elif pa.types.is_list(column.type) and _is_text(column.type.value_type):
            mask = pc.or_(mask, _members(column, lambda flat: pc.match_substring(flat, text, ignore_case=True)))
    return mask


def _of_column(term: Term, column: pa.ChunkedArray, now_us: int) -> pa.ChunkedArray:
    if pa.types.is_list(column.type):
        return _members(column, lambda flat: _any_of(term, flat, now_us))
    return _any_of(term, column, now_us)


def _any_of(term: Term, column: pa.ChunkedArray, now_us: int) -> pa.ChunkedArray:
    mask = _none(len(column))
    for value in term.values:
        mask = pc.or_(mask, _sure(_one(term, value, column, now_us)))
    return mask


def _one(term: Term, value: str, column: pa.ChunkedArray, now_us: int) -> pa.ChunkedArray:
    if term.field in ORDERED and term.op != ":":
        order = ORDERED[term.field]
        ranks = pc.index_in(_plain(column), value_set=pa.array(order))
        return _COMPARE[term.op](ranks, pa.scalar(order.index(word_of(term.field, value)), pa.int32()))
    if _is_text(column.type):
        if term.op != ":":
            raise FilterError(term.at, f"{term.field} is text; write {term.field}:{value}")
        return pc.match_like(_plain(column), _like(word_of(term.field or "", value)), ignore_case=True)
    if pa.types.is_timestamp(column.type):
        return _COMPARE[term.op](column.cast(pa.int64()), _moment(term, value, now_us))
    if pa.types.is_boolean(column.type):
        return pc.equal(column, value.lower() in ("yes", "true"))
    number = number_of(value)
    if number is None:
        raise FilterError(term.at, f"{term.field} is a number; write {term.field}{term.op}3")
    exact = pa.scalar(int(number), pa.int64()) if number.is_integer() and abs(number) < 1 << 62 else pa.scalar(number)
    return _COMPARE[term.op](column, exact)


def _moment(term: Term, value: str, now_us: int) -> pa.Scalar:
    if term.op == ":":
        raise FilterError(
            term.at, f"{term.field} is a time; write {term.field}>=2026-09-21T14:00:00Z or {term.field}>-15m"
        )
    try:
        return pa.scalar(instant(value, ZoneInfo("UTC"), _EPOCH + timedelta(microseconds=now_us)), pa.int64())
    except (BadWindow, OverflowError) as error:
        raise FilterError(term.at, str(error)) from error


def _like(value: str) -> str:
    return re.sub(r"([%_\\])", r"\\\1", value).replace("*", "%")


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or (pa.types.is_dictionary(kind) and pa.types.is_string(kind.value_type)))


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column


def _members(column: pa.ChunkedArray, test: Callable[[pa.ChunkedArray], pa.ChunkedArray]) -> pa.ChunkedArray:
    """Whether a member of each row's list passes."""
    whole = column.combine_chunks()
    flat, parents = pc.list_flatten(whole), pc.list_parent_indices(whole)
    hits = pc.unique(parents.filter(_sure(test(flat))))
    return pa.chunked_array([pc.is_in(pa.array(range(len(whole)), parents.type), value_set=hits)], pa.bool_())


def _none(n: int) -> pa.ChunkedArray:
    return pa.chunked_array([pa.repeat(pa.scalar(False), n)])


def _sure(mask: pa.ChunkedArray) -> pa.ChunkedArray:
    """A value that is not there passes no test."""
    return pc.fill_null(mask, False)
