"""Judgements kept between commands, in the user's cache directory and never beside the evidence.

Invariant: a kept judgement is given out only for the very rows, gaps and problems it was made of, judged by the very text
of the rules; one that does not hold is as good as none.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path

import pyarrow as pa
import xxhash

import engine.ledger.reader
import forensics
from engine.ledger.reader import Ledger
from forensics.foreign_reads import ForeignReads
from forensics.verdict import Verdict

MOST = 32
"""Judgements kept at most; the one not asked for the longest goes first."""
_SUFFIX = ".judgement"
BOTH = "both"
"""What both engines agree on is the judgement of each."""
_TABLES = ("findings", "responses")


class KeptJudgements:
    """Judgements in `directory`, which is made when it is needed and is its owner's alone; None keeps none."""

    def __init__(self, directory: Path | None = None) -> None:
        self._directory = directory

    def judge(self, ledger: Ledger, engine: str, anew: Callable[[], ForeignReads]) -> ForeignReads:
        """The judgement of a whole ledger by `engine` (of `ENGINES`): the one that was kept, or else what `anew` gives; that
        is kept unless somebody still writes the ledger."""
        if self._directory is None or any("alive" in gap.reason for gap in ledger.gaps):
            return anew()
        name = fingerprint(ledger)
        path = self._directory / f"{name}-{engine}{_SUFFIX}"
        kept = _load(path) or _load(self._directory / f"{name}-{BOTH}{_SUFFIX}")
        if kept is not None:
            return kept
        reads = anew()
        if _rules_now() == RULES and not path.resolve().is_relative_to(ledger.path.resolve()):
            _keep(path, reads)
        return reads


def user_cache(environment: Mapping[str, str] = os.environ) -> Path:
    """Where this program keeps what it can make again for its user, by the XDG rules."""
    given = environment.get("XDG_CACHE_HOME", "")
    base = Path(given) if given.startswith("/") else Path(environment.get("HOME", "/nonexistent")) / ".cache"
    return base / "kvwitness"


def fingerprint(ledger: Ledger) -> str:
    """SHA-256, in hex, of everything a judgement is made of: all rows, what is missing and broken, and the rules."""
    digest = hashlib.sha256(f"{RULES}\n".encode())
    digest.update(repr((ledger.writers, ledger.gaps, ledger.problems)).encode())
    for name, table in sorted(ledger.tables.items()):
        digest.update(name.encode())
        with pa.PythonFile(_Digesting(digest), mode="w") as file, pa.ipc.new_stream(file, table.schema) as stream:
            stream.write_table(table.combine_chunks())
    return digest.hexdigest()


class _Digesting:
    """A file of which nothing but its digest is kept."""

    closed = False

    def __init__(self, digest: hashlib._Hash) -> None:
        self._digest, self._size = digest, 0

    def write(self, data: bytes) -> int:
        self._digest.update(data)
        self._size += len(data)
        return len(data)

    def tell(self) -> int:
        return self._size

    def flush(self) -> None:
        """Nothing waits."""

    def close(self) -> None:
        self.closed = True


def _rules_now() -> str:
    """SHA-256 of the text that judges, and the versions of what it computes with."""
    digest = hashlib.sha256()
    for package in (Path(forensics.__path__[0]), Path(engine.ledger.reader.__file__).parent):
        for path in sorted(p for p in package.rglob("*") if p.suffix in (".py", ".sql")):
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest() + "".join(f" {name} {version(name)}" for name in ("duckdb", "numpy", "pyarrow"))


RULES = _rules_now()
"""Of the text that was there when it was imported; what a later one judges is kept under another name."""


def _load(path: Path) -> ForeignReads | None:
    try:
        with path.open("rb") as file:
            about = json.loads(file.readline())
            body = file.read()
        if about["digest"] != xxhash.xxh3_128_hexdigest(body):
            return None
        os.utime(path)
        findings, responses = (_unpacked(body[start:end]) for start, end in about["parts"])
        counts = {Verdict(name): count for name, count in about["counts"].items()}
        return ForeignReads(findings, responses, counts, about["unattributed"])
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException):
        return None


def _keep(path: Path, reads: ForeignReads) -> None:
    """Where that cannot be done, nothing is kept."""
    bodies = [_packed(getattr(reads, name)) for name in _TABLES]
    about = {
        "digest": xxhash.xxh3_128_hexdigest(b"".join(bodies)),
        "parts": [(0, len(bodies[0])), (len(bodies[0]), len(bodies[0]) + len(bodies[1]))],
        "counts": reads.counts,
        "unattributed": reads.unattributed,
    }
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent)  # only its owner may read it
        with os.fdopen(handle, "wb") as file:
            file.write(json.dumps(about).encode() + b"\n" + b"".join(bodies))
        Path(name).replace(path)
        kept = sorted(path.parent.glob("*" + _SUFFIX), key=lambda each: each.stat().st_mtime_ns)
        for old in kept[:-MOST]:
            old.unlink(missing_ok=True)
    except OSError:
        return


def _packed(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as stream:
        stream.write_table(table)
    return sink.getvalue().to_pybytes()


def _unpacked(data: bytes) -> pa.Table:
    return pa.ipc.open_stream(data).read_all()
