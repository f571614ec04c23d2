"""What loss does to a verdict: ledgers with rows taken out, in memory, under the gaps that their chains then show."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pyarrow as pa

from engine.ledger.gaps import Gap, KnownEnds, WriterRows, find_gaps
from engine.ledger.reader import Ledger
from forensics.foreign_reads import ForeignReads, foreign_reads

DRAWN_PAIRS = 3
Place = tuple[str, str, int]
"""(worker, table, seq)."""


class Surgery:
    """A ledger, one epoch a worker and closed where there is any record of it, from which rows can be taken."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.rows: dict[Place, tuple[int, str]] = {}
        """Place -> (position in its table, op)."""
        for name, table in ledger.tables.items():
            columns = (table[column].to_pylist() for column in ("worker", "seq", "op"))
            for i, (worker, seq, op) in enumerate(zip(*columns, strict=True)):
                self.rows[worker, name, seq] = (i, op)
        self._ends = {worker: _chains(ledger.tables, worker) for worker in {worker for worker, _, _ in self.rows}}

    def places(self) -> Iterator[Place]:
        """Every row but the closes, which hold no event."""
        return (place for place, (_, op) in self.rows.items() if op != "close")

    def without(self, *lost: Place) -> Ledger:
        """The ledger that is left."""
        by_table: dict[str, list[int]] = defaultdict(list)
        for place in lost:
            by_table[place[1]].append(self.rows[place][0])
        tables = self.ledger.tables | {name: _cut(self.ledger.tables[name], at) for name, at in by_table.items()}
        cut = {worker for worker, _, _ in lost}
        gaps: list[Gap] = [gap for gap in self.ledger.gaps if gap.worker not in cut]
        for worker in sorted(cut):
            ends = {chain: rows.last(chain) for rows in (self._ends[worker],) for chain in rows.chains}
            gaps += find_gaps(worker, 1, _chains(tables, worker), KnownEnds(ends, True, ""))
        return replace(self.ledger, tables=tables, gaps=tuple(gaps))

    def one_of_each_kind(self, seed: str) -> list[Place]:
        """One row, drawn, of each operation of each table."""
        kinds: dict[tuple[str, str], list[Place]] = defaultdict(list)
        for place in self.places():
            kinds[place[1], self.rows[place][1]].append(place)
        source = random.Random(seed)
        return [source.choice(places) for places in kinds.values()]

    def neighbours(self) -> list[tuple[Place, Place]]:
        """Every two rows of which one follows the other in its worker's table."""
        chains: dict[tuple[str, str], list[Place]] = defaultdict(list)
        for place in sorted(self.places()):
            chains[place[:2]].append(place)
        return [pair for chain in chains.values() for pair in pairwise(chain)]

    def some_neighbours(self, seed: str) -> list[tuple[Place, Place]]:
        """A few of them, drawn, one of them of transfers (where there are any)."""
        source, pairs = random.Random(seed), self.neighbours()
        moved = [pair for pair in pairs if pair[0][1] == "transfers"]
        return source.sample(pairs, min(len(pairs), DRAWN_PAIRS - 1)) + source.sample(moved, min(len(moved), 1))

    def row(self, place: Place) -> dict[str, Any]:
        """The row that stands at a place, without its nulls."""
        (row,) = self.ledger.tables[place[1]].slice(self.rows[place][0], 1).to_pylist()
        return {key: value for key, value in row.items() if value is not None}


def _cut(table: pa.Table, places: list[int]) -> pa.Table:
    bounds = [-1, *sorted(places), len(table)]
    parts = [table.slice(a + 1, b - a - 1) for a, b in pairwise(bounds)]
    return pa.concat_tables(parts).combine_chunks()


def _chains(tables: dict[str, pa.Table], worker: str) -> WriterRows:
    mine: dict[str, pa.Table] = {}
    for name, table in tables.items():
        workers = table["worker"].to_pylist()
        if worker in workers:  # rows stand sorted by worker
            mine[name] = table.slice(workers.index(worker), workers.count(worker))
    return WriterRows(mine)


def responses(ledger: Ledger, engine: str = "replay") -> tuple[ForeignReads, dict[str, dict[str, Any]]]:
    """The verdicts of a ledger, by rid."""
    reads = foreign_reads(ledger, engine=engine)
    return reads, {row["rid"]: row for row in reads.responses.to_pylist()}


def assert_loss_only_unsettles(ledger: Ledger, seed: str | None = None) -> int:
    """Take out each row and each two neighbours in turn, with a seed only some: verdicts move to unknown only, donors only
    get fewer. Returns how many moved.

    What was exposed by bytes that it never read (no first step) may be cleared by a lost heartbeat or post: whether
    they landed in its life is then undecided.
    """
    _, whole = responses(ledger)
    surgery, moved = Surgery(ledger), 0
    alone = surgery.places() if seed is None else surgery.one_of_each_kind(seed)
    pairs = surgery.neighbours() if seed is None else surgery.some_neighbours(seed)
    for lost in (*((place,) for place in alone), *pairs):
        reads, now = responses(surgery.without(*lost))
        rows = [surgery.row(place) for place in lost]
        for rid, before in whole.items():
            after = now.get(rid)
            if after is None:
                assert reads.unattributed != 0, (lost, rid)
                continue
            same = after["verdict"] == before["verdict"]
            passed_by = before["verdict"] == "exposed" and before["first_step"] is None
            passed_by = passed_by and any(row["op"] in ("heartbeat", "post") for row in rows)
            allowed = {"unknown", "clean"} if passed_by else {"unknown"}
            assert same or after["verdict"] in allowed, (rows, before, after)
            assert set(after["donors"]) <= set(before["donors"]), (rows, before, after)
            moved += not same
    return moved
