"""What a ledger's files hold: segments that their manifest line vouches for, and streams up to their last commit.

Invariant: nothing is written. A file that does not hold is reported and left out; what it should have held is
kept as ends and lost segments, so that gaps can be told from it.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path

import pyarrow as pa

from engine.ledger.absent import AbsentEpochs
from engine.ledger.bounded import TooLarge, read_segment
from engine.ledger.epochs import MOST_EPOCHS, epoch_of, last_epochs
from engine.ledger.errors import LedgerError
from engine.ledger.gaps import Chain, LostSegment
from engine.ledger.joining import Part
from engine.ledger.manifest import SegmentLine, read_manifest
from engine.ledger.problems import BROKEN, LOSS, Problem
from engine.ledger.schema import TABLES
from engine.ledger.stream import is_locked, read_stream
from engine.ledger.versions import to_present

Writer = tuple[str, int]
"""(worker, epoch)."""

RESTORE = "restore the file from a copy; its SHA-256 is in the manifest"
COMPARE = "compare with a copy or the last published root; do not edit it"


class LedgerFiles:
    """Collects, file by file, the rows of a ledger and what is wrong with it."""

    def __init__(self, path: Path, verify: bool, counted: Callable[[int, int], None] | None) -> None:
        self.path = path
        self.parts: list[Part] = []
        self.problems: list[Problem] = []
        self.seen: set[Writer] = set()
        self.alive: set[Writer] = set()
        self.damaged: set[Writer] = set()
        self.closed: set[Writer] = set()
        self.ordinals: dict[Writer, int] = {}
        self.fsync_ms: dict[Writer, int] = {}
        self.ends: dict[Writer, dict[Chain, int]] = defaultdict(dict)
        self.lost: dict[Writer, list[LostSegment]] = defaultdict(list)
        self.last_epochs: dict[str, int] = {}
        self.roots: dict[str, str] = {}
        self.read_files: set[Path] = set()
        self._verify = verify
        self._counted = counted

    def read(self) -> None:
        """Read everything. Streams first: rows that are sealed meanwhile are then in the manifest at the latest."""
        self._streams()
        self._manifests()
        self._epochs()

    def tell(self, kind: str, severity: str, where: Path | str, what: str, remedy: str) -> None:
        """Add a problem."""
        self.problems.append(Problem(kind, severity, str(where), what, remedy))

    def note_close(self, writer: Writer, ends: dict[str, int]) -> None:
        """Note that a worker epoch closed, and the last seq of each chain ("table" or "table/pool")."""
        self.closed.add(writer)
        for name, seq in ends.items():
            table, _, pool = name.partition("/")
            self._note_end(writer, (table, pool or None), seq)

    def _note_end(self, writer: Writer, chain: Chain, seq: int) -> None:
        self.ends[writer][chain] = max(self.ends[writer].get(chain, 0), seq)

    def _streams(self) -> None:
        for path in sorted((self.path / "wal").glob("*.wal")):
            try:
                # The lock is tested first: a writer that dies in between is then seen alive with all its rows.
                alive = is_locked(path)
                content = read_stream(path)
            except FileNotFoundError:
                continue  # sealed and removed meanwhile: its rows are in the manifest, which is read next
            except OSError as error:
                self.tell("unreadable stream", LOSS, path, f"cannot be read: {error.strerror}", "check its permissions")
                continue
            name, _, number = path.stem.rpartition("-")
            epoch = epoch_of(number) if name else None
            writer = (path.stem, 0) if epoch is None else (name, epoch)
            self.seen.add(writer)
            if alive:
                self.alive.add(writer)
            if content.damaged:
                self.damaged.add(writer)
            if content.problem is not None and (content.damaged or not alive):
                remedy = "rows behind it are lost; what is before it was read"
                self.tell("torn stream", LOSS, path, content.problem, remedy)
            if not content.header:
                continue
            header = content.header
            if (header["worker"], header["epoch"]) != writer:
                what = f"its header is of {header['worker']} epoch {header['epoch']}; it was not read"
                self.tell("contradiction", BROKEN, path, what, "give the file its own name again")
                continue
            self.ordinals[writer], self.fsync_ms[writer] = header["ordinal"], header["fsync_ms"]
            for table, batch in content.batches:
                self._take(path, writer, table, pa.Table.from_batches([batch]), header["schema_version"])
        for path in sorted((self.path / "wal").glob("*.torn")):
            what = "a stream that was damaged when it was sealed; what could be read of it is in the segments"
            self.tell("torn stream", LOSS, path, what, "keep it as evidence")

    def _manifests(self) -> None:
        listed: set[str] = set()
        there = sum(1 for _ in self._segments()) if self._counted else 0
        for path in sorted((self.path / "manifest").glob("*.jsonl")):
            try:
                content = read_manifest(path)
            except OSError as error:
                self.tell("manifest", LOSS, path, f"cannot be read: {error.strerror}", "check its permissions")
                continue
            self.roots[path.stem] = content.root
            for what in content.problems:
                self.tell("manifest", BROKEN, path, what, COMPARE)
            if content.cut_off and not any(worker == path.stem for worker, _ in self.alive):
                what = "the last line is cut off, as by a crash while sealing; it was not read"
                self.tell("manifest", LOSS, path, what, "its rows are in the stream, or their segments are orphans")
            for line in content.lines:
                listed.add(line.path)
                self._segment(path, line)
                if self._counted:
                    self._counted(len(listed), max(there, len(listed)))
        for path in sorted(self._segments()):
            name = path.relative_to(self.path)
            if name.parts[0] in TABLES and str(name) not in listed and not self._is_being_sealed(name):
                what = "no manifest line names this segment; it was not read"
                remedy = "left by a crash while sealing, or its line was removed; compare manifests"
                self.tell("orphan", LOSS, path, what, remedy)

    def _segments(self) -> Iterable[Path]:
        return self.path.glob("*/day=*/worker=*/*.parquet")

    def _is_being_sealed(self, name: Path) -> bool:
        """Whether the segment's writer lives: its line may come at any moment, and its rows are in the stream."""
        return (name.parts[2].removeprefix("worker="), epoch_of(name.stem.split("-")[0])) in self.alive

    def _segment(self, manifest: Path, line: SegmentLine) -> None:
        writer = (line.worker, line.epoch)
        path = self.path / line.path
        if line.table not in TABLES or not path.resolve().is_relative_to(self.path.resolve()):
            self.tell("manifest", BROKEN, manifest, f"it names {line.path}, which is no segment of a table", COMPARE)
            return
        if line.worker != manifest.stem:
            self.tell("manifest", BROKEN, manifest, f"it holds a line of another worker, {line.worker}", COMPARE)
            return
        self.seen.add(writer)
        self.ordinals[writer], self.fsync_ms[writer] = line.ordinal, line.fsync_ms
        for pool, seq in line.chains.items():
            self._note_end(writer, (line.table, pool or None), seq)
        if line.ends:
            self.note_close(writer, line.ends)
        held = f"{line.rows} {line.table} rows, seq {line.first_seq} to {line.last_seq}"
        if not path.is_file():
            self._lose(path, line, "missing segment", f"the segment is gone ({held})")
            return
        try:
            data = path.read_bytes()
            if self._verify and hashlib.sha256(data).hexdigest() != line.sha256:
                self._lose(
                    path, line, "corrupt segment", f"its SHA-256 is not the manifest's; it was not read ({held})"
                )
                return
            rows = read_segment(data)
        except (OSError, TooLarge, pa.ArrowException) as error:
            self._lose(path, line, "corrupt segment", f"it cannot be read: {error} ({held})")
            return
        if not self._take(path, writer, line.table, rows, line.schema_version):
            self.lost[writer].append(LostSegment(line.table, line.first_seq, line.last_seq, "corrupt segment"))

    def _lose(self, path: Path, line: SegmentLine, kind: str, what: str) -> None:
        self.tell(kind, LOSS, path, what, RESTORE)
        self.lost[line.worker, line.epoch].append(LostSegment(line.table, line.first_seq, line.last_seq, kind))

    def _take(self, path: Path, writer: Writer, table: str, rows: pa.Table, version: int) -> bool:
        """Add the rows of one file; False, and a problem, where they are none of this writer's table."""
        try:
            present = to_present(table, rows, version)
        except (LedgerError, pa.ArrowException, KeyError) as error:
            self.tell(
                "unknown schema", LOSS, path, f"its {table} rows cannot be read: {error}", "use a newer kvwitness"
            )
            return False
        if any(present[name].null_count for name in ("epoch", "seq", "prev", "t", "op")):
            self.tell("contradiction", BROKEN, path, f"{table} rows without a place; they were not read", COMPARE)
            return False
        if present["epoch"].unique().to_pylist() not in ([], [writer[1]]):
            self.tell("contradiction", BROKEN, path, f"{table} rows of another epoch; they were not read", COMPARE)
            return False
        self.read_files.add(path)
        worker = pa.repeat(pa.scalar(writer[0], pa.string()), present.num_rows)
        self.parts.append(Part(table, *writer, present.add_column(0, "worker", worker)))
        return True

    def _epochs(self) -> None:
        for worker, last in last_epochs(self.path).items():
            self.last_epochs[worker] = 1 if last is None else last
            if last is None:
                what = f"it holds no epoch of {worker} (1 to {MOST_EPOCHS}), of which there was one"
                remedy = "look for the worker's last files, and write their epoch back"
                self.tell("broken counter", LOSS, self.path / "epochs" / worker, what, remedy)

    def tell_absent(self, absent: AbsentEpochs) -> None:
        """Note that a worker's epochs are named somewhere and left no file."""
        self.seen.add((absent.worker, absent.last))
        where = self.path / "epochs" / absent.worker
        self.tell("missing epoch", LOSS, where, str(absent), "look for its files elsewhere")
