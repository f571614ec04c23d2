"""Whose content went into whose responses, over a whole incident: one row per pair of donor and response.

Invariant: a page counts once for a pair; a finding that names no donor is a row without one, never left out.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from console.core.readings import Reading
from forensics.responses import verdict_of
from forensics.verdict import Verdict

FLOWS = pa.schema(
    [
        ("donor_rid", pa.string()), ("donor_tenant", pa.string()), ("rid", pa.string()), ("tenant", pa.string()),
        ("pages", pa.int64()), ("verdict", pa.string()), ("proof", pa.string()),
    ]
)  # fmt: skip


def flows_of(readings: Iterable[Reading]) -> pa.Table:
    """The flows of an incident's responses, those of the most pages first."""
    pages: dict[tuple[str | None, str], set[tuple[str, int, str, int]]] = {}
    about: dict[tuple[str | None, str], dict[str, object]] = {}
    for reading in readings:
        for finding in sorted(reading.findings, key=lambda f: verdict_of(f).rank):
            if verdict_of(finding) is Verdict.CLEAN:
                continue
            key = finding["donor_rid"], reading.rid
            where = reading.worker, reading.epoch, reading.pool
            pages.setdefault(key, set()).update((*where, page) for page in finding["page_list"] or ())
            about.setdefault(key, {
                "donor_rid": finding["donor_rid"], "donor_tenant": finding["donor_tenant"], "rid": reading.rid,
                "tenant": reading.tenant, "verdict": verdict_of(finding).value, "proof": str(finding["proof"]),
            })  # fmt: skip
    rows = [{**about[key], "pages": len(found)} for key, found in pages.items()]
    rows.sort(key=lambda row: (-row["pages"], str(row["rid"]), str(row["donor_rid"])))  # type: ignore[operator]
    return pa.Table.from_pylist(rows, FLOWS)
