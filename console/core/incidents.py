"""Incidents, as the query `incidents` of the forensics library groups them, with the names behind its counts.

Invariant: which incidents there are, their ids, severities and counts are the library's. Nothing is grouped here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from console.core.marks import Severity
from console.core.mechanisms import title
from forensics.catalogue import Column
from forensics.rows import Row, rows_of
from forensics.verdict import Kind, Verdict

QUERY = "incidents"
NAMES = ("reader_tenants", "donor_tenants_named", "donors")
"""Columns that stand beside the library's own: whose responses, whose content, which requests'."""
STANDING = {
    "state": Column("how it stands with the people on call: open, back, silent, ack; and ended where it grows no more"),
    "by": Column("who said so"),
    "until": Column("when its silence ends"),
}
"""Columns of what people said of them (`standing_rows`)."""


@dataclass(frozen=True)
class Incident:
    """One cause in one stretch of time. Times in us UTC; `rids`: the responses concerned, `counts`: by verdict. `source`: the
    ledger that it is of, where those of several stand together.
    """

    id: str
    severity: Severity
    cause: str
    first_seen_us: int | None
    last_seen_us: int | None
    growing: bool
    responses: int
    counts: dict[Verdict, int]
    detectors: tuple[str, ...]
    detections: int
    workers: tuple[str, ...]
    rids: tuple[str, ...]
    reader_tenants: tuple[str, ...]
    donor_tenants: tuple[str, ...]
    donors: tuple[str, ...]
    source: str = ""

    @property
    def key(self) -> str:
        """Names it among those that it stands with: `prod-a:I-98584c01` where they are of several ledgers, else its id."""
        return f"{self.source}:{self.id}" if self.source else self.id

    @property
    def title(self) -> str:
        """`M1 short handoff`."""
        return title(self.cause)

    @property
    def worst(self) -> Verdict:
        """The gravest verdict in it; clean where a detector saw something that no response read."""
        return next((verdict for verdict in Verdict if self.counts[verdict]), Verdict.CLEAN)

    @property
    def lasted_us(self) -> int | None:
        """From its first to its last event."""
        if self.first_seen_us is None or self.last_seen_us is None:
            return None
        return self.last_seen_us - self.first_seen_us


def with_names(incidents: pa.Table, findings: pa.Table) -> pa.Table:
    """The library's rows with `NAMES` beside them, from the findings that are not clean."""
    by_rid: dict[str, list[Row]] = defaultdict(list)
    for row in rows_of(findings.select(["rid", "kind", "tenant", "donor_rid", "donor_tenant"])):
        if row["kind"] != Kind.CLEAN:
            by_rid[row["rid"]].append(row)
    of_incident = [[row for rid in rids for row in by_rid.get(rid, ())] for rids in incidents["rids"].to_pylist()]
    for name, column in zip(NAMES, ("tenant", "donor_tenant", "donor_rid"), strict=True):
        values = [_names(row[column] for row in rows) for rows in of_incident]
        incidents = incidents.append_column(name, pa.array(values, pa.list_(pa.string())))
    return incidents


def _names(values: Iterable[str | None]) -> list[str]:
    return sorted({value for value in values if value is not None})


def incidents_of(named: pa.Table, writing: bool) -> tuple[Incident, ...]:
    """The incidents of `with_names`'s rows, in their order. `writing`: whether the record still grows."""
    return tuple(_incident(row, writing) for row in rows_of(named))


def _incident(row: Row, writing: bool) -> Incident:
    return Incident(
        id=row["id"], severity=Severity.of_word(row["severity"]), cause=row["cause"], first_seen_us=row["first"], last_seen_us=row["last"],
        growing=writing and row["growing"] == "yes", responses=row["responses"],
        counts={verdict: row.get(verdict.value, 0) for verdict in Verdict}, detectors=tuple(row["detectors"]),
        detections=row["detections"], workers=tuple(row["workers"]), rids=tuple(row["rids"]),
        reader_tenants=tuple(row["reader_tenants"]), donor_tenants=tuple(row["donor_tenants_named"]), donors=tuple(row["donors"]),
    )  # fmt: skip
