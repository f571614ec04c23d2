"""The audit log: one JSON line per event, each with the hash of the line before it.

Invariant: lines are only ever appended and are on disk before `append` returns. The chain shows edits, deletions and
reordering inside the file by itself; a cut tail or a rewrite of the whole file shows only against a head (sequence
number and hash) kept elsewhere, which is why every run prints its head.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runbooks.errors import EvidenceBroken

_DOMAIN = b"kvwitness.runbook.audit/1\n"
ORIGIN = "0" * 64
_TAIL_BYTES = 1 << 16
_TORN = "{path}: the last line is torn; keep the file as it is and use a new --state-dir"


@dataclass(frozen=True)
class Head:
    """End of a chain: how many lines, and the last one's hash (`ORIGIN` for none). Text form `COUNT:HASH`."""

    count: int
    hash: str

    def __str__(self) -> str:
        return f"{self.count}:{self.hash}"

    @classmethod
    def parse(cls, text: str) -> Head:
        """Read the text form. Raises ValueError."""
        count, _, digest = text.partition(":")
        if not count.isdecimal() or len(digest) != 64:
            raise ValueError(f"'{text}' is no audit head; write COUNT:HASH as `runbook run` printed it")
        return cls(int(count), digest)


EMPTY = Head(0, ORIGIN)


class AuditLog:
    """Appends to one audit file. Several processes may append; each append holds a lock on the file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def path(self) -> Path:
        """Where the file is."""
        return self._path

    def append(self, event: Mapping[str, Any]) -> Head:
        """Add one event (JSON values only; the keys seq, prev and hash are ours) and return the new head."""
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            head = _last(descriptor, self._path)
            record = {**event, "seq": head.count + 1, "prev": head.hash}
            record["hash"] = _digest(record)
            # One write call: a killed process leaves a whole line or none.
            os.write(descriptor, _canonical(record) + b"\n")
            os.fsync(descriptor)
            return Head(head.count + 1, record["hash"])
        finally:
            os.close(descriptor)


def verify_audit(path: Path, expected: Head | None = None) -> Head:
    """Check the whole chain, and that it contains `expected`. Returns its head; raises EvidenceBroken."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH)
            content = file.read()
    except OSError as error:
        raise EvidenceBroken(f"{path}: cannot be read ({error.strerror}); restore it from a copy") from error
    head = EMPTY
    met = expected is None or expected == EMPTY
    for head in _chain(content, path):
        met = met or head == expected
    if not met:
        raise EvidenceBroken(
            f"{path}: its {head.count} lines do not contain the head {expected}; the file was cut or rewritten, "
            "compare it with a copy"
        )
    return head


def _chain(content: bytes, path: Path) -> Iterator[Head]:
    if content and not content.endswith(b"\n"):
        raise EvidenceBroken(_TORN.format(path=path))
    before = EMPTY
    for number, line in enumerate(content.splitlines(), start=1):
        before = _check_line(line, number, before, path)
        yield before


def _check_line(line: bytes, number: int, before: Head, path: Path) -> Head:
    try:
        record = json.loads(line)
        stated = record.pop("hash")
        follows = record["seq"] == number and record["prev"] == before.hash
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise EvidenceBroken(f"{path}:{number}: is no audit record; compare the file with a copy") from error
    if stated != _digest(record):
        raise EvidenceBroken(f"{path}:{number}: was changed after it was written; compare the file with a copy")
    if not follows:
        raise EvidenceBroken(f"{path}:{number}: does not follow the line before it; a line was removed or moved")
    return Head(number, stated)


def _last(descriptor: int, path: Path) -> Head:
    """Head of an open file, from its last line alone: the whole chain is checked when a run starts."""
    size = os.fstat(descriptor).st_size
    if size == 0:
        return EMPTY
    block = _TAIL_BYTES
    while True:
        tail = os.pread(descriptor, min(block, size), max(0, size - block))
        lines = tail.removesuffix(b"\n").split(b"\n")
        if not tail.endswith(b"\n"):
            raise EvidenceBroken(_TORN.format(path=path))
        if len(lines) > 1 or block >= size:
            break
        block *= 4
    try:
        record = json.loads(lines[-1])
        stated, seq = record.pop("hash"), record["seq"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise EvidenceBroken(f"{path}: the last line is no audit record; compare the file with a copy") from error
    if stated != _digest(record):
        raise EvidenceBroken(f"{path}: the last line was changed; compare the file with a copy")
    return Head(seq, stated)


def _digest(record: Mapping[str, Any]) -> str:
    return hashlib.sha256(_DOMAIN + _canonical(record)).hexdigest()


def _canonical(record: Mapping[str, Any]) -> bytes:
    return json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()
