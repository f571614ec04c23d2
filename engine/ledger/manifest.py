"""The manifest: one JSON line per sealed segment, hash-chained, one file and one writer per worker.

Invariant: a segment is evidence only once its line is on disk; a line names the SHA-256 of the line before it.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from engine.ledger.stream import sync_directory

GENESIS = "0" * 64
_TOO_LARGE = 1 << 62


@dataclass(frozen=True)
class SegmentLine:
    """One sealed segment. `chains`: last seq per pool ("" = no pool) in it; `ends`: last seq of every chain.

    `ends` ("table" or "table/pool") stands in each line of the seal that follows the worker's close, else it is empty.
    `prev` is filled in when the line is appended.
    """

    path: str
    sha256: str
    table: str
    worker: str
    epoch: int
    ordinal: int
    first_seq: int
    last_seq: int
    rows: int
    schema_version: int
    fsync_ms: int
    chains: dict[str, int]
    ends: dict[str, int]
    prev: str


_KINDS: dict[str, type] = {
    "path": str, "sha256": str, "table": str, "worker": str, "prev": str, "chains": dict, "ends": dict,
}  # fmt: skip


@dataclass(frozen=True)
class ManifestContent:
    """Lines that parse, what breaks their chain, and whether the last line is cut off (it was never evidence)."""

    lines: tuple[SegmentLine, ...]
    problems: tuple[str, ...]
    cut_off: bool
    root: str
    """SHA-256 of the last whole line: whoever holds a copy of it can tell any later change of what it covers."""


def manifest_path(directory: Path, worker: str) -> Path:
    """Where the manifest of `worker` lies."""
    return directory / "manifest" / f"{worker}.jsonl"


def append_lines(directory: Path, worker: str, segments: list[SegmentLine], durable: bool = True) -> None:
    """Append lines, chained to what is there, fsynced (`durable`). Raises OSError; no part of a line stays then."""
    path = manifest_path(directory, worker)
    path.parent.mkdir(parents=True, exist_ok=True)
    existing = path.read_bytes() if path.exists() else b""
    whole = existing[: existing.rfind(b"\n") + 1]
    prev = _hash(whole.splitlines()[-1]) if whole else GENESIS
    text = b""
    for segment in segments:
        line = json.dumps({**asdict(segment), "prev": prev}, sort_keys=True).encode()
        text += line + b"\n"
        prev = _hash(line)
    if not text:
        return
    with open(path, "r+b" if path.exists() else "w+b", buffering=0) as file:
        try:
            file.seek(len(whole))
            file.truncate()
            view = memoryview(text)
            while view:
                view = view[file.write(view) or 0 :]
            if durable:
                os.fsync(file.fileno())
        except OSError:
            file.truncate(len(whole))
            raise
    if durable:
        sync_directory(path.parent)


def read_manifest(path: Path) -> ManifestContent:
    """Read a manifest; lines after a break of the chain are kept and the break reported."""
    lines: list[SegmentLine] = []
    problems: list[str] = []
    prev = GENESIS
    raw = path.read_bytes()
    end = raw.rfind(b"\n") + 1
    for number, text in enumerate(raw[:end].splitlines(), 1):
        try:
            segment = _line(json.loads(text))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            problems.append(f"line {number} is no segment line")
            prev = _hash(text)
            continue
        if segment.prev != prev:
            problems.append(f"line {number} does not follow the line before it: a line was changed, removed or moved")
        lines.append(segment)
        prev = _hash(text)
    return ManifestContent(tuple(lines), tuple(problems), end < len(raw), prev)


def _line(found: dict[str, Any]) -> SegmentLine:
    """A line by the names known here; names that a later version added are left alone."""
    known = {field.name: found[field.name] for field in fields(SegmentLine)}
    for name, value in known.items():
        if not isinstance(value, _KINDS.get(name, int)):
            raise TypeError(name)
        if isinstance(value, int) and not 0 <= value < _TOO_LARGE:
            raise ValueError(name)
    for numbers in (known["chains"], known["ends"]):
        if not all(isinstance(seq, int) and 0 <= seq < _TOO_LARGE for seq in numbers.values()):
            raise ValueError("seq")
    return SegmentLine(**known)


def _hash(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()
