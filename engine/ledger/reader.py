"""The reader: sealed segments and open streams of a ledger as one set of tables, with what is missing or broken.

Invariant: reading never writes. A file that does not hold is reported and its rows are gaps; what holds is read
all the same. Rows that stand in two places are one row.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from engine.ledger.epochs import last_epochs
from engine.ledger.errors import LedgerError
from engine.ledger.gaps import Chain, ChainEnds, Gap, chains_of, find_gaps
from engine.ledger.manifest import SegmentLine, read_manifest
from engine.ledger.schema import TABLES
from engine.ledger.stream import is_locked, read_stream
from engine.ledger.versions import to_present

__all__ = ["Gap", "Ledger", "LedgerError", "Problem", "WriterState", "read_ledger"]

LOSS, BROKEN = "loss", "broken"
SEALED, OPEN, DEAD = "sealed", "open", "dead"


@dataclass(frozen=True)
class Problem:
    """Something wrong with the ledger's files. severity 'broken': the evidence contradicts itself (exit 3)."""

    kind: str
    severity: str
    where: str
    what: str
    remedy: str


@dataclass(frozen=True)
class WriterState:
    """One worker epoch. state: 'sealed' (closed, whole end known), 'open' (alive), 'dead' (ended without a close)."""

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
    """A ledger as read; `tables` have `worker` and the schema columns, sorted by (worker, epoch, seq)."""

    path: Path
    tables: dict[str, pa.Table]
    writers: tuple[WriterState, ...]
    gaps: tuple[Gap, ...]
    problems: tuple[Problem, ...]
    manifest_roots: dict[str, str] = field(default_factory=dict)


@dataclass
class _Part:
    """Rows of one table from one file, and where they came from."""

    table: str
    rows: pa.Table


