"""The reader: sealed segments and open streams of a ledger as one set of tables, with what is missing or broken.

Invariant: reading never writes. A file that does not hold is reported and its rows are gaps; what holds is read
all the same. Rows that stand in two places are one row.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from engine.ledger.absent import absent_epochs
from engine.ledger.errors import LedgerError
from engine.ledger.files import LedgerFiles, Writer
from engine.ledger.gaps import Gap, KnownEnds, WriterRows, find_gaps
from engine.ledger.joining import join_parts
from engine.ledger.problems import BROKEN, Problem
from engine.ledger.schema import TABLES

__all__ = ["Gap", "Ledger", "LedgerError", "Problem", "WriterState", "read_ledger", "rows_by_writer"]

PLACES = frozenset({"epochs", "wal", "manifest"})
"""Of which a ledger's directory holds one at least."""
SEALED, OPEN, DEAD = "sealed", "open", "dead"
TAIL_REASONS = {OPEN: "open tail (writer alive)", DEAD: "dead writer", SEALED: ""}
"""Why the end of a chain is not known."""
_DAMAGED_TAIL = "damaged stream"


@dataclass(frozen=True)
class WriterState:
    """One worker epoch. state: 'sealed' (closed, whole end known), 'open' (alive), 'dead' (ended without a close, or alive
    behind damage to its stream).

    `first_seq`, `last_seq`: readable rows, 0 = none. `fsync_ms`: what a crash of its machine may have lost.
    `peer_seen_seq`: the highest seq that a peer's heartbeat saw of it.
    """

    worker: str
    epoch: int
    ordinal: int | None
    first_seq: int
    last_seq: int
    state: str
    fsync_ms: int | None
    peer_seen_seq: int | None


@dataclass(frozen=True)
class Ledger:
    """A ledger as read.

    `files_read`: segments and streams whose rows are in `tables`.
    `tables`: all of `schema.TABLES`, `worker` (string) before the schema's columns, unknown columns behind them,
    sorted by (worker, epoch, seq). `manifest_roots`: by worker, the hash that its manifest's chain ends in.
    """

    path: Path
    tables: dict[str, pa.Table]
    writers: tuple[WriterState, ...]
    gaps: tuple[Gap, ...]
    problems: tuple[Problem, ...]
    manifest_roots: dict[str, str] = field(default_factory=dict)
    files_read: int = 0


def read_ledger(path: Path | str, *, verify: bool = True, counted: Callable[[int, int], None] | None = None) -> Ledger:
    """Read a ledger; with `verify` every segment is hashed once. Raises LedgerError where there is no ledger.

    `counted` hears, as they are read, how many segments are done and of how many.
    """
    path = _ledger_in(Path(path))
    _check_directory(path)
    files = LedgerFiles(path, verify, counted)
    files.read()
    tables = {}
    for table in TABLES:
        joined = join_parts(table, [part for part in files.parts if part.table == table])
        tables[table] = joined.rows
        for worker, epoch, seq in joined.claimed_twice:
            what = f"two different {table} rows claim {worker}, epoch {epoch}, seq {seq}"
            files.tell("contradiction", BROKEN, path, what, "one of the files was changed; compare with copies")
    for absent in absent_epochs(tables, files.seen, files.last_epochs):
        files.tell_absent(absent)
    writers, gaps = _writers(tables, files)
    return Ledger(path, tables, tuple(writers), tuple(gaps), tuple(files.problems), files.roots, len(files.read_files))


def _ledger_in(path: Path) -> Path:
    """The directory itself, or the `ledger` in it where it holds none of its own."""
    inner = path / "ledger"
    is_around = inner.is_dir() and not any((path / name).is_dir() for name in PLACES)
    return inner if is_around else path


