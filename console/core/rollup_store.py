"""Rollups kept between openings of a ledger, in the user's cache directory and never beside the evidence.

Invariant: a kept rollup is given out only for a ledger that is the one it was made of, grown or not: append-only files
of which the kept part is unchanged. One that cannot be read, or was made by other queries, is as good as none.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import xxhash

from console.core.library_rows import query_named
from console.core.rollup import Rollup
from console.core.snapshot import QUERIES
from forensics.kept_judgements import user_cache

FORMAT = 3
"""Changes with what a rollup holds."""
_HEAD_BYTES = 4096
Marks = dict[str, tuple[int, str]]
"""Of every file of a ledger: a size, and a digest of what may not have changed."""


class RollupStore:
    """Keeps one rollup per ledger in `directory`; makes it when it is needed, readable by its owner alone."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def load(self, ledger: Path) -> Rollup | None:
        """The rollup that was kept of this ledger; None = there is none that may be used."""
        try:
            with self._file(ledger).open("rb") as file:
                about = json.loads(file.readline())
                body = file.read()
            if about["version"] != _version() or about["digest"] != xxhash.xxh3_64_hexdigest(body):
                return None
            if not continues({name: (size, digest) for name, (size, digest) in about["marks"].items()}, ledger):
                return None
            return Rollup(ledger, about["head"], _tables(about["tables"], body))
        except (OSError, ValueError, KeyError, TypeError, pa.ArrowException):
            return None

    def keep(self, rollup: Rollup, marks: Marks) -> None:
        """Keep a rollup. `marks`: of the ledger before it was read. Where that cannot be done, nothing is kept."""
        if _inside(self.directory, rollup.path):
            return
        parts = [(name, _packed(table)) for name, table in rollup.tables.items()]
        body = b"".join(part for _, part in parts)
        about = {
            "version": _version(), "marks": marks, "head": rollup.head, "tables": [(name, len(part)) for name, part in parts],
            "digest": xxhash.xxh3_64_hexdigest(body),
        }  # fmt: skip
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=self.directory)  # only its owner may read it
            with os.fdopen(handle, "wb") as file:
                file.write(json.dumps(about).encode() + b"\n" + body)
            Path(name).replace(self._file(rollup.path))
        except OSError:
            return

    def _file(self, ledger: Path) -> Path:
        return self.directory / f"{hashlib.sha256(str(ledger.resolve()).encode()).hexdigest()[:32]}.rollup"


def cache_directory(environment: Mapping[str, str] = os.environ) -> Path:
    """Where this user's caches are, by the XDG rules."""
    return user_cache(environment) / "rollups"


def ledger_marks(ledger: Path) -> Marks:
    """Marks of the files as they are: of a manifest its last line, of a stream its beginning."""
    marks: Marks = {}
    for path in sorted([*ledger.glob("manifest/*.jsonl"), *ledger.glob("wal/*.wal")]):
        try:
            size = path.stat().st_size
            marks[path.relative_to(ledger).as_posix()] = (size, _digest(path, size))
        except FileNotFoundError:
            continue
    return marks


def continues(marks: Marks, ledger: Path) -> bool:
    """Whether the ledger is the one that had these marks, grown or not. A stream that is gone has been compacted."""
    if not marks:
        return False
    for name, (size, digest) in marks.items():
        path = ledger / name
        try:
            if path.stat().st_size < size or _digest(path, size) != digest:
                return False
        except FileNotFoundError:
            if path.suffix != ".wal":
                return False
    return any((ledger / name).exists() for name in marks)


def _digest(path: Path, size: int) -> str:
    """Of the last bytes up to `size` of a manifest, whose last line holds the hash of all before; of a stream's first."""
    with path.open("rb") as file:
        if path.suffix != ".wal":
            file.seek(max(size - _HEAD_BYTES, 0))
        return hashlib.sha256(file.read(min(size, _HEAD_BYTES))).hexdigest()


def _version() -> str:
    queries = "".join(query_named(name).sql_sha256 for name in QUERIES)
    return hashlib.sha256(f"{FORMAT}{queries}".encode()).hexdigest()


def _packed(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _tables(parts: list[tuple[str, int]], body: bytes) -> dict[str, pa.Table]:
    tables, at = {}, 0
    for name, length in parts:
        tables[name] = pa.ipc.open_stream(body[at : at + length]).read_all()
        at += length
    return tables


def _inside(directory: Path, ledger: Path) -> bool:
    return directory.resolve().is_relative_to(ledger.resolve())
