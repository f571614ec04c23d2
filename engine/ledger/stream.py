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
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import xxhash
from pyarrow import ipc

from engine.ledger.bounded import read_batch
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
    """Appends to one locked file, which is made under a temporary name and then renamed to `path`.

    Every append is whole or not there: what a full disk or a failed sync left is cut off before anything else is
    written.
    """

    def __init__(self, path: Path, header: dict[str, Any], durable: bool = True) -> None:
        self.path, self._durable = path, durable
        self._rows = 0
        temporary = path.with_suffix(".new")
        self._file: FileIO = open(temporary, "wb", buffering=0)  # noqa: SIM115  closed in close()
        try:
            # Locked before it has its name, so that no reader ever sees an unlocked stream of a live writer.
            fcntl.flock(self._file, fcntl.LOCK_EX)
            self._write(frame(HEADER, 0, json.dumps(header, sort_keys=True).encode()))
            self._sync()
            os.rename(temporary, path)
            if durable:
                sync_directory(path.parent)
        except OSError:
            self._file.close()
            raise
        self.length = self._file.tell()
        """Bytes that are whole, and synced where the file is durable."""

    def append(self, batches: Iterable[tuple[str, pa.RecordBatch]], seq: int) -> None:
        """Append batches and the commit frame "all rows through `seq`"; sync. Raises OSError; nothing stays then."""
        if self._file.tell() != self.length:
            self._cut()
        rows = self._rows
        try:
            for table, batch in batches:
                self._write(frame(DATA, TABLE_NAMES.index(table), encode_batch(batch)))
                rows += batch.num_rows
            self._write(frame(COMMIT, 0, _COMMIT.pack(seq, rows)))
            self._sync()
        except OSError:
            with contextlib.suppress(OSError):
                self._cut()
            raise
        self.length, self._rows = self._file.tell(), rows

    def _sync(self) -> None:
        if self._durable:
            os.fsync(self._file.fileno())

    def _cut(self) -> None:
        self._file.truncate(self.length)
        self._file.seek(self.length)

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:  # an unbuffered write may be short, at a full disk above all
            view = view[self._file.write(view) or 0 :]

    def close(self) -> None:
        """Close the file, which releases its lock."""
        self._file.close()


@dataclass(frozen=True)
class StreamContent:
    """What a stream holds up to its last good commit; `problem` names the first byte that does not hold. `damaged`: whole
    frames stand behind that byte, so it is not the end of a write under way.
    """

    header: dict[str, Any]
    batches: tuple[tuple[str, pa.RecordBatch], ...]
    committed_seq: int
    committed_bytes: int
    problem: str | None
    damaged: bool = False


def read_stream(path: Path) -> StreamContent:
    """Read a stream as far as it holds. A missing or broken header frame gives an empty content with a problem."""
    data = path.read_bytes()
    header: dict[str, Any] = {}
    batches: list[tuple[str, pa.RecordBatch]] = []
    pending: list[tuple[str, pa.RecordBatch]] = []
    seq, rows, good = 0, 0, 0
    problem = None
    try:
        for kind, table, payload, end in frames(data):
            if kind == HEADER:
                header, good = decode_header(payload), end
            elif kind == DATA:
                pending.append((table_name(table), read_batch(payload)))
                rows += pending[-1][1].num_rows
            else:
                through, counted = decode_commit(payload)
                if counted != rows:
                    raise Torn(f"{rows} rows before byte {end}, where the commit frame counts {counted}")
                batches += pending
                pending, good, seq = [], end, through
        if good < len(data):
            problem = f"no commit frame behind byte {good} of {len(data)}"
    except Torn as torn:
        problem = str(torn)
    except (pa.ArrowException, ValueError, KeyError, TypeError, struct.error) as error:
        problem = f"no readable frame behind byte {good} of {len(data)}: {error}"
    if not header:
        problem = problem or "no header frame"
    damaged = problem is not None and _has_frame(data, good + 1)
    return StreamContent(header, tuple(batches), seq, good, problem, damaged)


class Torn(Exception):
    """A frame that does not hold."""


def frames(data: bytes, *, begins: bool = True) -> Iterator[tuple[int, int, bytes, int]]:
    """(kind, table, payload, end) of every frame of a piece of a stream. `begins`: whether it is the stream's beginning.

    Raises Torn at the first frame that does not hold.
    """
    at = 0
    while at < len(data):
        if at + _FRAME.size > len(data):
            raise Torn(f"frame header cut off at byte {at} of {len(data)}")
        magic, kind, table, zero, length, digest = _FRAME.unpack_from(data, at)
        known = (
            magic == MAGIC and zero == 0 and kind in (HEADER, DATA, COMMIT) and (kind == HEADER) == (begins and at == 0)
        )
        if not known or length > MAX_PAYLOAD:
            raise Torn(f"no frame at byte {at} of {len(data)}")
        payload = data[at + _FRAME.size : at + _FRAME.size + length]
        if len(payload) < length:
            raise Torn(f"frame cut off at byte {at} of {len(data)}")
        if _digest(kind, table, payload) != digest:
            raise Torn(f"digest does not hold for the frame at byte {at}")
        at += _FRAME.size + length
        yield kind, table, payload, at


def _has_frame(data: bytes, at: int) -> bool:
    """Whether a whole commit frame begins at `at` or behind it."""
    while (at := data.find(MAGIC, at)) >= 0:
        end = at + _FRAME.size + _COMMIT.size
        if end <= len(data):
            _, kind, table, zero, length, digest = _FRAME.unpack_from(data, at)
            payload = data[at + _FRAME.size : end]
            if (kind, zero, length) == (COMMIT, 0, _COMMIT.size) and _digest(kind, table, payload) == digest:
                return True
        at += 1
    return False


def decode_commit(payload: bytes) -> tuple[int, int]:
    """Seq and rows so far of a commit frame. Raises struct.error."""
    seq, rows = _COMMIT.unpack(payload)
    return seq, rows


def decode_header(payload: bytes) -> dict[str, Any]:
    """The header frame's content. Raises ValueError, KeyError, TypeError where it is none."""
    header: dict[str, Any] = json.loads(payload)
    kinds = {"worker": str, "epoch": int, "ordinal": int, "schema_version": int, "fsync_ms": int}
    for name, kind in kinds.items():
        if not isinstance(header[name], kind):
            raise TypeError(f"header field {name} is {header[name]!r}")
    return header


def table_name(number: int) -> str:
    """The table that a data frame's number stands for. Raises Torn."""
    if number >= len(TABLE_NAMES):
        raise Torn(f"table {number} is not known here")
    return TABLE_NAMES[number]


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
