"""Small ledgers for tests: a fixed clock and a recorder that drains only when told."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from engine.ledger.manifest import append_lines, manifest_path, read_manifest
from engine.ledger.reader import Ledger
from engine.ledger.recorder import Recorder

START_US = 1_780_000_000_000_000


def recorder(directory: Path, worker: str = "decode-0", ordinal: int = 1, **options) -> Recorder:
    ticks = itertools.count(START_US, 1000)
    options.setdefault("threaded", False)
    return Recorder(directory, worker, ordinal=ordinal, now_us=lambda: next(ticks), digest_key=b"test", **options)


def busy_life(rec: Recorder, requests: int = 3, start: int = 1) -> None:
    """A few requests through several tables and pools."""
    for req in range(start, start + requests):
        rec.record("requests", "receive", req=req, rid=f"r{req}", tenant="t-a")
        tag = rec.reserve("kv", req, np.arange(4, dtype=np.int32) + 4 * req)
        pages = np.arange(4, dtype=np.int32) + 4 * req
        rec.pages("bind", "kv", req, tag, pages, tokens=64)
        rec.record("gauges", "sample", pool="kv", free=10)
        rec.record("gauges", "sample", pool="index", free=3)
        rec.record("steps", "decode", since_seq=rec.seq, step=req, n=1)
        rec.pages("free", "kv", req, tag, pages, cause="finish")
        rec.record("requests", "finish", req=req, page_rows=rec.page_rows(req))


def seqs(ledger: Ledger) -> list[int]:
    """All seqs of all tables, sorted."""
    return sorted(s for table in ledger.tables.values() for s in table["seq"].to_pylist())


def rewrite_segments(directory: Path, change: Callable[[str, pa.Table], pa.Table], worker: str = "decode-0") -> None:
    """Write every segment again with other rows, and a manifest that vouches for it: what a forger would do."""
    path = manifest_path(directory, worker)
    lines = read_manifest(path).lines
    path.unlink()
    again = []
    for line in lines:
        file = directory / line.path
        rows = change(line.table, pq.read_table(file, partitioning=None))
        pq.write_table(rows, file, write_page_checksum=True)
        again.append(replace(line, sha256=hashlib.sha256(file.read_bytes()).hexdigest()))
    append_lines(directory, worker, again)