class _Reading:
    """Collects parts and problems while a ledger is read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.parts: list[_Part] = []
        self.problems: list[Problem] = []
        self.ends: dict[tuple[str, int], dict[Chain, int]] = defaultdict(dict)
        self.closed: set[tuple[str, int]] = set()
        self.ordinals: dict[tuple[str, int], int] = {}
        self.alive: set[tuple[str, int]] = set()
        self.fsync_ms: dict[tuple[str, int], int] = {}
        self.seen: set[tuple[str, int]] = set()
        self.roots: dict[str, str] = {}

    def problem(self, kind: str, severity: str, where: Path | str, what: str, remedy: str) -> None:
        self.problems.append(Problem(kind, severity, str(where), what, remedy))

    def manifests(self) -> None:
        listed: set[str] = set()
        for path in sorted((self.path / "manifest").glob("*.jsonl")):
            content = read_manifest(path)
            self.roots[path.stem] = hashlib.sha256(path.read_bytes()).hexdigest()
            for what in content.problems:
                self.problem(
                    "manifest", BROKEN, path, what, "compare with a copy or the last published root; do not edit it"
                )
            for line in content.lines:
                listed.add(line.path)
                self._segment(line)
        for path in sorted(self.path.glob("*/day=*/worker=*/*.parquet")):
            if path.parts[-4] in TABLES and str(path.relative_to(self.path)) not in listed:
                what = "no manifest line names this segment; it was not read"
                self.problem(
                    "orphan",
                    LOSS,
                    path,
                    what,
                    "left by a crash while sealing, or its line was removed; compare manifests",
                )

    def _segment(self, line: SegmentLine) -> None:
        key = (line.worker, line.epoch)
        self.seen.add(key)
        self.ordinals[key] = line.ordinal
        for pool, seq in line.chains.items():
            chain = (line.table, pool or None)
            self.ends[key][chain] = max(self.ends[key].get(chain, 0), seq)
        if line.ends:
            self.close(key, line.ends)
        path = self.path / line.path
        if line.table not in TABLES or not path.resolve().is_relative_to(self.path.resolve()):
            self.problem(
                "manifest", BROKEN, path, "the manifest names a file outside the ledger's tables", "do not use it"
            )
            return
        if not path.is_file():
            what = f"segment of {line.rows} {line.table} rows (seq {line.first_seq} to {line.last_seq}) is gone"
            self.problem(
                "missing segment", LOSS, path, what, "restore the file from a copy; its SHA-256 is in the manifest"
            )
            return
        rows = self._parquet(path, line)
        if rows is not None:
            self.parts.append(_Part(line.table, _with_worker(rows, line.worker)))

    def close(self, key: tuple[str, int], ends: dict[str, int]) -> None:
        """Note that a worker epoch closed, and the last seq of each chain ("table" or "table/pool")."""
        self.closed.add(key)
        for name, seq in ends.items():
            table, _, pool = name.partition("/")
            chain = (table, pool or None)
            self.ends[key][chain] = max(self.ends[key].get(chain, 0), seq)

    def _parquet(self, path: Path, line: SegmentLine) -> pa.Table | None:
        remedy = "restore the file from a copy; its SHA-256 is in the manifest"
        try:
            data = path.read_bytes()
            if hashlib.sha256(data).hexdigest() != line.sha256:
                self.problem(
                    "corrupt segment", LOSS, path, "its SHA-256 is not the manifest's; it was not read", remedy
                )
                return None
            with pq.ParquetFile(io.BytesIO(data), page_checksum_verification=True) as file:
                rows = file.read()
            return to_present(line.table, rows, line.schema_version)
        except (OSError, pa.ArrowException, LedgerError, KeyError) as error:
            self.problem("corrupt segment", LOSS, path, f"cannot be read: {error}", remedy)
            return None

    def streams(self) -> None:
        for path in sorted((self.path / "wal").glob("*.wal")):
            # The lock is tested first: a writer that dies in between is then seen alive with all its rows.
            try:
                alive = is_locked(path)
                content = read_stream(path)
            except FileNotFoundError:
                continue  # sealed and removed meanwhile: its rows are in the manifest, which is read next
            name, _, number = path.stem.rpartition("-")
            key = (name, int(number)) if number.isdigit() else (path.stem, 0)
            self.seen.add(key)
            if alive:
                self.alive.add(key)
            if content.problem is not None and not (alive and content.header):
                self.problem(
                    "torn stream", LOSS, path, content.problem, "rows behind it are lost; what is before it was read"
                )
            if not content.header:
                continue
            self.ordinals[key] = content.header["ordinal"]
            self.fsync_ms[key] = content.header["fsync_ms"]
            for table, batch in content.batches:
                rows = to_present(table, pa.Table.from_batches([batch]), content.header["schema_version"])
                self.parts.append(_Part(table, _with_worker(rows, name)))

    def epochs(self) -> None:
        for worker, last in last_epochs(self.path).items():
            for epoch in range(1, last + 1):
                if (worker, epoch) not in self.seen:
                    self.seen.add((worker, epoch))
                    what = f"epoch {epoch} of {worker} left neither stream nor segments"
                    self.problem(
                        "missing epoch", LOSS, self.path / "epochs" / worker, what, "look for its files elsewhere"
                    )


def read_ledger(path: Path | str) -> Ledger:
    """Read a ledger; every segment is hashed first. Raises LedgerError where there is no ledger."""
    path = Path(path)
    _check_directory(path)
    reading = _Reading(path)
    reading.streams()  # first: rows that are being sealed meanwhile are then in the manifest at the latest
    reading.manifests()
    reading.epochs()
    tables = {table: _joined(table, reading) for table in TABLES}
    writers, gaps = _writers(tables, reading)
    return Ledger(path, tables, tuple(writers), tuple(gaps), tuple(reading.problems), reading.roots)


def _check_directory(path: Path) -> None:
    if not path.exists():
        raise LedgerError(
            f"{path}: no such directory; give the directory that the engine writes its ledger to (--ledger)"
        )
    if not path.is_dir():
        raise LedgerError(f"{path}: is a file; a ledger is a directory")
    if not any((path / name).is_dir() for name in ("epochs", "wal", "manifest")):
        raise LedgerError(f"{path}: holds no ledger (no epochs/, wal/ or manifest/); is it the right directory?")


def _with_worker(rows: pa.Table, worker: str) -> pa.Table:
    return rows.add_column(0, "worker", pa.array([worker] * rows.num_rows, pa.string()))


def _joined(table: str, reading: _Reading) -> pa.Table:
    """All parts of one table, sorted, duplicates dropped; same key with different content is broken evidence."""
    parts = [part.rows for part in reading.parts if part.table == table]
    if not parts:
        schema = pa.schema([("worker", pa.string()), *TABLES[table]])
        return schema.empty_table()
    rows = pa.concat_tables(parts, promote_options="default")
    rows = rows.sort_by([("worker", "ascending"), ("epoch", "ascending"), ("seq", "ascending")]).combine_chunks()
    if rows.num_rows < 2:
        return rows
    same = pc.and_(
        pc.equal(rows["worker"][1:], rows["worker"][:-1]),
        pc.and_(pc.equal(rows["epoch"][1:], rows["epoch"][:-1]), pc.equal(rows["seq"][1:], rows["seq"][:-1])),
    ).to_pylist()
    if not any(same):
        return rows
    for i, duplicate in enumerate(same):
        if duplicate and rows.slice(i, 1).to_pylist() != rows.slice(i + 1, 1).to_pylist():
            where = f"{rows['worker'][i]}, epoch {rows['epoch'][i]}, seq {rows['seq'][i]}"
            what = f"two different {table} rows claim one place: {where}"
            reading.problem(
                "contradiction", BROKEN, reading.path, what, "one of the files was changed; compare with copies"
            )
    return rows.filter(pa.array([True, *(not duplicate for duplicate in same)]))


def _writers(tables: dict[str, pa.Table], reading: _Reading) -> tuple[list[WriterState], list[Gap]]:
    chains: dict[tuple[str, int], dict[Chain, list[tuple[int, int, int]]]] = defaultdict(dict)
    for table, rows in tables.items():
        for key, part in _by_writer(rows):
            chains[key] |= chains_of(table, part)
    for row in tables["workers"].filter(pc.equal(tables["workers"]["op"], "close")).to_pylist():
        ends = dict(zip(row["chains"] or (), row["chain_seqs"] or (), strict=True))
        reading.close((row["worker"], row["epoch"]), ends)
    seen_by_peers = _peer_seen(tables["workers"])
    writers, gaps = [], []
    for key in sorted({*chains, *reading.seen, *reading.ends}):
        state = OPEN if key in reading.alive else SEALED if key in reading.closed else DEAD
        tail = "open tail (writer alive)" if state == OPEN else "dead writer"
        known = ChainEnds(dict(reading.ends.get(key, {})), state == SEALED, tail)
        gaps += find_gaps(*key, chains.get(key, {}), known)
        seqs = [seq for rows in chains.get(key, {}).values() for seq, _, _ in (rows[0], rows[-1])]
        first, last = min(seqs, default=0), max(seqs, default=0)
        seen = seen_by_peers.get(key)
        if state == SEALED and seen is not None and seen > last:
            what = f"{key[0]} epoch {key[1]} closed at seq {last}, yet a peer saw its seq {seen}"
            reading.problem("contradiction", BROKEN, reading.path, what, "its record was cut short and closed again")
        writers.append(
            WriterState(*key, reading.ordinals.get(key), first, last, state, reading.fsync_ms.get(key), seen)
        )
    return writers, gaps


def _by_writer(rows: pa.Table) -> list[tuple[tuple[str, int], pa.Table]]:
    if not rows.num_rows:
        return []
    workers, epochs = rows["worker"].to_pylist(), rows["epoch"].to_pylist()
    found, start = [], 0
    for i in range(1, len(workers) + 1):
        if i == len(workers) or (workers[i], epochs[i]) != (workers[start], epochs[start]):
            found.append(((workers[start], epochs[start]), rows.slice(start, i - start)))
            start = i
    return found


def _peer_seen(workers: pa.Table) -> dict[tuple[str, int], int]:
    beats = workers.filter(pc.and_(pc.equal(workers["op"], "heartbeat"), pc.is_valid(workers["peer_seq"])))
    found: dict[tuple[str, int], int] = {}
    for peer, epoch, seq in zip(
        beats["peer"].to_pylist(), beats["peer_epoch"].to_pylist(), beats["peer_seq"].to_pylist(), strict=True
    ):
        if peer is not None and epoch is not None:
            found[peer, epoch] = max(found.get((peer, epoch), 0), seq)
    return found


def tail_of(path: Path) -> str:
    """A cheap fingerprint of a ledger's files (names, sizes, times): changes when there is something new to read."""
    files = [*path.glob("wal/*.wal"), *path.glob("manifest/*.jsonl")]
    stats = sorted((str(f), s.st_size, s.st_mtime_ns) for f in files if (s := f.stat()))
    return hashlib.sha256(json.dumps(stats).encode()).hexdigest()
