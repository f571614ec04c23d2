"""The manifest: one JSON line per sealed segment, hash-chained, one file and one writer per worker.

Invariant: a segment is evidence only once its line is on disk; a line names the SHA-256 of the line before it.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

GENESIS = "0" * 64


@dataclass(frozen=True)
class SegmentLine:
    """One sealed segment. `chains`: last seq per pool ("" = no pool) in it; `ends`: last seq of every chain.

    `ends` ("table" or "table/pool") stands in each line of the seal that follows the worker's close, else it is empty.
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
    chains: dict[str, int]
    ends: dict[str, int]
    prev: str


@dataclass(frozen=True)
class ManifestContent:
    """Lines that parse and chain, and what is wrong with the rest."""

    lines: tuple[SegmentLine, ...]
    problems: tuple[str, ...]


def manifest_path(directory: Path, worker: str) -> Path:
    """Where the manifest of `worker` lies."""
    return directory / "manifest" / f"{worker}.jsonl"


def append_lines(directory: Path, worker: str, segments: list[SegmentLine]) -> None:
    """Append lines, chained to what is there, fsynced. `prev` of the given segments is filled in here."""
    path = manifest_path(directory, worker)
    path.parent.mkdir(parents=True, exist_ok=True)
    existing = path.read_bytes() if path.exists() else b""
    whole = existing[: existing.rfind(b"\n") + 1]
    prev = _hash(whole.splitlines()[-1]) if whole else GENESIS
    with open(path, "r+b" if path.exists() else "w+b") as file:
        file.seek(len(whole))
        file.truncate()  # a torn last line was never evidence
        for segment in segments:
            line = json.dumps({**asdict(segment), "prev": prev}, sort_keys=True).encode()
            file.write(line + b"\n")
            prev = _hash(line)
        file.flush()
        os.fsync(file.fileno())


def read_manifest(path: Path) -> ManifestContent:
    """Read a manifest; lines after a break of the chain are kept and the break reported."""
    lines: list[SegmentLine] = []
    problems: list[str] = []
    prev = GENESIS
    raw = path.read_bytes()
    for number, line in enumerate(raw.splitlines(keepends=True), 1):
        if not line.endswith(b"\n"):
            problems.append(f"line {number} is cut off")
            break
        text = line.rstrip(b"\n")
        try:
            segment = SegmentLine(**json.loads(text))
        except (ValueError, TypeError):
            problems.append(f"line {number} is no segment line")
            prev = _hash(text)
            continue
        if segment.prev != prev:
            problems.append(f"line {number} does not follow the line before it: a line was changed, removed or moved")
        lines.append(segment)
        prev = _hash(text)
    return ManifestContent(tuple(lines), tuple(problems))


def _hash(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()
