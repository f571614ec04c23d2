"""A database in memory that is shut in: no file, no network, no setting that could be changed afterwards.

Invariant: what is registered is all that a statement can read; values reach it as bound parameters only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import duckdb
import pyarrow as pa

_SMALL = 1 << 28
"""Bytes of a table that is put in one piece before it is loaded: one of many pieces takes several times as long."""


@contextmanager
def shut_database(
    tables: Mapping[str, pa.Table], *, threads: int = 2, memory_limit: str = "4GB"
) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection that holds `tables`. Names are the program's own, never words of a ledger."""
    # Memory that does not suffice is an error: a spill would leave parts of the record on a disk.
    config: dict[str, str | bool | int | float | list[str]] = {
        "threads": threads,
        "memory_limit": memory_limit,
        "temp_directory": "",
    }
    with duckdb.connect(":memory:", config=config) as database:
        database.execute("SET enable_external_access = false")
        for name, table in tables.items():
            database.register("arriving", table.combine_chunks() if table.nbytes < _SMALL else table)
            database.execute(f'CREATE TABLE "{name}" AS SELECT * FROM arriving')
            database.unregister("arriving")
        database.execute("SET lock_configuration = true")
        yield database
