"""Gaps: which rows of which chain are missing, from `seq`, `prev` and the ends that `close` and the manifest give.

Invariant: a missing seq counts against a chain only where that chain's `prev` is broken across it, or where the
chain's end is not known. Nothing is repaired.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
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
class LostSegment:
    """A sealed segment that the manifest lists and that could not be read."""

    table: str
    first_seq: int
    last_seq: int
    reason: str


@dataclass(frozen=True)
class KnownEnds:
    """What is known of a worker epoch besides its rows; `closed` = no chain goes on behind `ends`."""

    ends: dict[Chain, int]
    closed: bool
    tail_reason: str
    lost: Sequence[LostSegment] = ()


class WriterRows:
    """The rows of one worker epoch as chains (seq, prev) and as one clock (seq, t)."""

    def __init__(self, tables: dict[str, pa.Table]) -> None:
        """`tables`: rows of one worker epoch by table, sorted by seq."""
        self.chains: dict[Chain, tuple[np.ndarray, np.ndarray]] = {}
        for table, rows in tables.items():
            self._split(table, rows)
        seqs = np.concatenate([rows["seq"].to_numpy() for rows in tables.values()] or [np.empty(0, np.int64)])
        times = [rows["t"].cast(pa.int64()).to_numpy() for rows in tables.values()]
        order = np.argsort(seqs, kind="stable")
        self.seqs: np.ndarray = seqs[order]
        self.times: np.ndarray = np.concatenate(times or [np.empty(0, np.int64)])[order]

    def last(self, chain: Chain) -> int:
        """Last readable seq of a chain, 0 where it has no row."""
        return int(self.chains[chain][0][-1]) if chain in self.chains else 0

    def contradictions(self) -> list[str]:
        """Rows that cannot both be true: one seq in two tables, or a row where a chain says there is none."""
        found = [f"seq {seq} stands in two tables" for seq in np.unique(self.seqs[1:][self.seqs[1:] == self.seqs[:-1]])]
        for (table, pool), (seqs, prevs) in self.chains.items():
            before = _before(seqs)
            for i in np.flatnonzero(prevs < before):
                name = table if pool is None else f"{table}/{pool}"
                found.append(f"{name} seq {seqs[i]} follows {prevs[i]} by its own word, yet {before[i]} lies between")
        return found

    def _split(self, table: str, rows: pa.Table) -> None:
        seqs, prevs = rows["seq"].to_numpy(), rows["prev"].to_numpy()
        if table not in POOL_TABLES:
            self.chains[table, None] = (seqs, prevs)
            return
        encoded = rows["pool"].combine_chunks().dictionary_encode()
        codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        for code in np.unique(codes):
            pool = None if code < 0 else encoded.dictionary[int(code)].as_py()
            self.chains[table, pool] = (seqs[codes == code], prevs[codes == code])


def find_gaps(worker: str, epoch: int, rows: WriterRows, known: KnownEnds) -> list[Gap]:
    """Gaps of one worker epoch, by chain, then by seq."""
    gaps = []
    for chain in sorted({*rows.chains, *known.ends}, key=_name):
        if chain in rows.chains:
            seqs, prevs = rows.chains[chain]
            before = _before(seqs)
            for i in np.flatnonzero(prevs != before):
                gaps.append(Gap(worker, epoch, *chain, int(before[i]), int(seqs[i]), MISSING_ROWS))
        last, end = rows.last(chain), known.ends.get(chain, 0)
        if last < end:
            gaps.append(Gap(worker, epoch, *chain, last, end + 1, MISSING_ROWS))
    if not known.closed:
        open_chains: set[Chain] = {*rows.chains, *known.ends, *((table, None) for table in TABLE_NAMES)}
        for chain in sorted(open_chains, key=_name):
            last = max(known.ends.get(chain, 0), rows.last(chain))
            gaps.append(Gap(worker, epoch, *chain, last, None, known.tail_reason))
    return [_dated(_with_reason(gap, known.lost), rows) for gap in gaps]


def _name(chain: Chain) -> tuple[str, str]:
    return chain[0], chain[1] or ""


def _before(seqs: np.ndarray) -> np.ndarray:
    return np.concatenate([np.zeros(1, np.int64), seqs[:-1]])


def _with_reason(gap: Gap, lost: Sequence[LostSegment]) -> Gap:
    if gap.before_seq is None:
        return gap
    for segment in lost:
        if segment.table == gap.table and segment.first_seq < gap.before_seq and gap.after_seq < segment.last_seq:
            return replace(gap, reason=segment.reason)
    return gap


def _dated(gap: Gap, rows: WriterRows) -> Gap:
    before = len(rows.seqs)
    after = int(np.searchsorted(rows.seqs, gap.after_seq, side="right")) - 1
    if gap.before_seq is not None:
        before = int(np.searchsorted(rows.seqs, gap.before_seq))
    return replace(
        gap,
        after_t=int(rows.times[after]) if after >= 0 else None,
        before_t=int(rows.times[before]) if before < len(rows.seqs) else None,
    )
