"""Runbooks and runs as tables.

Invariant: the same rows in the same order as the screens have them; words that people wrote are in `says`.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from console.core.run_list import RunList, outcome, run_words
from console.core.sheet import Sheet, in_order
from console.core.view import Sort

_TIME = pa.timestamp("us", tz="UTC")
RUNBOOKS = pa.schema(
    [("id", pa.string()), ("title", pa.string()), ("version", pa.string()), ("alerts", pa.list_(pa.string())), ("steps", pa.int64())]
)  # fmt: skip
RUNS = pa.schema(
    [
        ("run", pa.string()), ("runbook", pa.string()), ("version", pa.string()), ("started", _TIME), ("changed", _TIME),
        ("state", pa.string()), ("conclusion", pa.string()), ("stands", pa.string()), ("target", pa.string()),
        ("steps", pa.list_(pa.string())), ("says", pa.string()),
    ]
)  # fmt: skip
RUN_TABLES = {"runbooks": RUNBOOKS, "runs": RUNS}
"""Their columns by name."""


def run_table(name: str, listed: RunList) -> Sheet:
    """`runbooks` or `runs`."""
    return _runbooks(listed) if name == "runbooks" else _runs(listed)


def in_order_of(listed: RunList, sort: Sort | None) -> RunList:
    """The same with its runs and runbooks in the order of a view."""
    ids = {name: in_order(run_table(name, listed).rows, sort).column(0).to_pylist() for name in RUN_TABLES}
    runs = sorted(listed.runs, key=lambda run: ids["runs"].index(run.run_id))
    books = sorted(listed.runbooks, key=lambda book: ids["runbooks"].index(book.head.id))
    return replace(listed, runs=tuple(runs), runbooks=tuple(books))


def _runbooks(listed: RunList) -> Sheet:
    rows = [
        {
            "id": book.head.id, "title": book.head.title, "version": str(book.head.version), "alerts": list(book.head.alerts),
            "steps": len(book.steps),
        }
        for book in listed.runbooks
    ]  # fmt: skip
    return Sheet("runbooks", pa.Table.from_pylist(rows, RUNBOOKS))


def _runs(listed: RunList) -> Sheet:
    rows = [
        {
            "run": run.run_id, "runbook": run.runbook, "version": str(run.version), "started": run.started_us, "changed": run.changed_us,
            "state": run.state.value, "conclusion": run.conclusion.value if run.conclusion else None, "stands": run_words(run),
            "target": run.target, "steps": [f"{step.step_id}: {step.state.value}" for step in run.steps],
            "says": " | ".join(f"{step.step_id}: {outcome(step)}" for step in run.steps),
        }
        for run in listed.runs
    ]  # fmt: skip
    return Sheet("runs", pa.Table.from_pylist(rows, RUNS), left_out=listed.more)
