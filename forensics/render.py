"""Results as text: table, Markdown, CSV, JSON, JSON lines, Parquet.

Invariant: data formats hold every column and row of the result; the table may shorten, and says where it does.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any, BinaryIO
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from forensics.rows import Row
from forensics.safe_text import no_formula, safe_text

FORMATS = ("table", "csv", "json", "jsonl", "parquet", "md")
PRINTED = ("table", "md")
"""Formats for people, which may be shortened."""


def write(
    rows: pa.Table, fmt: str, out: BinaryIO, *, envelope: dict[str, Any], columns: list[str], tz: ZoneInfo
) -> None:
    """Write `rows` to `out`. `envelope` surrounds JSON; `columns` are those a table shows; `tz` is for its times."""
    if fmt == "parquet":
        meta = {"kvwitness": json.dumps(envelope, default=str)}
        pq.write_table(rows.replace_schema_metadata(meta), out, write_page_checksum=True)
        return
    if fmt == "json":
        text = json.dumps({**envelope, "rows": [_jsonable(row) for row in rows.to_pylist()]}, indent=2) + "\n"
    elif fmt == "table":
        text = _table(rows, columns, tz)
    else:
        text = _head(fmt, rows.schema, columns) + _body(fmt, rows, columns, tz)
    out.write(text.encode())
    out.flush()


def write_parts(
    parts: Iterable[pa.Table], fmt: str, out: BinaryIO, *, schema: pa.Schema, envelope: Callable[[], dict[str, Any]],
    columns: list[str], tz: ZoneInfo,
) -> None:  # fmt: skip
    """Write rows that come part by part, each of `schema`, as csv, jsonl, md or parquet: memory holds one part at a time.
    `envelope` is asked for when all of them are written."""
    if fmt == "parquet":
        # Without a schema of Arrow's own, readers find what is added at the end.
        with pq.ParquetWriter(out, schema, write_page_checksum=True, store_schema=False) as file:
            for part in parts:
                file.write_table(part)
            file.add_key_value_metadata({"kvwitness": json.dumps(envelope(), default=str)})
        return
    out.write(_head(fmt, schema, columns).encode())
    for part in parts:
        out.write(_body(fmt, part, columns, tz).encode())
    out.flush()


def _head(fmt: str, schema: pa.Schema, columns: list[str]) -> str:
    """What stands above the rows of csv and md."""
    if fmt == "csv":
        return _csv([schema.names])
    return "| " + " | ".join(columns) + " |\n|" + "---|" * len(columns) + "\n" if fmt == "md" else ""


def _body(fmt: str, rows: pa.Table, columns: list[str], tz: ZoneInfo) -> str:
    """Rows as lines of csv, jsonl or md."""
    if fmt == "md":
        return "".join(
            "| " + " | ".join(_shown(v, tz).replace("|", "\\|") for v in row.values()) + " |\n"
            for row in rows.select(columns).to_pylist()
        )
    plain = (_jsonable(row) for row in rows.to_pylist())
    if fmt == "jsonl":
        return "".join(json.dumps(row) + "\n" for row in plain)
    return _csv([_cell(value) for value in row.values()] for row in plain)


def _jsonable(row: Row) -> Row:
    return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in row.items()}


def _csv(lines: Iterable[list[Any]]) -> str:
    sink = io.StringIO()
    csv.writer(sink, lineterminator="\n").writerows(lines)
    return sink.getvalue()


def _cell(value: object) -> object:
    if isinstance(value, list):
        value = " ".join(str(item) for item in value)
    return "" if value is None else no_formula(value) if isinstance(value, str) else value


def _shown(value: object, tz: ZoneInfo) -> str:
    if isinstance(value, datetime):
        return value.replace(tzinfo=value.tzinfo or UTC).astimezone(tz).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    if isinstance(value, list) and all(isinstance(item, int) for item in value):
        return _ranges(value)
    if isinstance(value, list):
        value = ", ".join(str(item) for item in value)
    return "" if value is None else safe_text(str(value))


def _ranges(numbers: list[int]) -> str:
    """Page numbers as ranges: 3-7, 9."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][-1] + 1:
            parts[-1][1:] = [number]
        else:
            parts.append([number])
    return ", ".join("-".join(str(n) for n in part) for part in parts)


def _table(rows: pa.Table, columns: list[str], tz: ZoneInfo) -> str:
    if not rows.num_rows:
        return "nothing to list\n"
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        table.add_column(name.upper().replace("_", " "), overflow="fold")
    for row in rows.select(columns).to_pylist():
        table.add_row(*(_shown(value, tz) for value in row.values()))
    sink = io.StringIO()
    # Wide enough for every column when it goes to a file or a pipe, where nobody can widen a terminal.
    console = Console()
    width = console.width if console.is_terminal else 200
    Console(file=sink, width=width, highlight=False, markup=False, emoji=False).print(table)
    return sink.getvalue()
