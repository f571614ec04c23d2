"""Tensor-parallel workers: each rank is a worker of its own in the ledger, and all of them do the same things.

One role decides for all ranks of a worker, which is known among roles by the worker's own name; what it records is
recorded by every rank, under the rank's name, with the rank's tags and the peers' ranks that it deals with.

Invariant: ranks of a worker are in lock-step: each records as many rows for one row of the role, so the same row has
the same seq on every rank, and a tag differs between ranks in its ordinal alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.defences import DETECTORS, PAGE_TAG
from engine.ledger.recorder import Recorder
from engine.ledger.tag import make_tag, split_tag

TAGS = ("tag", "xfer", "src_tag", "dst_tag")
Columns = dict[str, Any]


@dataclass(frozen=True)
class Ranks:
    """The ranks of one worker: ordinals of consecutive recorders, the first of which leads."""

    worker: str
    size: int
    ordinal: int

    def name(self, rank: int) -> str:
        """A rank's name in the ledger."""
        return rank_name(self.worker, self.size, rank)

    def tag(self, tag: int, rank: int) -> int:
        """What a tag of the first rank is on another one."""
        parts = split_tag(tag)
        return make_tag(self.ordinal + rank, parts.epoch, parts.seq) if tag else tag

    def partners(self, rank: int, peer: Ranks) -> range:
        """Ranks of a peer that hold a share of what this rank holds. Raises ValueError where shares do not nest."""
        few, many = sorted((self.size, peer.size))
        if many % few:
            raise ValueError(f"{self.worker} has {self.size} ranks and {peer.worker} {peer.size}: shares do not nest")
        if self.size >= peer.size:
            return range(rank * peer.size // self.size, rank * peer.size // self.size + 1)
        each = peer.size // self.size
        return range(rank * each, (rank + 1) * each)

    def part(self, rank: int, peer: Ranks) -> tuple[int, int]:
        """Which part, of how many, of a peer's page this rank fills."""
        parts = max(self.size // peer.size, 1)
        return rank % parts, parts


def rank_name(worker: str, size: int, rank: int) -> str:
    """A rank's name; a worker of one rank is that rank."""
    return worker if size == 1 else f"{worker}-r{rank}"


class RankedRows:
    """What a row of a role is on each rank. `known` finds the ranks of any worker by its name."""

    def __init__(self, own: Ranks, known: Callable[[str], Ranks | None]) -> None:
        self._own, self._known = own, known

    def of(self, rank: int, table: str, op: str, columns: Columns) -> Iterator[Columns]:
        """Columns of the rows of one rank, in order."""
        own, row = self._own, dict(columns)
        if table == "workers" and op == "start":
            row |= {"ordinal": own.ordinal + rank, "tp_rank": rank, "tp_size": own.size}
        peer = self._known(row["peer"]) if row.get("peer") is not None else None
        if peer is None or peer.worker == own.worker:
            if peer is not None:
                row["peer"] = own.name(rank)
            yield self._tagged(row, {own.ordinal: (own, rank)})
        elif op == "heartbeat":
            yield from ({**row, "peer": peer.name(each)} for each in range(peer.size))
        elif op == "grant":
            writers = [peer.name(each) for each in own.partners(rank, peer)]
            yield self._tagged({**row, "peer": writers[0], "writers": writers}, {own.ordinal: (own, rank)})
        else:
            yield from self._with_partners(rank, op, row, peer)

    def _with_partners(self, rank: int, op: str, row: Columns, peer: Ranks) -> Iterator[Columns]:
        """A transfer row for each partner of a rank."""
        own = self._own
        part, parts = own.part(rank, peer)
        if parts > 1 and op in ("post", "done", "fail"):
            row |= {"part": part, "parts": parts}
        for each in own.partners(rank, peer):
            yield self._tagged({**row, "peer": peer.name(each)}, {own.ordinal: (own, rank), peer.ordinal: (peer, each)})

    @staticmethod
    def _tagged(row: Columns, places: dict[int, tuple[Ranks, int]]) -> Columns:
        for name in TAGS:
            tag = row.get(name)
            if tag:
                ranks, rank = places.get(split_tag(tag).ordinal, (None, 0))
                row[name] = ranks.tag(tag, rank) if ranks is not None else tag
        return row


def _of_one(op: str, columns: Columns, struck: bool) -> tuple[str, Columns]:
    """Op and columns of a row that tells of one rank alone, for that rank or for another, which keeps step with it."""
    if op == "fail":
        return ("fail", {**columns, "bytes": 0}) if struck else ("done", _without(columns, "status"))
    if op == "mismatch" and not struck:
        return "passed", {name: columns[name] for name in ("detector", "req", "pool") if name in columns} | {"n": 0}
    return op, columns


def _without(columns: Columns, name: str) -> Columns:
    return {key: value for key, value in columns.items() if key != name}


class RankedRecorder(Recorder):
    """The recorder of a worker's first rank, which has the others record what it records."""

    followers: Sequence[Recorder] = ()
    rows: RankedRows

    def lead(self, followers: Sequence[Recorder], rows: RankedRows) -> None:
        """From now on record for other ranks too. Nothing has been recorded yet."""
        self.followers, self.rows = tuple(followers), rows

    def record(self, table: str, op: str, **columns: Any) -> int:
        """See `Recorder`. The seq is that of the first of the rank's rows."""
        struck = columns.pop("rank", None)
        if struck is None and table == "checks" and columns.get("detector") == DETECTORS[PAGE_TAG]:
            struck = 0
        first = None
        for rank, record in enumerate((super().record, *(one.record for one in self.followers))):
            told, given = (op, columns) if struck is None else _of_one(op, columns, rank == struck)
            for row in self.rows.of(rank, table, told, given):
                seq = record(table, told, **row)
                first = seq if first is None else first
        if any(one.seq != self.seq for one in self.followers):
            raise RuntimeError(f"{self.worker}: its ranks are out of step after {table}/{op}")
        return first if first is not None else self.seq

    def pages(self, op: str, pool: str, req: int, tag: int, pages: np.ndarray, **columns: Any) -> int:
        """See `Recorder`."""
        return self.record("pages", op, pool=pool, req=req, tag=tag, pages=pages, **columns)

    def reserve(self, pool: str, req: int, pages: np.ndarray, *, pos: int = 0, **columns: Any) -> int:
        """See `Recorder`."""
        return self._new_tag("reserve", pool, req, pages, pos=pos, **columns)

    def append(self, pool: str, req: int, pages: np.ndarray, *, pos: int, **columns: Any) -> int:
        """See `Recorder`."""
        return self._new_tag("append", pool, req, pages, pos=pos, **columns)

    def _new_tag(self, op: str, pool: str, req: int, pages: np.ndarray, **columns: Any) -> int:
        with self.lock:
            tag = make_tag(self.ordinal, self.epoch, self.seq + 1)
            self.pages(op, pool, req, tag, pages, **columns)
        return tag

    def flush(self) -> int:
        """See `Recorder`."""
        for one in self.followers:
            one.flush()
        return super().flush()

    def close(self, seal: bool = True) -> None:
        """See `Recorder`."""
        followers, self.followers = self.followers, ()  # from here on each tells of itself
        for one in followers:
            one.close(seal)
        super().close(seal)

    def abandon(self) -> None:
        """See `Recorder`."""
        for one in self.followers:
            one.abandon()
        super().abandon()
