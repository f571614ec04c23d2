"""The stream: one append-only file per worker epoch, all tables, readable while it is written.

A file is a run of frames. A frame is `magic | kind | table | length | XXH3-64 of the payload` and the payload:
the header frame (JSON, first), data frames (an Arrow IPC stream with one batch of one table) and commit frames
("all rows through seq S are above").

Invariant: a reader takes rows only up to the last commit frame before the first frame that does not hold, so
what it takes is a prefix in seq order across all tables.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import xxhash
from pyarrow import ipc

from engine.ledger.schema import TABLE_NAMES

MAGIC = b"KVWF"
_FRAME = struct.Struct("<4sBBHIQ")  # magic, kind, table, reserved, payload length, digest
_COMMIT = struct.Struct("<qq")  # seq, rows so far in this file
HEADER, DATA, COMMIT = 1, 2, 3
MAX_PAYLOAD = 1 << 30


def frame(kind: int, table: int, payload: bytes) -> bytes:
    """One frame as bytes; the digest covers kind, table and payload."""
    return _FRAME.pack(MAGIC, kind, table, 0, len(payload), _digest(kind, table, payload)) + payload


def _digest(kind: int, table: int, payload: bytes) -> int:
    state = xxhash.xxh3_64(bytes((kind, table)))
    state.update(payload)
    return state.intdigest()


def encode_batch(batch: pa.RecordBatch) -> bytes:
    """An Arrow IPC stream holding one batch, uncompressed."""
    sink = pa.BufferOutputStream()
    with ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


class StreamWriter:
    """Appends frames to one locked file. `create` makes the file under a temporary name and renames it over `path`."""

    def __init__(self, path: Path, header: dict[str, Any]) -> None:
        self.path = path
        self.rows = 0
        temporary = path.with_suffix(".new")
        self._file: FileIO = open(temporary, "wb", buffering=0)  # noqa: SIM115  closed in close()
        # Locked before it has its name, so that no reader ever sees an unlocked stream of a live writer.
        fcntl.flock(self._file, fcntl.LOCK_EX)
        self._append(frame(HEADER, 0, json.dumps(header, sort_keys=True).encode()))
        self.sync()
        os.rename(temporary, path)
        sync_directory(path.parent)

    @property
    def bytes_written(self) -> int:
        """Length of the file so far."""
        return self._file.tell()

    def write(self, table: str, batch: pa.RecordBatch) -> None:
        """Append one batch of `table`; not readable before the next commit."""
        self._append(frame(DATA, TABLE_NAMES.index(table), encode_batch(batch)))
        self.rows += batch.num_rows

    def commit(self, seq: int) -> None:
        """State that all rows through `seq` have been written."""
        self._append(frame(COMMIT, 0, _COMMIT.pack(seq, self.rows)))

    def sync(self) -> None:
        """fsync."""
        os.fsync(self._file.fileno())

    def _append(self, data: bytes) -> None:
        view = memoryview(data)
        while view:  # an unbuffered write may be short, at a full disk above all
            view = view[self._file.write(view) or 0 :]

    def roll_back(self, length: int) -> None:
        """Cut the file back to `length` bytes after a failed write, as far as the disk lets it."""
        with contextlib.suppress(OSError):
            self._file.seek(length)
            self._file.truncate()

    def close(self) -> None:
        """Close the file, which releases its lock."""
        self._file.close()


@dataclass(frozen=True)
class StreamContent:
    """What a stream holds up to its last good commit; `problem` names the first byte that does not hold."""

    header: dict[str, Any]
    batches: tuple[tuple[str, pa.RecordBatch], ...]
    committed_seq: int
    committed_bytes: int
    problem: str | None


def read_stream(path: Path) -> StreamContent:
    """Read a stream as far as it holds. A missing or broken header frame gives an empty content with a problem."""
    data = path.read_bytes()
    header: dict[str, Any] = {}
    batches: list[tuple[str, pa.RecordBatch]] = []
    pending: list[tuple[str, pa.RecordBatch]] = []
    seq, good = 0, 0
    problem = None
    try:
        for kind, table, payload, end in _frames(data):
            if kind == HEADER:
                header, good = json.loads(payload), end
            elif kind == DATA:
                pending.append((TABLE_NAMES[table], _decode_batch(payload)))
            elif kind == COMMIT:
                seq, _ = _COMMIT.unpack(payload)
                batches += pending
                pending, good = [], end
    except _Torn as torn:
        problem = str(torn)
    if not header:
        problem = problem or "no header frame"
    return StreamContent(header, tuple(batches), seq, good, problem)


class _Torn(Exception):
    """A frame that does not hold."""


def _frames(data: bytes) -> Iterator[tuple[int, int, bytes, int]]:
    at = 0
    while at < len(data):
        if at + _FRAME.size > len(data):
            raise _Torn(f"frame header cut off at byte {at} of {len(data)}")
        magic, kind, table, zero, length, digest = _FRAME.unpack_from(data, at)
        known = magic == MAGIC and zero == 0 and kind in (HEADER, DATA, COMMIT) and (kind == HEADER) == (at == 0)
        if not known or length > MAX_PAYLOAD:
            raise _Torn(f"no frame at byte {at} of {len(data)}")
        payload = data[at + _FRAME.size : at + _FRAME.size + length]
        if len(payload) < length:
            raise _Torn(f"frame cut off at byte {at} of {len(data)}")
        if _digest(kind, table, payload) != digest:
            raise _Torn(f"digest does not hold for the frame at byte {at}")
        at += _FRAME.size + length
        yield kind, table, payload, at


def _decode_batch(payload: bytes) -> pa.RecordBatch:
    with ipc.open_stream(payload) as reader:
        return reader.read_next_batch()


def is_locked(path: Path) -> bool:
    """Whether a live process holds the stream."""
    with open(path, "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


def sync_directory(directory: Path) -> None:
    """fsync a directory, so that a rename in it survives a crash."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
