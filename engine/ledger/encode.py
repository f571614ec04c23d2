"""From recorded tuples to Arrow batches: comparing page lists, fingerprinting, keying digests. Runs in the drain.

Invariant: a row says (ref_seq, ref_off, n, fingerprint) only where the array it was given equals that slice of
the allocator's list; on any difference it holds the full list.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from engine.ledger.digest import key_digest
from engine.ledger.fingerprint import fingerprint
from engine.ledger.schema import TABLES
from engine.ledger.tag import split_tag

REMEMBERED_LISTS = 1 << 16


class RecordedRow(NamedTuple):
    """One row as the hot path left it."""

    table: str
    op: str
    seq: int
    prev: int
    t: int
    columns: dict[str, Any]


class Encoder:
    """Turns rows of one worker epoch into batches; remembers the lists of recent reserves."""

    def __init__(self, epoch: int, digest_key: bytes) -> None:
        self._epoch = epoch
        self._digest_key = digest_key
        self._lists: OrderedDict[int, np.ndarray] = OrderedDict()

    def batches(self, rows: Iterable[RecordedRow]) -> list[tuple[str, pa.RecordBatch]]:
        """One batch per table that has rows, rows in the order given."""
        by_table: dict[str, list[RecordedRow]] = {}
        for row in rows:
            by_table.setdefault(row.table, []).append(self._finish(row))
        return [(table, self._batch(table, rows_)) for table, rows_ in by_table.items()]

    def _finish(self, row: RecordedRow) -> RecordedRow:
        columns = row.columns
        if columns.get("digests") is not None:
            columns["digests"] = [key_digest(self._digest_key, int(value)) for value in columns["digests"]]
        if row.table == "pages" and columns.get("pages") is not None:
            pages = columns["pages"]
            columns["n"] = len(pages)
            if row.op in ("reserve", "append"):
                self._lists[columns["tag"]] = pages
                if len(self._lists) > REMEMBERED_LISTS:
                    self._lists.popitem(last=False)
            else:
                self._refer(columns, pages)
        return row

    def _refer(self, columns: dict[str, Any], pages: np.ndarray) -> None:
        """Replace the page list by a reference where it equals a slice of its reserve's list."""
        tag = columns.get("tag")
        reserved = self._lists.get(tag) if tag is not None else None
        if reserved is None or tag is None or not len(pages):
            return
        starts = np.flatnonzero(reserved == pages[0])
        if len(starts) != 1:
            return
        offset = int(starts[0])
        if np.array_equal(reserved[offset : offset + len(pages)], pages):
            columns["pages"] = None
            columns["ref_seq"], columns["ref_off"] = split_tag(tag).seq, offset
            columns["fingerprint"] = fingerprint(pages, tag)

    def _batch(self, table: str, rows: list[RecordedRow]) -> pa.RecordBatch:
        schema = TABLES[table]
        arrays = []
        for field in schema:
            values = _column(field.name, rows, self._epoch)
            kind = pa.int64() if pa.types.is_timestamp(field.type) else field.type
            array = pa.array(values, kind)
            arrays.append(array.cast(field.type) if kind != field.type else array)
        return pa.record_batch(arrays, schema=schema)


def _column(name: str, rows: list[RecordedRow], epoch: int) -> list[Any]:
    if name == "epoch":
        return [epoch] * len(rows)
    if name in ("seq", "prev", "t", "op"):
        return [getattr(row, name) for row in rows]
    return [row.columns.get(name) for row in rows]
