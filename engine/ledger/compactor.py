"""The compactor: rows of a stream become sealed Parquet segments.

Order of steps, each durable before the next: file under a temporary name, fsync, SHA-256, rename, manifest line.
Only then may the caller let the stream go. Invariant: a crash between any two steps loses no row and doubles
none for a reader (segments without a manifest line are not read; rows in both places are one row).
"""

from __future__ import annotations

import hashlib
import os
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from engine.ledger.errors import LedgerError
from engine.ledger.manifest import SegmentLine, append_lines
from engine.ledger.schema import POOL_TABLES, SCHEMA_VERSION, TABLES
from engine.ledger.stream import StreamContent, is_locked, read_stream, sync_directory

ROW_GROUP_ROWS = 4096
MICROS_PER_DAY = 86_400_000_000


def seal_batches(directory: Path, content: StreamContent) -> list[SegmentLine]:
    """Write every row of `content` as segments (one per table and day) and list them in the manifest."""
    header = content.header
    ends = _ends(content)
    segments = []
    for table in TABLES:
        batches = [batch for name, batch in content.batches if name == table]
        if not batches:
            continue
        rows = pa.Table.from_batches(batches, TABLES[table])
        for day, part in _by_day(rows):
            segments.append(_write_segment(directory, table, day, part, header, ends))
    append_lines(directory, header["worker"], segments)
    return segments


def seal_dead(directory: Path, stream: Path) -> list[SegmentLine]:
    """Seal what a dead writer left in `stream`. Raises LedgerError while the writer lives."""
    if is_locked(stream):
        raise LedgerError(f"{stream}: its writer is alive; a stream is sealed by its writer, or after its death")
    content = read_stream(stream)
    if not content.header:
        raise LedgerError(f"{stream}: {content.problem}; keep the file as evidence, there is nothing to seal in it")
    segments = seal_batches(directory, content)
    os.unlink(stream)
    sync_directory(stream.parent)
    return segments


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
    for day in sorted(set(days.to_pylist())):
        name = datetime.fromtimestamp(day * 86_400, UTC).strftime("%Y-%m-%d")
        found.append((name, rows.filter(pc.equal(days, day))))
    return found


def _write_segment(
    directory: Path, table: str, day: str, rows: pa.Table, header: dict[str, object], ends: dict[str, int]
) -> SegmentLine:
    worker, epoch, ordinal = str(header["worker"]), int(str(header["epoch"])), int(str(header["ordinal"]))
    first, last = rows["seq"][0].as_py(), rows["seq"][-1].as_py()
    path = directory / table / f"day={day}" / f"worker={worker}" / f"{epoch}-{first}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    metadata = {"schema_version": SCHEMA_VERSION, "worker": worker, "epoch": epoch, "ordinal": ordinal}
    rows = rows.replace_schema_metadata({k: str(v) for k, v in metadata.items()})
    pq.write_table(
        rows, temporary, compression="zstd", write_page_checksum=True, row_group_size=ROW_GROUP_ROWS,
        data_page_size=8 << 20, store_schema=True,
    )  # fmt: skip
    with open(temporary, "rb") as file:
        os.fsync(file.fileno())
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    os.rename(temporary, path)
    sync_directory(path.parent)
    return SegmentLine(
        path=str(path.relative_to(directory)), sha256=digest, table=table, worker=worker, epoch=epoch, ordinal=ordinal,
        first_seq=first, last_seq=last, rows=rows.num_rows, schema_version=SCHEMA_VERSION,
        chains=_chain_ends(table, rows), ends=ends, prev="",
    )  # fmt: skip


def _chain_ends(table: str, rows: pa.Table) -> dict[str, int]:
    """Last seq of each pool's chain in these rows ("" = no pool)."""
    pools = rows["pool"].to_pylist() if table in POOL_TABLES else [None] * rows.num_rows
    return {pool or "": seq for pool, seq in zip(pools, rows["seq"].to_pylist(), strict=True)}
