"""Gaps: which rows of which chain are missing, from `seq`, `prev` and the ends that `close` and the manifest give.

Invariant: a missing seq counts against a chain only where that chain's `prev` is broken across it, or where the
chain's end is not known. Nothing is repaired.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from engine.ledger.schema import POOL_TABLES, TABLE_NAMES

Chain = tuple[str, str | None]
"""(table, pool)."""

MISSING_ROWS = "missing rows"


@dataclass(frozen=True)
class Gap:
    """Rows with after_seq < seq < before_seq of this chain are missing (before_seq None: its end is not known).

    `after_t`, `before_t`: microseconds UTC of the worker's nearest readable rows on both sides, None = none there.
    """

    worker: str
    epoch: int
    table: str
    pool: str | None
    after_seq: int
    before_seq: int | None
    reason: str
    after_t: int | None = None
    before_t: int | None = None


@dataclass(frozen=True)
class ChainEnds:
    """What is known of the ends of a worker epoch's chains; `closed` = no chain goes on behind these."""

    ends: dict[Chain, int]
    closed: bool
    tail_reason: str


def chains_of(table: str, rows: pa.Table) -> dict[Chain, list[tuple[int, int, int]]]:
    """(seq, prev, t us) of every row by chain, in seq order. `rows`: one worker epoch, sorted by seq."""
    found: dict[Chain, list[tuple[int, int, int]]] = {}
    pools = rows["pool"].to_pylist() if table in POOL_TABLES else [None] * rows.num_rows
    times = rows["t"].cast(pa.int64()).to_pylist()
    for pool, seq, prev, t in zip(pools, rows["seq"].to_pylist(), rows["prev"].to_pylist(), times, strict=True):
        found.setdefault((table, pool), []).append((seq, prev, t))
    return found


def find_gaps(worker: str, epoch: int, chains: dict[Chain, list[tuple[int, int, int]]], known: ChainEnds) -> list[Gap]:
    """Gaps of one worker epoch."""
    times = {seq: t for rows in chains.values() for seq, _, t in rows}
    ordered = sorted(times)
    gaps = [gap for chain, rows in sorted(chains.items(), key=_name) for gap in _breaks(worker, epoch, chain, rows)]
    for chain, end in sorted(known.ends.items(), key=_name):
        last = chains[chain][-1][0] if chain in chains else 0
        if last < end:
            gaps.append(Gap(worker, epoch, *chain, last, end + 1, MISSING_ROWS))
    if not known.closed:
        open_chains: Iterable[Chain] = {*chains, *known.ends, *((table, None) for table in TABLE_NAMES)}
        for chain in sorted(open_chains, key=lambda c: (c[0], c[1] or "")):
            last = max(known.ends.get(chain, 0), chains[chain][-1][0] if chain in chains else 0)
            gaps.append(Gap(worker, epoch, *chain, last, None, known.tail_reason))
    return [_with_times(gap, ordered, times) for gap in gaps]


def _name(item: tuple[Chain, object]) -> tuple[str, str]:
    return item[0][0], item[0][1] or ""


def _breaks(worker: str, epoch: int, chain: Chain, rows: list[tuple[int, int, int]]) -> list[Gap]:
    gaps, before = [], 0
    for seq, prev, _ in rows:
        if prev != before:
            gaps.append(Gap(worker, epoch, *chain, before, seq, MISSING_ROWS))
        before = seq
    return gaps


def _with_times(gap: Gap, ordered: list[int], times: dict[int, int]) -> Gap:
    i = bisect_right(ordered, gap.after_seq) - 1
    j = bisect_left(ordered, gap.before_seq) if gap.before_seq is not None else len(ordered)
    after = times[ordered[i]] if i >= 0 else None
    before = times[ordered[j]] if j < len(ordered) else None
    return Gap(gap.worker, gap.epoch, gap.table, gap.pool, gap.after_seq, gap.before_seq, gap.reason, after, before)
