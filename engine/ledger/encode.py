"""From recorded rows to Arrow batches: comparing page lists, fingerprinting, keying digests. Runs in the drain.

Invariant: a row says (ref_seq, ref_off, n, fingerprint) only where the array it was given equals that slice of
the allocator's list; on any difference it holds the full list. A row that fits no schema is refused alone.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from engine.ledger.digest import key_digest
from engine.ledger.fingerprint import fingerprints
from engine.ledger.schema import TABLES
from engine.ledger.tag import split_tag

REMEMBERED_PAGES = 1 << 22
"""Bound on the allocator's lists kept for comparison (16 MiB); a list that was forgotten costs space, never truth."""

FINGERPRINTED_AT_ONCE = 1 << 14

RecordedRow = tuple[str, str, int, int, int, dict[str, Any]]
"""(table, op, seq, prev, t us, columns) as the hot path left it."""

_NOT_ENCODABLE = (pa.ArrowException, TypeError, ValueError, OverflowError)


@dataclass(frozen=True)
class EncodedRows:
    """Batches by table, the last seq among them, and why rows were refused."""

    batches: tuple[tuple[str, pa.RecordBatch], ...]
    last_seq: int
    refused: tuple[str, ...]


class Encoder:
    """Turns rows of one worker epoch into batches; remembers the lists of recent reserves."""

    def __init__(self, epoch: int, digest_key: bytes) -> None:
        self._epoch = epoch
        self._digest_key = digest_key
        self._lists: OrderedDict[int, np.ndarray] = OrderedDict()
        self._remembered = 0

    def encode(self, rows: list[RecordedRow]) -> EncodedRows:
        """One batch per table that has rows, rows in the order given (at least one)."""
        by_table: dict[str, list[RecordedRow]] = {}
        references: list[tuple[dict[str, Any], np.ndarray]] = []
        for row in rows:
            by_table.setdefault(row[0], []).append(row)
            columns = row[5]
            if row[0] == "pages" and columns.get("pages") is not None:
                self._place(row[1], columns, references)
        _write_references(references)
        batches: list[tuple[str, pa.RecordBatch]] = []
        refused: list[str] = []
        for table, its_rows in by_table.items():
            batch, why = self._batch_of_fitting(table, its_rows)
            refused += why
            if batch.num_rows:
                batches.append((table, batch))
        return EncodedRows(tuple(batches), rows[-1][2], tuple(refused))

    def _place(self, op: str, columns: dict[str, Any], references: list[tuple[dict[str, Any], np.ndarray]]) -> None:
        """Remember the list of a reserve; find any other list in its reserve's."""
        pages, tag = columns["pages"], columns.get("tag")
        columns["n"] = len(pages)
        if tag is None:
            return
        if op in ("reserve", "append"):
            self._lists[tag] = pages
            self._remembered += len(pages)
            while self._remembered > REMEMBERED_PAGES and len(self._lists) > 1:
                self._remembered -= len(self._lists.popitem(last=False)[1])
            return
        offset = _offset_of(pages, self._lists.get(tag))
        if offset is not None:
            columns["pages"] = None
            columns["ref_seq"], columns["ref_off"] = split_tag(tag).seq, offset
            references.append((columns, pages))

    def _batch_of_fitting(self, table: str, rows: list[RecordedRow]) -> tuple[pa.RecordBatch, list[str]]:
        """The batch; where it cannot be built, the batch of those rows that can, each tried alone."""
        try:
            return self._batch(table, rows), []
        except _NOT_ENCODABLE:
            fitting, refused = [], []
            for row in rows:
                try:
                    self._batch(table, [row])
                    fitting.append(row)
                except _NOT_ENCODABLE as error:
                    refused.append(f"{table}/{row[1]} at seq {row[2]}: {error}")
            return self._batch(table, fitting), refused

    def _batch(self, table: str, rows: list[RecordedRow]) -> pa.RecordBatch:
        schema = TABLES[table]
        given = [row[5] for row in rows]
        present: set[str] = set().union(*given)
        common: dict[str, list[Any]] = {
            "epoch": [self._epoch] * len(rows),
            "op": [row[1] for row in rows],
            "seq": [row[2] for row in rows],
            "prev": [row[3] for row in rows],
            "t": [row[4] for row in rows],
        }
        arrays = []
        for field in schema:
            if field.name in common:
                values = common[field.name]
            elif field.name in present:
                values = [columns.get(field.name) for columns in given]
                if field.name == "digests":
                    values = [self._keyed(value) for value in values]
            else:
                arrays.append(pa.nulls(len(rows), field.type))
                continue
            arrays.append(pa.array(values, field.type))
        return pa.record_batch(arrays, schema=schema)

    def _keyed(self, digests: Iterable[int] | None) -> list[int] | None:
        return None if digests is None else [key_digest(self._digest_key, int(value)) for value in digests]


def _offset_of(pages: np.ndarray, reserved: np.ndarray | None) -> int | None:
    """Where `pages` stands as a slice of `reserved`; None where it does not, or where the start is ambiguous."""
    if reserved is None or not len(pages) or not len(reserved):
        return None
    offset = 0
    if reserved[0] != pages[0]:
        starts = np.flatnonzero(reserved == pages[0])
        if len(starts) != 1:
            return None
        offset = int(starts[0])
    return offset if reserved[offset : offset + len(pages)].tobytes() == pages.tobytes() else None


def _write_references(references: list[tuple[dict[str, Any], np.ndarray]]) -> None:
    """Fill in the fingerprints, in runs that stay in the cache."""
    start = 0
    while start < len(references):
        end, pages = start, 0
        while end < len(references) and pages < FINGERPRINTED_AT_ONCE:
            pages += len(references[end][1])
            end += 1
        run, start = references[start:end], end
        lengths = np.array([len(its_pages) for _, its_pages in run])
        tags = np.array([columns["tag"] for columns, _ in run], np.int64)
        values = fingerprints(np.concatenate([its_pages for _, its_pages in run]), lengths, tags)
        for (columns, _), value in zip(run, values.tolist(), strict=True):
            columns["fingerprint"] = value
