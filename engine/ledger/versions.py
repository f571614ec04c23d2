"""Schema versions: how a segment of any known version becomes a table of the present one.

Invariant: evidence is never rewritten; a reader maps old to new, fills what an old version lacked with nulls, and
keeps columns it does not know.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from engine.ledger.errors import LedgerError
from engine.ledger.schema import SCHEMA_VERSION, TABLES

MAPPINGS: dict[int, Callable[[str, pa.Table], pa.Table]] = {}
"""Version n -> how its tables become those of version n + 1."""


def to_present(table: str, rows: pa.Table, version: int) -> pa.Table:
    """`rows` of schema `version` with the present columns first, in order, and unknown columns behind them."""
    if version > SCHEMA_VERSION or version < 1:
        raise LedgerError(f"schema version {version} is not known here (1 to {SCHEMA_VERSION}); use a newer kvwitness")
    while version < SCHEMA_VERSION:
        rows = MAPPINGS[version](table, rows)
        version += 1
    schema = TABLES[table]
    columns = {
        field.name: rows[field.name].cast(field.type)
        if field.name in rows.column_names
        else pa.nulls(rows.num_rows, field.type)
        for field in schema
    }
    columns |= {name: rows[name] for name in rows.column_names if name not in schema.names}
    return pa.table(columns)
