"""From what was observed to rows of one worker's ledger: requests get their number, units become pages.

Invariant: a request has one number in a worker's epoch, under its rid or its room, whichever came first; the row that
gives the number is its `receive`. A value that the ledger cannot hold is left out and counted, never changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from engine.adapters.notes import Notes
from engine.adapters.observed import Observed, Unseen
from engine.ledger.recorder import Recorder
from engine.ledger.schema import TABLES

WITH_REQUEST = frozenset({name for name, schema in TABLES.items() if "req" in schema.names})
MOST_OPEN = 1 << 18
"""Bound on requests whose names are remembered at once; the oldest is forgotten first."""
_TOKENS = {"used_tokens": "used", "free_tokens": "free", "cached_tokens": "cached"}


class LedgerRows:
    """Writes observations of one worker through its recorder. `page_tokens`: tokens in a page, None = not known."""

    def __init__(self, recorder: Recorder, notes: Notes, page_tokens: int | None = None) -> None:
        self.recorder, self.page_tokens = recorder, page_tokens
        self._notes = notes
        self._by_rid: dict[str, int] = {}
        self._by_room: dict[int, int] = {}
        self._attempts: dict[str, int] = {}
        self._last = 0

    def write(self, said: Observed | Unseen) -> int | None:
        """One row, or its loss; the seq of a row."""
        if isinstance(said, Unseen):
            self.recorder.miss(said.table, rows=said.rows)
            return None
        columns = dict(said.columns)
        if said.table in WITH_REQUEST:
            columns["req"] = self._number(said, columns)
        if said.room is not None and "room" in TABLES[said.table].names:
            columns["room"] = said.room
        if said.table == "gauges":
            self._in_pages(columns)
        if "slot" in columns:
            columns["page"] = self._page_of(columns.pop("slot"))
        fitting = self._fitting(said.table, columns)
        if said.t_us is not None:
            fitting["t"] = said.t_us
        return self.recorder.record(said.table, said.op, **fitting)

    def request(self, rid: str | None, room: int | None = None) -> int | None:
        """The number of a request that was met before; None where it was not."""
        by_rid = self._by_rid.get(rid) if rid is not None else None
        return by_rid if by_rid is not None or room is None else self._by_room.get(room)

    def forget(self, rid: str) -> None:
        """A request is over: what comes under its rid next is another attempt."""
        self._by_rid.pop(rid, None)

    def _number(self, said: Observed, columns: dict[str, Any]) -> int | None:
        known = self.request(said.rid, said.room)
        if said.table == "requests" and said.op == "receive":
            known = self._new(said.rid, said.room)  # a second one is another attempt
            columns |= {"rid": said.rid, "attempt": self._attempts.get(said.rid or "", 1), "choice": 0}
        elif known is None and said.rid is not None:
            known = self._new(said.rid, said.room)
            received: dict[str, Any] = {"req": known, "rid": said.rid, "room": said.room, "choice": 0}
            if said.t_us is not None:
                received["t"] = said.t_us
            self.recorder.record("requests", "receive", **received, attempt=self._attempts.get(said.rid, 1))
        if known is not None and said.room is not None:
            self._by_room.setdefault(said.room, known)
        return known

    def _new(self, rid: str | None, room: int | None) -> int:
        self._last += 1
        if rid is not None:
            self._by_rid[rid] = self._last
            self._attempts[rid] = self._attempts.get(rid, 0) + 1
            if len(self._by_rid) > MOST_OPEN:
                self._by_rid.pop(next(iter(self._by_rid)))
        if room is not None:
            self._by_room[room] = self._last
            if len(self._by_room) > MOST_OPEN:
                self._by_room.pop(next(iter(self._by_room)))
        return self._last

    def _in_pages(self, columns: dict[str, Any]) -> None:
        """Token counts as pages, where the size of a page is known."""
        for tokens, pages in _TOKENS.items():
            value = columns.pop(tokens, None)
            if value is None:
                continue
            if self.page_tokens:
                columns[pages] = -(-value // self.page_tokens)
            else:
                self._notes.unread["token counts without a page size"] += 1

    def _page_of(self, slot: int | None) -> int | None:
        return slot // self.page_tokens if slot is not None and slot >= 0 and self.page_tokens else None

    def _fitting(self, table: str, columns: Mapping[str, Any]) -> dict[str, Any]:
        schema = TABLES[table]
        fitting = {}
        for name, value in columns.items():
            if _fits(value, schema.field(name).type):
                fitting[name] = value
            else:
                fitting[name] = None
                self._notes.skipped[f"{table}.{name} is out of the ledger's range"] += 1
        return fitting


def _fits(value: object, kind: pa.DataType) -> bool:
    if type(value) is int and pa.types.is_integer(kind):
        most = 1 << (int(kind.bit_width) - 1)
        return -most <= value < most
    return True
