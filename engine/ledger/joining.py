"""Joining what several files hold of one table: in (worker, epoch, seq) order, one row per place.

Invariant: neither the order of files, nor rows that stand in two of them, nor where a row is stored changes the
result. Two different rows that claim one place are told; the one of the file given first is kept.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from engine.ledger.schema import TABLES


@dataclass(frozen=True)
class Part:
    """Rows of one table and one worker epoch from one file, present schema, `worker` first."""

    table: str
    worker: str
    epoch: int
    rows: pa.Table


@dataclass(frozen=True)
class Joined:
    """The rows, and the places (worker, epoch, seq) that different rows claim."""

    rows: pa.Table
    claimed_twice: tuple[tuple[str, int, int], ...]


def join_parts(table: str, parts: list[Part]) -> Joined:
    """All parts of one table as one."""
    if not parts:
        return Joined(pa.schema([("worker", pa.string()), *TABLES[table]]).empty_table(), ())
    parts = sorted(parts, key=lambda part: (part.worker, part.epoch))
    rows = pa.concat_tables([part.rows for part in parts], promote_options="default")
    writers = [(part.worker, part.epoch) for part in parts]
    ranks = {writer: rank for rank, writer in enumerate(sorted(set(writers)))}
    rank = np.repeat([ranks[writer] for writer in writers], [part.rows.num_rows for part in parts])
    seq = rows["seq"].to_numpy()
    order = np.lexsort((seq, rank))
    if not np.array_equal(order, np.arange(len(order))):
        rows, seq, rank = rows.take(order), seq[order], rank[order]
    repeats = np.flatnonzero((seq[1:] == seq[:-1]) & (rank[1:] == rank[:-1])) + 1
    if not len(repeats):
        return Joined(rows, ())
    keep = np.ones(len(seq), bool)
    keep[repeats] = False
    return Joined(rows.filter(pa.array(keep)), _claimed_twice(rows, repeats))


def _claimed_twice(rows: pa.Table, repeats: np.ndarray) -> tuple[tuple[str, int, int], ...]:
    later, earlier = rows.take(repeats), rows.take(repeats - 1)
    if later.equals(earlier):
        return ()
    places = []
    for i in range(later.num_rows):
        row = later.slice(i, 1)
        if not row.equals(earlier.slice(i, 1)):
            places.append((row["worker"][0].as_py(), row["epoch"][0].as_py(), row["seq"][0].as_py()))
    return tuple(dict.fromkeys(places))
