"""Reading files that may claim anything: a segment or a frame is unpacked only where what it claims fits in memory.

Invariant: nothing here allocates more than `MOST_BYTES` for one segment or frame, whatever its bytes say.
"""

from __future__ import annotations

import io
import struct

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import ipc

MOST_BYTES = 2 << 30
"""Far beyond any segment that a compactor writes: a stream is sealed at 64 MiB."""
_WIDEST = 8
_HEADER, _COMPRESSION = 2, 3  # flatbuffer fields by number: of a message, and of a record batch


class TooLarge(ValueError):
    """What a file claims to hold does not fit."""


def read_segment(data: bytes) -> pa.Table:
    """The rows of a Parquet file, page checksums verified. Raises TooLarge, OSError, pa.ArrowException."""
    with pq.ParquetFile(io.BytesIO(data)) as file:
        groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
        columns = [group.column(i) for group in groups for i in range(group.num_columns)]
        claimed = max(
            sum(max(column.num_values, 0) * _WIDEST for column in columns),
            sum(max(column.total_uncompressed_size, 0) for column in columns),
        )
        if claimed > MOST_BYTES:
            raise TooLarge(f"it claims {claimed:,} bytes in {len(data):,}, more than {MOST_BYTES:,}")
        texts = [field.name for field in file.schema_arrow if pa.types.is_string(field.type)]
    # Texts stay codes until it is known how long they are together: one long text may be named by every row.
    with pq.ParquetFile(io.BytesIO(data), page_checksum_verification=True, read_dictionary=texts) as file:
        rows = file.read()
    spelt = sum(_spelt_out(rows[name]) for name in texts)
    if spelt > MOST_BYTES:
        raise TooLarge(f"its texts are {spelt:,} bytes in {len(data):,}, more than {MOST_BYTES:,}")
    for name in texts:
        place = rows.column_names.index(name)
        rows = rows.set_column(place, rows.schema.field(place).with_type(pa.string()), rows[name].cast(pa.string()))
    return rows


def _spelt_out(column: pa.ChunkedArray) -> int:
    """Bytes of a column of texts as plain texts."""
    total = 0
    for chunk in column.chunks:
        if pa.types.is_dictionary(chunk.type):
            lengths = pc.binary_length(chunk.dictionary).take(chunk.indices)
            total += pc.sum(lengths).as_py() or 0
        else:
            total += chunk.nbytes
    return total


def read_batch(payload: bytes) -> pa.RecordBatch:
    """The one batch of an Arrow IPC stream, uncompressed. Raises TooLarge, ValueError, pa.ArrowException."""
    for message in ipc.MessageReader.open_stream(payload):
        if message.type == "record batch" and _is_compressed(message.metadata.to_pybytes()):
            raise TooLarge("its batch is compressed, and a stream's never is")
    with ipc.open_stream(payload) as reader:
        return reader.read_next_batch()


def _is_compressed(metadata: bytes) -> bool:
    """Whether the flatbuffer of a record batch's message names a compression (Arrow format, Message.fbs)."""
    message = struct.unpack_from("<I", metadata)[0]
    header = _field(metadata, message, _HEADER)
    if header is None:
        return False
    return _field(metadata, header + struct.unpack_from("<I", metadata, header)[0], _COMPRESSION) is not None


def _field(buffer: bytes, table: int, number: int) -> int | None:
    """Where a field of a flatbuffer's table stands; None where it is left out."""
    vtable = table - struct.unpack_from("<i", buffer, table)[0]
    entry = 4 + 2 * number
    if entry + 2 > struct.unpack_from("<H", buffer, vtable)[0]:
        return None
    offset = struct.unpack_from("<H", buffer, vtable + entry)[0]
    return table + offset if offset else None
