"""The compactor: rows of a stream become sealed Parquet segments.

Order of steps, each durable before the next: file under a temporary name, fsync, SHA-256, rename, manifest line.
Only then may the stream go. Invariant: a crash between any two steps loses no row and doubles none for a reader
(segments without a manifest line are not read; rows in both places are one row), and a segment that has its line
is never written again: what the manifest lists as sealed is left out of the next attempt.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from engine.ledger.errors import LedgerError
from engine.ledger.manifest import SegmentLine, append_lines, manifest_path, read_manifest
from engine.ledger.schema import POOL_TABLES, SCHEMA_VERSION, TABLES
from engine.ledger.stream import StreamContent, read_stream, sync_directory

ROW_GROUP_ROWS = 4096
ZSTD_LEVEL = 6
RANDOM = frozenset({"fingerprint", "room"})
SMALL = frozenset({"tokens", "micros", "prompt_tokens"})
"""Of 64 bits, and nearly all of them 0."""
MICROS_PER_DAY = 86_400_000_000
LOCK_PATIENCE_S = 2.0
"""How long a reader's probe of the lock is waited out before a stream counts as its writer's."""


@dataclass(frozen=True)
class Sealed:
    """What became of a stream. `torn_at`: byte behind which it could not be read although it should, None = whole."""

    lines: tuple[SegmentLine, ...]
    torn_at: int | None


def seal_stream(directory: Path, stream: Path, through: int, durable: bool = True) -> Sealed:
    """Seal every row of `stream`, whose writer committed them through seq `through`. The stream itself stays."""
    content = read_stream(stream)
    whole = content.problem is None and content.committed_seq >= through
    lines = seal_batches(directory, content, durable) if content.header else []
    return Sealed(tuple(lines), None if whole else content.committed_bytes)


def let_go(stream: Path, torn_at: int | None, durable: bool = True) -> None:
    """Remove a sealed stream; one that is torn is set aside as evidence instead (`*.torn`, reported by the reader)."""
    if torn_at is None:
        stream.unlink()
    else:
        number = 1
        while (aside := stream.with_suffix(f".{number}.torn")).exists():
            number += 1
        stream.rename(aside)
    if durable:
        sync_directory(stream.parent)


def seal_batches(directory: Path, content: StreamContent, durable: bool = True) -> list[SegmentLine]:
    """Write the rows of `content` as segments (one per table and day) and list them in the manifest."""
    header = content.header
    sealed_through = _sealed_through(directory, header["worker"], header["epoch"])
    ends = _ends(content)
    segments = []
    for table in TABLES:
        batches = [batch for name, batch in content.batches if name == table]
        if not batches:
            continue
        rows = pa.Table.from_batches(batches, TABLES[table])
        for day, of_day in _by_day(rows):
            through = sealed_through.get((table, day))
            part = of_day if through is None else of_day.filter(pc.greater(of_day["seq"], through))
            if part.num_rows:
                segments.append(_write_segment(directory, table, day, part, header, ends, durable))
    append_lines(directory, header["worker"], segments, durable)
    return segments


def seal_dead(directory: Path, stream: Path) -> list[SegmentLine]:
    """Seal what a dead writer left in `stream`; one without rows stays. Raises LedgerError while the writer lives."""
    with _locked(stream):
        content = read_stream(stream)
        if not content.header:
            raise LedgerError(f"{stream}: {content.problem}; keep the file as evidence, there is nothing to seal in it")
        if not content.batches:
            return []
        segments = seal_batches(directory, content)
        let_go(stream, None if content.problem is None else content.committed_bytes)
        return segments


@contextmanager
def _locked(stream: Path) -> Iterator[None]:
    with open(stream, "rb") as file:
        deadline = time.monotonic() + LOCK_PATIENCE_S
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    what = "its writer is alive; a stream is sealed by its writer, or after its death"
                    raise LedgerError(f"{stream}: {what}") from None
                time.sleep(0.01)
        yield


def _sealed_through(directory: Path, worker: str, epoch: int) -> dict[tuple[str, str], int]:
    """Last sealed seq per (table, day) of this worker epoch, from the manifest."""
    path = manifest_path(directory, worker)
    found: dict[tuple[str, str], int] = {}
    for line in read_manifest(path).lines if path.exists() else ():
        if line.epoch == epoch:
            day = line.path.split("/")[1].removeprefix("day=")
            found[line.table, day] = max(found.get((line.table, day), 0), line.last_seq)
    return found


def _ends(content: StreamContent) -> dict[str, int]:
    """Chain ends of the `close` row, where the stream has one."""
    for table, batch in content.batches:
        if table == "workers":
            for row in batch.to_pylist():
                if row["op"] == "close":
                    return dict(zip(row["chains"], row["chain_seqs"], strict=True))
    return {}


def _by_day(rows: pa.Table) -> list[tuple[str, pa.Table]]:
    """Rows split by their UTC day, arrival order kept."""
    days = pc.divide(rows["t"].cast(pa.int64()), MICROS_PER_DAY)
    found = []
    present = sorted(pc.unique(days).to_pylist())
    for day in present:
        name = datetime.fromtimestamp(day * 86_400, UTC).strftime("%Y-%m-%d")
        found.append((name, rows.filter(pc.equal(days, day)) if len(present) > 1 else rows))
    return found


def _write_segment(
    directory: Path, table: str, day: str, rows: pa.Table, header: dict[str, Any], ends: dict[str, int], durable: bool
) -> SegmentLine:
    worker, epoch, ordinal = header["worker"], header["epoch"], header["ordinal"]
    first, last = rows["seq"][0].as_py(), rows["seq"][-1].as_py()
    path = directory / table / f"day={day}" / f"worker={worker}" / f"{epoch}-{first}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    metadata = {"schema_version": SCHEMA_VERSION, "worker": worker, "epoch": epoch, "ordinal": ordinal}
    # A reader takes a column that is not there for null, and in a small segment null columns are most of the bytes.
    told = rows.select([name for name in rows.column_names if rows[name].null_count < rows.num_rows])
    pq.write_table(
        told.replace_schema_metadata({k: str(v) for k, v in metadata.items()}), temporary, compression="zstd",
        compression_level=ZSTD_LEVEL, write_page_checksum=True, row_group_size=ROW_GROUP_ROWS,
        data_page_size=8 << 20, write_statistics=False, store_schema=False, **_encodings(told.schema),
    )  # fmt: skip
    with open(temporary, "rb") as file:
        if durable:
            os.fsync(file.fileno())
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    os.rename(temporary, path)
    if durable:
        sync_directory(path.parent)
    return SegmentLine(
        path=str(path.relative_to(directory)), sha256=digest, table=table, worker=worker, epoch=epoch, ordinal=ordinal,
        first_seq=first, last_seq=last, rows=rows.num_rows, schema_version=SCHEMA_VERSION,
        fsync_ms=header["fsync_ms"], chains=_chain_ends(table, rows), ends=ends, prev="",
    )  # fmt: skip


def _encodings(schema: pa.Schema) -> dict[str, Any]:
    """Words by dictionary; what counts up as deltas; small numbers and lists in planes of their bytes, in which zstd sees
    high bytes that are alike and lists that repeat; random numbers plain, so that it sees them repeat."""
    words, encodings = [], {}
    for field in schema:
        if pa.types.is_string(field.type):
            words.append(field.name)
        elif pa.types.is_list(field.type):
            if pa.types.is_integer(field.type.value_type):
                encodings[f"{field.name}.list.element"] = "BYTE_STREAM_SPLIT"
        elif field.name not in RANDOM:
            planes = pa.types.is_int32(field.type) or field.name in SMALL
            encodings[field.name] = "BYTE_STREAM_SPLIT" if planes else "DELTA_BINARY_PACKED"
    return {"use_dictionary": words, "column_encoding": encodings}


def _chain_ends(table: str, rows: pa.Table) -> dict[str, int]:
    """Last seq of each pool's chain in these rows ("" = no pool)."""
    if table not in POOL_TABLES:
        return {"": rows["seq"][-1].as_py()}
    pools = rows["pool"]
    return {
        pool or "": rows["seq"].filter(pc.is_null(pools) if pool is None else pc.equal(pools, pool))[-1].as_py()
        for pool in pc.unique(pools).to_pylist()
    }
