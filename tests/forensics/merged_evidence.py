"""Many small evidences as one: each keeps its own workers (by epoch), owners and ids, so nothing of one can touch another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from evidence_builder import evidence_of

from forensics.evidence import EVIDENCE_SCHEMAS, Evidence

NAMED_BY = {
    "requests": {"rq": "requests", "owner": "owners"},
    "cells": {"cell": "cells"},
    "events": {"event": "events", "cell": "cells", "src_cell": "cells", "owner": "owners", "mover": "lines", "stream": "lines"},
    "reads": {"read": "reads", "cell": "cells", "rq": "requests", "owner": "owners", "growth": "events"},
    "passes": {"rq": "requests"},
    "shares": {"rq": "requests", "owner": "owners"},
    "tags": {"owner": "owners"},
    "owners": {"owner": "owners"},
    "members": {},
}  # fmt: skip


def merged(evidences: Iterable[Evidence]) -> Evidence:
    """One evidence; the n-th part has epoch n and rids that begin with `n.`."""
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in EVIDENCE_SCHEMAS}
    first: Counter[str] = Counter()
    for number, evidence in enumerate(evidences):
        tables = {name: getattr(evidence, name).to_pylist() for name in EVIDENCE_SCHEMAS}
        for name, table in tables.items():
            rows[name] += [_moved(row, NAMED_BY[name], first, number) for row in table]
        for name in ("requests", "cells", "events", "reads", "owners"):
            first[name] += len(tables[name])
        first["lines"] += 1000
    return evidence_of(rows)


def _moved(row: dict[str, Any], named_by: dict[str, str], first: Counter[str], number: int) -> dict[str, Any]:
    moved = dict(row)
    for column, table in named_by.items():
        if row[column] is not None and row[column] >= 0:
            moved[column] = row[column] + first[table]
    if "epoch" in row:
        moved["epoch"] = number
    if row.get("rid") is not None:
        moved["rid"] = f"{number}.{row['rid']}"
    return moved