def _check_directory(path: Path) -> None:
    try:
        names = {child.name for child in path.iterdir() if child.is_dir()}
    except FileNotFoundError:
        what = "no such directory; give the directory that the engine writes its ledger to (--ledger)"
        raise LedgerError(f"{path}: {what}") from None
    except NotADirectoryError:
        raise LedgerError(f"{path}: is a file; a ledger is a directory (give the one that holds wal/)") from None
    except OSError as error:
        raise LedgerError(f"{path}: cannot be read: {error.strerror}; check its permissions") from None
    if not names & PLACES:
        raise LedgerError(f"{path}: holds no ledger (no epochs/, wal/ or manifest/); is it the right directory?")


def _writers(tables: dict[str, pa.Table], files: LedgerFiles) -> tuple[list[WriterState], list[Gap]]:
    _note_close_rows(tables["workers"], files)
    rows_of = rows_by_writer(tables)
    seen_by_peers = _peer_seen(tables["workers"])
    writers, gaps = [], []
    for writer in sorted({*rows_of, *files.seen, *files.ends}):
        # Whoever lives behind damage is as good as dead: what it writes there will never be readable.
        state = SEALED if writer in files.closed else OPEN if writer in files.alive - files.damaged else DEAD
        tail_reason = _DAMAGED_TAIL if state == DEAD and writer in files.damaged else TAIL_REASONS[state]
        rows = WriterRows(rows_of.get(writer, {}))
        known = KnownEnds(files.ends.get(writer, {}), state == SEALED, tail_reason, files.lost.get(writer, ()))
        gaps += find_gaps(*writer, rows, known)
        first, last = (int(rows.seqs[0]), int(rows.seqs[-1])) if len(rows.seqs) else (0, 0)
        seen = seen_by_peers.get(writer)
        contradictions = rows.contradictions()
        end = max([last, *known.ends.values()])
        if state == SEALED and end < max(seen or 0, last):
            contradictions.append(f"it closed at seq {end}, yet a peer saw its seq {seen}")
        for what in contradictions:
            words = f"{writer[0]} epoch {writer[1]}: {what}"
            files.tell("contradiction", BROKEN, files.path, words, "its record was changed; compare with copies")
        ordinal, fsync_ms = files.ordinals.get(writer), files.fsync_ms.get(writer)
        writers.append(WriterState(*writer, ordinal, first, last, state, fsync_ms, seen))
    return writers, gaps


def _note_close_rows(workers: pa.Table, files: LedgerFiles) -> None:
    for row in workers.filter(pc.equal(workers["op"], "close")).to_pylist():
        ends = dict(zip(row["chains"] or (), row["chain_seqs"] or (), strict=False))
        files.note_close((row["worker"], row["epoch"]), ends)


def rows_by_writer(tables: dict[str, pa.Table]) -> dict[Writer, dict[str, pa.Table]]:
    """Rows of every worker epoch by table, of tables that are sorted by (worker, epoch, seq); tables without rows are left out."""
    found: dict[Writer, dict[str, pa.Table]] = {}
    for table, rows in tables.items():
        if not rows.num_rows:
            continue
        workers = rows["worker"].combine_chunks().dictionary_encode().indices.to_numpy()
        epochs = rows["epoch"].to_numpy()
        changes = np.flatnonzero((workers[1:] != workers[:-1]) | (epochs[1:] != epochs[:-1])) + 1
        starts = [0, *changes.tolist(), rows.num_rows]
        for start, end in itertools.pairwise(starts):
            part = rows.slice(start, end - start)
            found.setdefault((part["worker"][0].as_py(), part["epoch"][0].as_py()), {})[table] = part
    return found


def _peer_seen(workers: pa.Table) -> dict[Writer, int]:
    beats = workers.filter(pc.and_(pc.equal(workers["op"], "heartbeat"), pc.is_valid(workers["peer_seq"])))
    beats = beats.filter(pc.and_(pc.is_valid(beats["peer"]), pc.is_valid(beats["peer_epoch"])))
    highest = beats.group_by(["peer", "peer_epoch"]).aggregate([("peer_seq", "max")]).to_pylist()
    return {(row["peer"], row["peer_epoch"]): row["peer_seq_max"] for row in highest}
