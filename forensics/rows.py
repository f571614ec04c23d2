"""Ledger rows as Python values: workers, requests and page operations with their page lists resolved.

Invariant: nothing here decides anything; a value that the ledger does not hold stays None.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from engine.ledger.reader import Ledger
from engine.ledger.refs import expand_pages
from engine.ledger.schema import PAGE_LIST

WorkerKey = tuple[str, int]
Row = dict[str, Any]
Pages = Sequence[int]
"""A page list of a row: a view of the column that holds it, never copied (nor its numbers boxed until one is asked for)."""
Ints = NDArray[np.int64]


def rows_of(table: pa.Table, *, pages_as_views: bool = False) -> list[Row]:
    """The table's rows in order, times as integer microseconds; with `pages_as_views`, page lists as `Pages`."""
    columns = {}
    for name in table.column_names:
        column = table[name]
        is_view = pages_as_views and column.type == PAGE_LIST
        columns[name] = _page_lists(column) if is_view else _values(column)
    names = list(columns)
    return [dict(zip(names, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _values(column: pa.ChunkedArray) -> list[Any]:
    """What `to_pylist` gives, times as integers; by way of numpy, which boxes numbers many times faster."""
    kind = column.type
    if column.null_count == len(column):
        return [None] * len(column)
    if pa.types.is_timestamp(kind):
        column, kind = column.cast(pa.int64()), pa.int64()
    if pa.types.is_string(kind):
        coded = column.combine_chunks().dictionary_encode()
        words = coded.dictionary.to_pylist()
        return [None if code is None else words[code] for code in _values(pa.chunked_array([coded.indices]))]
    if not pa.types.is_integer(kind):
        return column.to_pylist()
    if not column.null_count:
        return column.to_numpy().tolist()
    boxed = column.fill_null(0).to_numpy().astype(object)
    boxed[column.is_null().to_numpy()] = None
    return boxed.tolist()


def key_of(row: Row) -> WorkerKey:
    """(worker, epoch) of a row."""
    return row["worker"], row["epoch"]


def _page_lists(column: pa.ChunkedArray) -> list[Pages | None]:
    """The lists of a column, each a view of its values; a null is None."""
    lists = column.combine_chunks()
    numbers: Any = np.ascontiguousarray(lists.values.to_numpy()) if len(lists) else np.empty(0, np.int32)
    values = memoryview(numbers)
    bounds = lists.offsets.to_pylist()
    known = lists.is_valid().to_pylist()
    return [values[bounds[i] : bounds[i + 1]] if known[i] else None for i in range(len(lists))]


def as_ints(pages: Pages | None) -> Ints:
    """A page list as int64."""
    return np.empty(0, np.int64) if pages is None else np.asarray(pages, np.int64)


@dataclass(frozen=True)
class PageSpan:
    """The token range [tok_lo, tok_hi) that a row covers in each of the pages at `index` (int64) of its list."""

    pages: Ints
    index: Ints
    tok_lo: int
    tok_hi: int


def spans(pages: Pages, tok_off: int | None, tokens: int | None, page_tokens: int) -> Iterator[PageSpan]:
    """Cut a row's token range into pages: `tokens` tokens from `tok_off` in the first page; None = whole pages.

    Pages that are covered alike come together: at most the first, those between, and the last.
    """
    if not tok_off and tokens is None and page_tokens > 0:
        if len(pages):
            yield PageSpan(as_ints(pages), np.arange(len(pages)), 0, page_tokens)
        return
    start = tok_off or 0
    stop = len(pages) * page_tokens if tokens is None else start + tokens
    numbers = as_ints(pages)
    index = np.arange(len(numbers))
    lo, hi = np.maximum(start - index * page_tokens, 0), np.minimum(stop - index * page_tokens, page_tokens)
    bounds = [0, *(np.flatnonzero((np.diff(lo) != 0) | (np.diff(hi) != 0)) + 1).tolist(), len(numbers)]
    for first, last in pairwise(bounds):
        if first < last and lo[first] < hi[first]:
            yield PageSpan(numbers[first:last], index[first:last], int(lo[first]), int(hi[first]))


@dataclass
class WorkerRows:
    """Everything one worker epoch recorded, by table, in seq order."""

    key: WorkerKey
    role: str = ""
    ordinal: int | None = None
    page_tokens: dict[str, int] = field(default_factory=dict)
    configs: dict[str, Row] = field(default_factory=dict)
    start: Row | None = None
    requests: list[Row] = field(default_factory=list)
    pages: list[Row] = field(default_factory=list)
    transfers: list[Row] = field(default_factory=list)
    cache: list[Row] = field(default_factory=list)
    steps: list[Row] = field(default_factory=list)
    heartbeats: list[Row] = field(default_factory=list)
    checks: list[Row] = field(default_factory=list)
    seqs: list[int] = field(default_factory=list)

    @property
    def ranks(self) -> int:
        """Tensor-parallel ranks that this worker is one of."""
        return (self.start["tp_size"] if self.start is not None else None) or 1

    def unit(self, pool: str) -> int:
        """Slots a page of `pool` is told apart in: its tokens; 1 where a page is whole or not there at all."""
        return self.page_tokens.get(pool, 1)

    def spans(self, pool: str, pages: Pages, row: Row) -> Iterator[PageSpan]:
        """What a row covers of `pages`: its token range; of pages that hold no tokens always the whole."""
        if pool not in self.page_tokens:
            return spans(pages, None, None, 1)
        return spans(pages, row["tok_off"], row["tokens"], self.page_tokens[pool])


def worker_rows(ledger: Ledger) -> dict[WorkerKey, WorkerRows]:
    """Rows of every worker epoch, keyed by (worker, epoch)."""
    found: dict[WorkerKey, WorkerRows] = {}
    for state in ledger.writers:
        key = (state.worker, state.epoch)
        found[key] = WorkerRows(key, ordinal=state.ordinal)

    def at(key: WorkerKey) -> WorkerRows:
        if key not in found:
            found[key] = WorkerRows(key)
        return found[key]

    def of(row: Row) -> WorkerRows:
        return at((row["worker"], row["epoch"]))

    for row in rows_of(ledger.tables["workers"]):
        _apply_worker_row(of(row), row)
    tables = {name: ledger.tables[name] for name in ("requests", "transfers", "cache", "steps", "checks")}
    for name, table in (tables | {"pages": expand_pages(ledger.tables["pages"])}).items():
        for row in rows_of(table, pages_as_views=True):
            getattr(of(row), name).append(row)
    for key, seqs in _seqs(list(ledger.tables.values())).items():
        at(key).seqs = seqs
    return found


def _seqs(tables: list[pa.Table]) -> dict[WorkerKey, list[int]]:
    """The seq of every row of every worker epoch, ascending."""
    rows = pa.concat_tables(
        [table.select(["worker", "epoch", "seq"]) for table in tables], promote_options="permissive"
    )
    workers = rows["worker"].combine_chunks().dictionary_encode()
    names, worker = workers.dictionary.to_pylist(), workers.indices.to_numpy().astype(np.int64)
    epoch, seq = (rows[name].to_numpy().astype(np.int64) for name in ("epoch", "seq"))
    order = np.lexsort((seq, epoch, worker))
    worker, epoch, seq = worker[order], epoch[order], seq[order]
    is_first = np.r_[True, (worker[1:] != worker[:-1]) | (epoch[1:] != epoch[:-1])] if len(order) else np.empty(0, bool)
    bounds = [*np.flatnonzero(is_first).tolist(), len(order)]
    return {(names[worker[a]], int(epoch[a])): seq[a:b].tolist() for a, b in pairwise(bounds)}


def _apply_worker_row(worker: WorkerRows, row: Row) -> None:
    if row["op"] == "start":
        worker.start = row
        worker.role = row["role"] or ""
        worker.ordinal = row["ordinal"] if row["ordinal"] is not None else worker.ordinal
    if row["op"] in ("start", "config") and row["pool"] is not None:
        worker.configs[row["pool"]] = row
    if row["pool"] is not None and row["page_tokens"]:
        worker.page_tokens[row["pool"]] = row["page_tokens"]
    if row["op"] == "heartbeat":
        worker.heartbeats.append(row)
