"""Runbooks and runs as tables, for sorting and for files."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from console.core.run_list import RunList, run_words
from console.core.sheet import Sheet, in_order
from console.core.view import Sort

_TIME = pa.timestamp("us", tz="UTC")
RUNS = pa.schema(
    [
        ("run", pa.string()), ("runbook", pa.string()), ("version", pa.string()), ("state", pa.string()), ("conclusion", pa.string()),
        ("target", pa.string()), ("started", _TIME), ("changed", _TIME), ("says", pa.string()),
    ]
)  # fmt: skip
RUNBOOKS = pa.schema(
    [("id", pa.string()), ("title", pa.string()), ("version", pa.string()), ("alerts", pa.list_(pa.string())), ("steps", pa.int64())]
)  # fmt: skip
RUN_TABLES = {"runbooks": RUNBOOKS, "runs": RUNS}
"""Their columns by name."""


def run_table(name: str, listed: RunList) -> Sheet:
    """`runbooks` or `runs`."""
    return _runbooks_sheet(listed) if name == "runbooks" else runs_sheet(listed)


def _runbooks_sheet(listed: RunList) -> Sheet:
    rows = [
        {
            "id": book.head.id, "title": book.head.title, "version": str(book.head.version), "alerts": list(book.head.alerts),
            "steps": len(book.steps),
        }
        for book in listed.runbooks
    ]  # fmt: skip
    return Sheet("runbooks", pa.Table.from_pylist(rows, RUNBOOKS))


def runs_sheet(listed: RunList) -> Sheet:
    """One row per run, in the order of the list."""
    rows = [
        {
            "run": run.run_id, "runbook": run.runbook, "version": run.version, "state": run.state.value,
            "conclusion": None if run.conclusion is None else run.conclusion.value, "target": run.target,
            "started": run.started_us, "changed": run.changed_us, "says": run_words(run),
        }
        for run in listed.runs
    ]  # fmt: skip
    return Sheet("runs", pa.Table.from_pylist(rows, RUNS), left_out=listed.more)


def runs_in_order(listed: RunList, sort: Sort | None) -> RunList:
    """The runs by one column; without one, or one that runs have not, as they were."""
    if sort is None or sort.column not in RUNS.names:
        return listed
    return listed.in_order_of(in_order(runs_sheet(listed).rows, sort)["run"].to_pylist())


def in_order_of(listed: RunList, sort: Sort | None) -> RunList:
    """Runs and runbooks in the order of a view."""
    books = in_order(_runbooks_sheet(listed).rows, sort)["id"].to_pylist()
    ordered = sorted(listed.runbooks, key=lambda book: books.index(book.head.id))
    return replace(runs_in_order(listed, sort), runbooks=tuple(ordered))
