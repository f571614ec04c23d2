"""The published SQL on DuckDB: evidence in, findings out.

Invariant: the statements are those of `queries/foreign_reads*.sql`, unedited; values reach them as bound parameters
only, and the database can touch no file and no network.
"""

from __future__ import annotations

from dataclasses import fields

import duckdb
import pyarrow as pa

from forensics.catalogue import Query, Step, load_queries
from forensics.evidence import EVIDENCE_SCHEMAS, Evidence
from forensics.progress import Counted, uncounted
from forensics.shut_database import shut_database
from forensics.verdict import FINDING_COLUMNS

QUERY = "foreign-reads"


def run(evidence: Evidence, counted: Counted = uncounted, *, threads: int = 2, memory_limit: str = "4GB") -> pa.Table:
    """Findings (FINDING_COLUMNS, sorted). Raises duckdb.Error, such as OutOfMemoryException beyond `memory_limit`."""
    tables = {field.name: getattr(evidence, field.name) for field in fields(evidence) if field.name in EVIDENCE_SCHEMAS}
    with shut_database(tables, threads=threads, memory_limit=memory_limit) as database:
        result = _run(database, query().steps, counted)
    return pa.table({f.name: result[f.name].cast(f.type) for f in FINDING_COLUMNS}, schema=FINDING_COLUMNS)


def query() -> Query:
    """The query this engine runs."""
    return next(query for query in load_queries() if query.name == QUERY)


def _run(database: duckdb.DuckDBPyConnection, steps: tuple[Step, ...], counted: Counted) -> pa.Table:
    for done, step in enumerate(steps[:-1]):
        counted(done, len(steps))
        if step.repeat == "each level":
            levels = database.execute(
                "SELECT DISTINCT level FROM questions WHERE is_landing ORDER BY level DESC"
            ).fetchall()
            for (level,) in levels:
                database.execute(step.sql, {"level": level})
        elif step.repeat == "until stable":
            while database.execute(step.sql).fetchall() != [(0,)]:
                pass
        else:
            database.execute(step.sql)
    return database.sql(steps[-1].sql).to_arrow_table()
