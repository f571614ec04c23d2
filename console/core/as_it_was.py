"""The record as it stood at a moment: what a replay shows.

Invariant: of every worker epoch the rows before the first one that was written later, and nothing of what came after; a
worker that wrote on is one that still writes. Judged anew from those rows alone, so that no verdict knows what came later.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from console.core.snapshot import Snapshot
from engine.ledger.gaps import Gap, KnownEnds, WriterRows, find_gaps
from engine.ledger.reader import OPEN, TAIL_REASONS, Ledger, WriterState, rows_by_writer
from forensics.foreign_reads import foreign_reads

_NEVER = np.iinfo(np.int64).max


def snapshot_at(whole: Snapshot, t_us: int) -> Snapshot:
    """What a reading at `t_us` would have shown. Judged by the replay alone, as a living ledger is."""
    ledger = ledger_at(whole.ledger, t_us)
    reads = foreign_reads(ledger, engine="replay")
    return Snapshot(ledger, reads, t_us, f"{whole.fingerprint}@{t_us}")


def ledger_at(ledger: Ledger, t_us: int) -> Ledger:
    """The ledger with the rows that were there at `t_us` (us UTC, each by its own worker's clock)."""
    states = {(state.worker, state.epoch): state for state in ledger.writers}
    parts: dict[str, list[pa.Table]] = {name: [] for name in ledger.tables}
    writers: list[WriterState] = []
    gaps: list[Gap] = []
    for writer, tables in sorted(rows_by_writer(ledger.tables).items()):
        cut = _first_later(tables, t_us)
        if cut == _NEVER:
            kept = tables
            writers += [states[writer]]
            gaps += [gap for gap in ledger.gaps if (gap.worker, gap.epoch) == writer]
        else:
            kept = {
                name: rows.slice(0, int(np.searchsorted(rows["seq"].to_numpy(), cut))) for name, rows in tables.items()
            }
            kept = {name: rows for name, rows in kept.items() if rows.num_rows}
            if not kept:
                continue  # it had not begun
            rows = WriterRows(kept)
            first, last = int(rows.seqs[0]), int(rows.seqs[-1])
            writers.append(replace(states[writer], first_seq=first, last_seq=last, state=OPEN, peer_seen_seq=None))
            gaps += find_gaps(*writer, rows, KnownEnds({}, False, TAIL_REASONS[OPEN]))
        for name, rows in kept.items():
            parts[name].append(rows)
    joined = {
        name: pa.concat_tables(found) if found else ledger.tables[name].slice(0, 0) for name, found in parts.items()
    }
    return replace(ledger, tables=joined, writers=tuple(writers), gaps=tuple(gaps))


def _first_later(tables: dict[str, pa.Table], t_us: int) -> int:
    """The seq of the first row that was not there yet; a run of passes is written when it ends."""
    first = _NEVER
    for rows in tables.values():
        written = rows["t"].cast(pa.int64()).to_numpy()
        if "t_end" in rows.column_names:
            written = np.maximum(written, rows["t_end"].cast(pa.int64()).fill_null(0).to_numpy())
        later = np.flatnonzero(written > t_us)
        if len(later):
            first = min(first, int(rows["seq"].to_numpy()[later[0]]))
    return first
