"""Forms of recorded rows: which columns a call gives. Each is checked against the schema once, and not at every row.

Invariant: rows of one form have their values in the same places, so that a column of many rows is one slice.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from engine.ledger.schema import OPS, POOL_TABLES, TABLES

INT32 = np.dtype(np.int32)
HEAD = ("form", "seq", "prev", "t")
"""What stands in a recorded row before its columns."""

RecordedRow = tuple[Any, ...]
"""(form, seq, prev, t us, value of each of the form's columns) as the hot path left it."""

_COLUMNS = {table: frozenset(schema.names) - {"epoch", "seq", "prev", "op"} for table, schema in TABLES.items()}
_PAGE_LISTS = {"pages": ("pages",), "transfers": ("src_pages", "dst_pages"), "cache": ("pages",)}
_LENGTH = ("n",)
_REFERENCE = ("n", "ref_seq", "ref_off", "fingerprint")


class Form:
    """Columns of a table and op, by place. Raises TypeError where the schema has no such thing."""

    def __init__(self, table: str, op: str, given: Iterable[str]) -> None:
        names = tuple(given)
        _check(table, op, names)
        self.table, self.op = table, op
        self.timed = "t" in names
        self.columns = tuple(name for name in names if name != "t")
        self.places = {name: place for place, name in enumerate((*HEAD, *self.columns))}
        self.lists = tuple(name for name in _PAGE_LISTS.get(table, ()) if name in names)
        self.pooled = table in POOL_TABLES and "pool" in names
        self.counted = table == "pages" and "req" in names
        self.pages = self.places.get("pages") if table == "pages" else None
        self.tag = self.places.get("tag")
        self.chain: dict[str | None, int] = {}
        """Last seq of each pool in the form's table: one for all forms of a recorder's table."""
        self._with: dict[tuple[str, ...], Form] = {}

    def with_length(self) -> Form:
        """Rows of this form with the length of their list behind."""
        return self._with.get(_LENGTH) or self._and(_LENGTH)

    def with_reference(self) -> Form:
        """Rows of this form with length and reference behind."""
        return self._with.get(_REFERENCE) or self._and(_REFERENCE)

    def _and(self, more: tuple[str, ...]) -> Form:
        form = self._with[more] = Form(self.table, self.op, (*self.columns, *more))
        return form


def _check(table: str, op: str, names: tuple[str, ...]) -> None:
    if table not in TABLES:
        raise TypeError(f"the ledger has no table {table!r}; it has {', '.join(TABLES)}")
    if op not in OPS[table]:
        raise TypeError(f"table {table} has no op {op!r}; it has {', '.join(OPS[table])}")
    unknown = sorted(set(names) - _COLUMNS[table])
    if unknown:
        raise TypeError(f"table {table} has no column {', '.join(unknown)} (see engine/ledger/schema.py)")


def kept(pages: Any) -> np.ndarray:
    """A page list (int32 [n]) as it is now: the array itself where nobody can write to it, else a copy."""
    if type(pages) is np.ndarray and pages.dtype is INT32 and not pages.flags.writeable:
        base = pages.base
        if base is None or (type(base) is np.ndarray and not base.flags.writeable):
            return pages
    return np.array(pages, np.int32)
