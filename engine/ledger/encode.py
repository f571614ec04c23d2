"""From recorded rows to Arrow batches: comparing page lists, fingerprinting, keying digests. Runs in the drain.

Invariant: a row says (ref_seq, ref_off, n, fingerprint) only where the array it was given equals that slice of
the allocator's list; on any difference it holds the full list. A row that fits no schema is refused alone.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from engine.ledger.columns import record_batch
from engine.ledger.digest import key_digest
from engine.ledger.fingerprint import fingerprints
from engine.ledger.forms import Form, RecordedRow
from engine.ledger.tag import seq_of

REMEMBERED_PAGES = 1 << 22
"""Bound on the allocator's lists kept for comparison (16 MiB); a list that was forgotten costs space, never truth."""

FINGERPRINTED_AT_ONCE = 1 << 14
ENCODED_AT_ONCE = 1 << 12
"""Rows that are taken through every step of their encoding together, so that they stay in the cache meanwhile."""
ALLOCATORS = frozenset({"reserve", "append"})

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
        batches: dict[str, list[pa.RecordBatch]] = {}
        refused: list[str] = []
        for start in range(0, len(rows), ENCODED_AT_ONCE):
            for table, batch, why in self._encoded(rows[start : start + ENCODED_AT_ONCE]):
                refused += why
                if batch.num_rows:
                    batches.setdefault(table, []).append(batch)
        joined = [
            (table, parts[0] if len(parts) == 1 else pa.concat_batches(parts)) for table, parts in batches.items()
        ]
        return EncodedRows(tuple(joined), rows[-1][1], tuple(refused))

    def _encoded(self, rows: list[RecordedRow]) -> Iterator[tuple[str, pa.RecordBatch, list[str]]]:
        """Table, batch of its rows, and why rows of it were refused."""
        by_table: defaultdict[str, list[RecordedRow]] = defaultdict(list)
        for row in rows:
            by_table[row[0].table].append(row)
        for table, its_rows in by_table.items():
            yield table, *self._batch_of_fitting(table, self._placed(its_rows) if table == "pages" else its_rows)

    def _placed(self, rows: list[RecordedRow]) -> list[RecordedRow]:
        """Rows of `pages` with the length of their lists, and with a reference to their reserve's in place of them."""
        placed: list[RecordedRow] = []
        referring: list[tuple[int, int, int, np.ndarray]] = []  # place in `placed`, offset, tag, pages
        for row in rows:
            form: Form = row[0]
            pages = row[form.pages] if form.pages is not None else None
            if pages is None:
                placed.append(row)
                continue
            tag = row[form.tag] if form.tag is not None else None
            if tag is not None and form.op in ALLOCATORS:
                self._remember(tag, pages)
            elif tag is not None and (offset := _offset_of(pages, self._lists.get(tag))) is not None:
                referring.append((len(placed), offset, tag, pages))
                placed.append(row)
                continue
            placed.append((form.with_length(), *row[1:], len(pages)))
        for (place, offset, tag, pages), value in zip(referring, _fingerprints(referring), strict=True):
            row, at = placed[place], placed[place][0].pages
            form = row[0].with_reference()
            placed[place] = (form, *row[1:at], None, *row[at + 1 :], len(pages), seq_of(tag), offset, value)
        return placed

    def _remember(self, tag: int, pages: np.ndarray) -> None:
        self._lists[tag] = pages
        self._remembered += len(pages)
        while self._remembered > REMEMBERED_PAGES and len(self._lists) > 1:
            self._remembered -= len(self._lists.popitem(last=False)[1])

    def _batch_of_fitting(self, table: str, rows: list[RecordedRow]) -> tuple[pa.RecordBatch, list[str]]:
        """The batch; where it cannot be built, the batch of those rows that can, each tried alone."""
        try:
            return record_batch(table, rows, self._epoch, self._keyed), []
        except _NOT_ENCODABLE:
            fitting, refused = [], []
            for row in rows:
                try:
                    record_batch(table, [row], self._epoch, self._keyed)
                    fitting.append(row)
                except _NOT_ENCODABLE as error:
                    refused.append(f"{table}/{row[0].op} at seq {row[1]}: {error}")
            return record_batch(table, fitting, self._epoch, self._keyed), refused

    def _keyed(self, digests: Iterable[int] | None) -> list[int] | None:
        return None if digests is None else [key_digest(self._digest_key, int(value)) for value in digests]


def _offset_of(pages: np.ndarray, reserved: np.ndarray | None) -> int | None:
    """Where `pages` stands as a slice of `reserved`; None where it does not, or where the start is ambiguous."""
    if reserved is None or not len(pages) or not len(reserved):
        return None
    if pages is reserved:
        return 0
    offset = 0
    if reserved[0] != pages[0]:
        starts = np.flatnonzero(reserved == pages[0])
        if len(starts) != 1:
            return None
        offset = int(starts[0])
    return offset if reserved[offset : offset + len(pages)].tobytes() == pages.tobytes() else None


def _fingerprints(lists: Sequence[tuple[int, int, int, np.ndarray]]) -> Iterator[int]:
    """Of (place, offset, tag, pages) each, computed in runs that stay in the cache."""
    start = 0
    while start < len(lists):
        end, pages = start, 0
        while end < len(lists) and pages < FINGERPRINTED_AT_ONCE:
            pages += len(lists[end][3])
            end += 1
        run, start = lists[start:end], end
        lengths = np.array([len(one[3]) for one in run])
        tags = np.array([one[2] for one in run], np.int64)
        yield from fingerprints(np.concatenate([one[3] for one in run]), lengths, tags).tolist()
