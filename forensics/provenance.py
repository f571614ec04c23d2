"""Where a result comes from: the query, its parameters, the evidence and the programs, as the envelope of its rows.

Invariant: two results with equal envelopes, but for the time, were computed from the same evidence by the same text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import duckdb
import pyarrow as pa

from engine.ledger.reader import Ledger
from engine.ledger.schema import SCHEMA_VERSION
from forensics.catalogue import Query
from forensics.parameters import Value, shown

UNREAD = {
    "corrupt segment": "corrupt", "unknown schema": "corrupt", "torn stream": "torn", "missing segment": "missing",
    "orphan": "skipped", "unreadable stream": "skipped", "manifest": "manifest", "missing epoch": "missing",
    "broken counter": "corrupt",
    "contradiction": "contradictory",
}  # fmt: skip
"""Kinds of problems of files -> under which word they are counted."""


def envelope(query: Query, ledger: Ledger, values: Mapping[str, Value]) -> dict[str, Any]:
    """Everything about a result but its rows and counts."""
    lost = [gap for gap in ledger.gaps if "alive" not in gap.reason]
    unread = Counter(UNREAD.get(problem.kind, problem.kind) for problem in ledger.problems)
    return {
        "query": query.name,
        "query_version": query.version,
        "sql_sha256": query.sql_sha256,
        "parameters": shown(values),
        "skew_us": skew_us(ledger),
        "ledger": str(ledger.path),
        "manifest_roots": ledger.manifest_roots,
        "files": {"read": ledger.files_read, **dict(sorted(unread.items()))},
        "gaps": len(ledger.gaps),
        "rows_lost_in_gaps": sum(gap.before_seq - gap.after_seq - 1 for gap in lost if gap.before_seq is not None),
        "open_tails": len(ledger.gaps) - len(lost),
        "problems": [vars(problem) for problem in ledger.problems],
        "schema_version": SCHEMA_VERSION,
        "kvwitness": _version(),
        "duckdb": duckdb.__version__,
        "pyarrow": pa.__version__,
        "asked_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def skew_us(ledger: Ledger) -> int:
    """How far apart the clocks of two workers are at most, by what heartbeats measured: offset plus error, microseconds."""
    workers = ledger.tables["workers"]
    offsets, errors = (workers[name].to_pylist() for name in ("clock_offset_us", "clock_error_us"))
    return max((abs(o) + (e or 0) for o, e in zip(offsets, errors, strict=True) if o is not None), default=0)


def _version() -> str:
    try:
        return version("kvwitness")
    except PackageNotFoundError:
        return "not installed"
