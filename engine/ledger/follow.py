"""Following the open streams of a ledger: what has been committed since the last look, at the cost of what is new.

Invariant: nothing is taken that no commit frame covers, and nothing is judged here: a stream that does not hold is
left where it stopped, and the reader says what is wrong with it.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from engine.ledger.bounded import read_batch
from engine.ledger.errors import LedgerError
from engine.ledger.stream import COMMIT, DATA, HEADER, Torn, decode_commit, decode_header, frames, table_name
from engine.ledger.versions import to_present

KEPT_COMMITS = 4
"""How many of a stream's last commits are kept for whoever wants their rows."""
Writer = tuple[str, int]


@dataclass
class StreamEnd:
    """The end of one open stream. `seq`: of its last commit (0 = none yet); `seen`: time of the last write (ns) and size."""

    worker: str = ""
    epoch: int = 0
    seq: int = 0
    seen: tuple[int, int] = (0, 0)
    _version: int = 0
    _file: tuple[int, int] = (0, 0)
    _read: int = 0
    _pending: list[tuple[int, bytes]] = field(default_factory=list)
    _commits: list[list[tuple[int, bytes]]] = field(default_factory=list)

    @property
    def writer(self) -> Writer:
        """(worker, epoch)."""
        return self.worker, self.epoch

    def rows(self) -> list[tuple[str, pa.Table]]:
        """Rows of the last commits by table, `worker` before the schema's columns; none where they cannot be read."""
        found = []
        try:
            for number, payload in (each for commit in self._commits for each in commit):
                table = table_name(number)
                rows = to_present(table, pa.Table.from_batches([read_batch(payload)]), self._version)
                worker = pa.repeat(pa.scalar(self.worker, pa.string()), rows.num_rows)
                found.append((table, rows.add_column(0, "worker", worker)))
        except (Torn, LedgerError, pa.ArrowException, ValueError, KeyError):
            return []
        return found

    def read_on(self, path: Path) -> None:
        """Take what has been committed since. A stream that was made anew is begun anew."""
        with path.open("rb") as file:
            stat = os.fstat(file.fileno())
            if (stat.st_dev, stat.st_ino) != self._file or stat.st_size < self._read:
                self._begin((stat.st_dev, stat.st_ino))
            self.seen = stat.st_mtime_ns, stat.st_size
            file.seek(self._read)
            data = file.read()
        begins, base = not self._read, self._read
        try:
            for kind, table, payload, end in frames(data, begins=begins):
                if kind == HEADER:
                    self._head(decode_header(payload))
                elif kind == DATA:
                    self._pending.append((table, payload))
                else:
                    self._commit(kind, payload)
                self._read = base + end
        except (Torn, ValueError, KeyError, TypeError, struct.error):
            return  # most often the end of a write under way: the next look goes on from the last whole frame

    def _begin(self, file: tuple[int, int]) -> None:
        self._file, self._read, self._pending, self._commits = file, 0, [], []

    def _head(self, header: dict[str, Any]) -> None:
        self.worker, self.epoch, self._version = header["worker"], header["epoch"], header["schema_version"]

    def _commit(self, kind: int, payload: bytes) -> None:
        assert kind == COMMIT
        self.seq = decode_commit(payload)[0]
        if self._pending:
            self._commits = [*self._commits, self._pending][-KEPT_COMMITS:]
            self._pending = []


class StreamFollower:
    """Follows every open stream of a ledger directory. Not for several threads at once."""

    def __init__(self, ledger: Path) -> None:
        self._ledger = ledger
        self._ends: dict[Path, StreamEnd] = {}

    def look(self) -> tuple[StreamEnd, ...]:
        """The ends of the streams that are there, after reading what is new. Raises OSError other than of a missing file."""
        ends: dict[Path, StreamEnd] = {}
        for path in sorted((self._ledger / "wal").glob("*.wal")):
            end = self._ends.get(path, StreamEnd())
            try:
                stat = path.stat()
                if (stat.st_mtime_ns, stat.st_size) != end.seen:
                    end.read_on(path)
            except FileNotFoundError:
                continue  # sealed meanwhile
            if end.worker:
                ends[path] = end
        self._ends = ends
        return tuple(ends.values())
