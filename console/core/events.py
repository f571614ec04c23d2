"""Rows of all tables of a ledger as one list of events in time, page by page.

Invariant: a page costs the same however long the record is: places are found by key, never by counting, and a filter
looks at `MAX_SEARCHED` rows at most before it says how far it came. Only `all` goes through the whole range, for files.
Order: time, then worker, epoch, seq.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from console.core.filter_language import Filter
from console.core.filter_rows import filter_rows
from console.core.sheet import SOURCE
from console.core.time_range import Span
from engine.ledger.reader import Ledger
from engine.ledger.schema import TABLE_NAMES

Ints = NDArray[np.int64]
PAGE = 100
MAX_SEARCHED = 16_384
_BLOCK = 2048
_SAYS: dict[str, tuple[str, ...]] = {
    "workers": ("role", "engine", "pool_pages", "peer"),
    "requests": ("status", "reason", "prompt_tokens", "output_tokens", "limit_tokens"),
    "pages": ("cause", "deadline"),
    "transfers": ("peer", "status", "outstanding", "asked"),
    "cache": ("tier", "asked", "returned"),
    "steps": ("step", "batch", "tokens"),
    "checks": ("detector", "expected", "found", "action"),
    "gauges": ("free", "held", "quarantined", "in_transfer"),
}
"""Columns of which the words about a row are made, as `name value`."""
COLUMNS = pa.schema(
    [
        ("t", pa.timestamp("us", tz="UTC")), ("worker", pa.string()), ("epoch", pa.int32()), ("seq", pa.int64()),
        ("table", pa.string()), ("op", pa.string()), ("pool", pa.string()), ("rid", pa.string()), ("tenant", pa.string()),
        ("pages", pa.int64()), ("says", pa.string()),
    ]
)  # fmt: skip


@dataclass(frozen=True, order=True)
class EventKey:
    """The place of one event; places are ordered as events are. `source`: of which ledger, where those of several stand
    together.
    """

    t_us: int
    source: str = field(default="", kw_only=True)
    worker: str
    epoch: int
    seq: int


@dataclass(frozen=True)
class EventPage:
    """Events in order. `hidden`: by the filter, of those that were searched. `earlier` and `later`: where to go on;
    None = there are none. `total`: events in the range, before the filter.
    """

    rows: pa.Table
    hidden: int
    earlier: EventKey | None
    later: EventKey | None
    total: int


class Events:
    """The events of one reading of a ledger. `names`: where the `receive` rows of requests stand, if not in it."""

    columns = COLUMNS

    def __init__(self, ledger: Ledger, names: pa.Table | None = None) -> None:
        self._tables = [_picked_of(name, ledger.tables[name]) for name in TABLE_NAMES]
        self._requests = ledger.tables["requests"] if names is None else names

    @cached_property
    def _workers(self) -> list[str]:
        names: set[str] = set()
        for table in self._tables:
            names |= set(table["worker"].unique().to_pylist())
        return sorted(names)

    @cached_property
    def _placed(self) -> tuple[Ints, Ints, Ints]:
        """Of every event in order: its time, its table and its row there."""
        times = [_numbers(table["t"]) for table in self._tables]
        which = np.repeat(np.arange(len(times)), [len(t) for t in times])
        rows = np.concatenate([np.arange(len(t)) for t in times])
        codes = np.concatenate([self._codes(table["worker"]) for table in self._tables])
        epochs = np.concatenate([_numbers(table["epoch"]) for table in self._tables])
        seqs = np.concatenate([_numbers(table["seq"]) for table in self._tables])
        t = np.concatenate(times)
        order = np.lexsort((seqs, epochs, codes, t))
        return t[order], which[order], rows[order]

    @property
    def times(self) -> Ints:
        """When every event was, in order, us."""
        return self._placed[0]

    def _codes(self, column: pa.ChunkedArray) -> Ints:
        return _numbers(pc.index_in(column, value_set=pa.array(self._workers, pa.string())))

    def __len__(self) -> int:
        return len(self._placed[0])

    def before(self, key: EventKey | None, wanted: Filter, span: Span, now_us: int, n: int = PAGE) -> EventPage:
        """The last `n` events before `key` (None = before the end of the range). Raises FilterError."""
        low, high = self._bounds(span)
        stop = high if key is None else min(max(self._place(key), low), high)
        kept: list[pa.Table] = []
        found, at, hidden = 0, stop, 0
        while at > low and found < n and stop - at < MAX_SEARCHED:
            start = max(at - _BLOCK, low)
            left = filter_rows(wanted, self._rows(start, at), now_us).rows
            more = left.slice(max(len(left) - (n - found), 0))
            at = start if len(more) == len(left) else self._place(key_at(left.slice(len(left) - len(more)), 0))
            kept.insert(0, more)
            found += len(more)
        hidden = stop - at - found
        return EventPage(
            _joined(kept),
            hidden,
            self._at(at) if at > low else None,
            self._at(stop) if stop < high else None,
            high - low,
        )

    def after(self, key: EventKey | None, wanted: Filter, span: Span, now_us: int, n: int = PAGE) -> EventPage:
        """The first `n` events from `key` on (None = from the beginning of the range). Raises FilterError."""
        low, high = self._bounds(span)
        start = low if key is None else min(max(self._place(key), low), high)
        kept: list[pa.Table] = []
        found, at = 0, start
        while at < high and found < n and at - start < MAX_SEARCHED:
            stop = min(at + _BLOCK, high)
            left = filter_rows(wanted, self._rows(at, stop), now_us).rows
            more = left.slice(0, n - found)
            at = stop if len(more) == len(left) else self._place(key_at(more, len(more) - 1)) + 1
            kept.append(more)
            found += len(more)
        hidden = at - start - found
        return EventPage(
            _joined(kept),
            hidden,
            key if start > low else None,
            self._at(at) if at < high else None,
            high - low,
        )

    def all(self, wanted: Filter, span: Span, now_us: int) -> Iterator[pa.Table]:
        """Every event of the range that the filter leaves, in order, some thousands at a time. Raises FilterError."""
        low, high = self._bounds(span)
        kept: list[pa.Table] = []
        for at in range(low, high, _BLOCK):
            kept.append(filter_rows(wanted, self._rows(at, min(at + _BLOCK, high)), now_us).rows)
            if sum(map(len, kept)) >= MAX_SEARCHED:
                yield _joined(kept)
                kept = []
        if any(map(len, kept)):
            yield _joined(kept)

    def between(self, start: EventKey | None, end: EventKey | None, span: Span) -> int:
        """How many events of the range stand from `start` on and before `end`; None = as far as the range goes."""
        low, high = self._bounds(span)
        first = low if start is None else min(max(self._place(start), low), high)
        return max((high if end is None else min(max(self._place(end), low), high)) - first, 0)

    def _bounds(self, span: Span) -> tuple[int, int]:
        times = self._placed[0]
        low = 0 if span.start_us is None else int(np.searchsorted(times, span.start_us))
        high = len(times) if span.end_us is None else int(np.searchsorted(times, span.end_us))
        return low, max(low, high)

    def _at(self, place: int) -> EventKey:
        t, which, row = (int(column[place]) for column in self._placed)
        table = self._tables[which]
        return EventKey(t, table["worker"][row].as_py(), table["epoch"][row].as_py(), table["seq"][row].as_py())

    def _place(self, key: EventKey) -> int:
        """How many events stand before `key`."""
        times = self._placed[0]
        low, high = (int(np.searchsorted(times, key.t_us, side)) for side in ("left", "right"))
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if self._at(middle) < key else (low, middle)
        return low

    def _rows(self, start: int, stop: int) -> pa.Table:
        """Events [start, stop) in order."""
        _, which, rows = (column[start:stop] for column in self._placed)
        parts, places = [], []
        for code, name in enumerate(TABLE_NAMES):
            here = np.flatnonzero(which == code)
            if len(here):
                parts.append(self._unified(name, self._tables[code].take(pa.array(rows[here]))))
                places.append(here)
        if not parts:
            return COLUMNS.empty_table()
        return pa.concat_tables(parts).take(pa.array(np.argsort(np.concatenate(places))))

    def _unified(self, name: str, rows: pa.Table) -> pa.Table:
        names = rows.column_names
        rids, tenants = self._names(rows) if "req" in names else (_nulls(rows, pa.string()), _nulls(rows, pa.string()))
        values: dict[str, Any] = {
            "table": pa.repeat(name, len(rows)), "rid": rids, "tenant": tenants, "pages": _pages(rows), "says": _says(name, rows),
        }  # fmt: skip
        return pa.table(
            {
                f.name: values[f.name]
                if f.name in values
                else rows[f.name]
                if f.name in names
                else _nulls(rows, f.type)
                for f in COLUMNS
            },
            COLUMNS,
        )

    @cached_property
    def _received(self) -> tuple[Ints, pa.ChunkedArray, pa.ChunkedArray]:
        """Requests by their key, with rid and tenant."""
        rows = self._requests.filter(pc.equal(self._requests["op"], "receive"))
        keys = self._request_keys(rows)
        order = np.argsort(keys, kind="stable")
        return keys[order], rows["rid"].take(pa.array(order)), rows["tenant"].take(pa.array(order))

    def _request_keys(self, rows: pa.Table) -> Ints:
        return (
            self._codes(rows["worker"]) << 50 | _numbers(rows["epoch"]) << 38 | _numbers(pc.fill_null(rows["req"], 0))
        )

    def _names(self, rows: pa.Table) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
        known, rids, tenants = self._received
        if not len(known):
            return _nulls(rows, pa.string()), _nulls(rows, pa.string())
        keys = self._request_keys(rows)
        at = np.minimum(np.searchsorted(known, keys), len(known) - 1)
        place = pa.array(at, mask=(known[at] != keys) | pc.is_null(rows["req"]).to_numpy())
        return rids.take(place), tenants.take(place)


def key_at(rows: pa.Table, at: int) -> EventKey:
    """The key of one of the rows."""
    return keys_of(rows.slice(at, 1))[0]


def keys_of(rows: pa.Table) -> tuple[EventKey, ...]:
    """The keys of all of them."""
    columns = [rows["t"].cast(pa.int64()), *(rows[name] for name in ("worker", "epoch", "seq"))]
    sources = rows[SOURCE].to_pylist() if SOURCE in rows.column_names else [""] * len(rows)
    places = zip(*(column.to_pylist() for column in columns), sources, strict=True)
    return tuple(EventKey(t, worker, epoch, seq, source=source) for t, worker, epoch, seq, source in places)


def _picked_of(name: str, table: pa.Table) -> pa.Table:
    """What events are made of, in one piece: rows of as many pieces as there are writers are slow to pick."""
    wanted = {*COLUMNS.names, "req", "n", *_SAYS[name]}
    is_list = pa.types.is_list
    return table.select([f.name for f in table.schema if f.name in wanted and not is_list(f.type)]).combine_chunks()


def _joined(parts: list[pa.Table]) -> pa.Table:
    return pa.concat_tables(parts) if parts else COLUMNS.empty_table()


def _numbers(column: pa.ChunkedArray) -> Ints:
    return np.asarray(column.cast(pa.int64()).to_numpy(), np.int64)


def _nulls(rows: pa.Table, kind: pa.DataType) -> pa.ChunkedArray:
    return pa.chunked_array([pa.nulls(len(rows), kind)])


def _pages(rows: pa.Table) -> pa.ChunkedArray:
    return rows["n"].cast(pa.int64()) if "n" in rows.column_names else _nulls(rows, pa.int64())


def _says(name: str, rows: pa.Table) -> pa.ChunkedArray:
    parts = []
    for column in _SAYS[name]:
        text = rows[column].cast(pa.string())
        parts.append(pc.binary_join_element_wise(column, text, " "))
    # Arrow drops a row of which every part is null, so one part is there always.
    there = pa.repeat("", len(rows))
    return pc.utf8_ltrim(pc.binary_join_element_wise(there, *parts, ", ", null_handling="skip"), ", ")
