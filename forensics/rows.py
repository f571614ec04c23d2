"""Ledger rows as Python values: workers, requests and page operations with their page lists resolved.

Invariant: nothing here decides anything; a value that the ledger does not hold stays None.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from engine.ledger.reader import Ledger
from engine.ledger.refs import expand_pages

WorkerKey = tuple[str, int]
Row = dict[str, Any]


def rows_of(table: pa.Table) -> list[Row]:
    """The table's rows in order, times as integer microseconds."""
    columns = {}
    for name in table.column_names:
        column = table[name]
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.int64())
        columns[name] = column.to_pylist()
    names = list(columns)
    return [dict(zip(names, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def key_of(row: Row) -> WorkerKey:
    """(worker, epoch) of a row."""
    return row["worker"], row["epoch"]


@dataclass(frozen=True)
class PageSpan:
    """The token range [tok_lo, tok_hi) of one page that a row covers; `index` is the page's place in the row."""

    page: int
    index: int
    tok_lo: int
    tok_hi: int


def spans(pages: list[int], tok_off: int | None, tokens: int | None, page_tokens: int) -> Iterator[PageSpan]:
    """Cut a row's token range into pages: `tokens` tokens from `tok_off` in the first page; None = whole pages."""
    start = tok_off or 0
    stop = len(pages) * page_tokens if tokens is None else start + tokens
    for index, page in enumerate(pages):
        base = index * page_tokens
        lo, hi = max(start - base, 0), min(stop - base, page_tokens)
        if lo < hi:
            yield PageSpan(page, index, lo, hi)


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

    def spans(self, pool: str, pages: list[int], row: Row) -> Iterator[PageSpan]:
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

    def of(row: Row) -> WorkerRows:
        return found.setdefault(key_of(row), WorkerRows(key_of(row)))

    for row in rows_of(ledger.tables["workers"]):
        _apply_worker_row(of(row), row)
    for row in rows_of(ledger.tables["requests"]):
        of(row).requests.append(row)
    for row in rows_of(expand_pages(ledger.tables["pages"])):
        of(row).pages.append(row)
    for row in rows_of(ledger.tables["transfers"]):
        of(row).transfers.append(row)
    for row in rows_of(ledger.tables["cache"]):
        of(row).cache.append(row)
    for row in rows_of(ledger.tables["steps"]):
        of(row).steps.append(row)
    for row in rows_of(ledger.tables["checks"]):
        of(row).checks.append(row)
    for table in ledger.tables.values():
        columns = (table[name].to_pylist() for name in ("worker", "epoch", "seq"))
        for worker, epoch, seq in zip(*columns, strict=True):
            found.setdefault((worker, epoch), WorkerRows((worker, epoch))).seqs.append(seq)
    for rows in found.values():
        rows.seqs.sort()
    return found


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
