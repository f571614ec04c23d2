"""What an incident says of each of its responses: one request on one worker, and its findings.

Invariant: a reading's verdict is that of its findings; where a response has none, it is the response's own.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from console.core.incidents import Incident
from forensics.foreign_reads import ForeignReads
from forensics.responses import verdict_of
from forensics.rows import Row, WorkerKey, WorkerRows, rows_of
from forensics.verdict import Kind, Verdict


@dataclass(frozen=True)
class Reading:
    """`pages` counts distinct pages, `seen_us` is when such content was first read (the worker's clock), or when the
    response began where that is not known.
    """

    rid: str
    tenant: str | None
    verdict: Verdict
    proof: str
    derived: bool
    worker: str
    epoch: int
    req: int | None
    pool: str
    pages: int
    donors: tuple[tuple[str, str | None], ...]
    first_step: int | None
    first_step_last: int | None
    first_step_proof: str
    seen_us: int | None
    status: str
    finished_us: int | None
    reason: str
    findings: tuple[Row, ...]

    @property
    def key(self) -> str:
        """Names the reading within its incident."""
        return f"{self.rid}/{self.worker}/{self.epoch}/{self.req}/{self.pool}"


def readings_of(incident: Incident, reads: ForeignReads, workers: dict[WorkerKey, WorkerRows]) -> tuple[Reading, ...]:
    """The readings of an incident's responses, gravest first, then in time."""
    rids = pa.array(incident.rids, pa.string())
    responses, findings = (
        rows_of(table.filter(pc.is_in(table["rid"], value_set=rids))) for table in (reads.responses, reads.findings)
    )
    groups: dict[tuple[str, str, int, int, str], list[Row]] = {}
    for row in findings:
        if row["kind"] != Kind.CLEAN:
            groups.setdefault((row["rid"], row["worker"], row["epoch"], row["req"], row["pool"]), []).append(row)
    by_rid = {row["rid"]: row for row in responses}
    found = [_reading(by_rid.get(key[0]), group, workers) for key, group in groups.items()]
    told = {reading.rid for reading in found}
    found += [_without_findings(row) for rid, row in by_rid.items() if rid not in told]
    return tuple(sorted(found, key=lambda r: (r.verdict.rank, r.seen_us or 0, r.rid, r.worker, r.epoch, r.req or 0)))


def _reading(response: Row | None, findings: list[Row], workers: dict[WorkerKey, WorkerRows]) -> Reading:
    verdict = min((verdict_of(f) for f in findings), key=lambda v: v.rank)
    leading = min((f for f in findings if verdict_of(f) is verdict), key=_order_of)
    seen = [t for f in findings if (t := first_read_us(f, workers)) is not None]
    return Reading(
        rid=leading["rid"], tenant=leading["tenant"], verdict=verdict, proof=leading["proof"],
        derived=leading["derived"], worker=leading["worker"], epoch=leading["epoch"], req=leading["req"],
        pool=leading["pool"],
        pages=len({page for f in findings for page in f["page_list"] or ()}),
        donors=tuple(sorted({f["donor_rid"]: f["donor_tenant"] for f in findings if f["donor_rid"]}.items())),
        first_step=leading["first_step"], first_step_last=leading["first_step_last"],
        first_step_proof=leading["first_step_proof"] or "", seen_us=min(seen, default=response["started"] if response else None),
        status=response["status"] if response else "", finished_us=response["finished"] if response else None,
        reason="; ".join(sorted({f["reason"] for f in findings if f["reason"]})), findings=tuple(findings),
    )  # fmt: skip


def _without_findings(response: Row) -> Reading:
    """A response that a detector named, or that is unknown because its own rows are lost."""
    return Reading(
        rid=response["rid"], tenant=response["tenant"], verdict=Verdict(response["verdict"]), proof=response["proof"],
        derived=response["derived"], worker=response["first_worker"] or "", epoch=0, req=None, pool="", pages=0, donors=(),
        first_step=None, first_step_last=None, first_step_proof="", seen_us=response["started"], status=response["status"],
        finished_us=response["finished"], reason=response["reason"], findings=(),
    )  # fmt: skip


def _order_of(finding: Row) -> tuple[int, int]:
    far = 1 << 62
    step, seq = finding["first_step"], finding["first_seq"]
    return (far if step is None else step, far if seq is None else seq)


def first_read_us(finding: Row, workers: dict[WorkerKey, WorkerRows]) -> int | None:
    """When the first pass began that surely saw the content (us, the reading worker's clock); None if not known."""
    worker = workers.get((finding["worker"], finding["epoch"]))
    if worker is None or finding["first_seq"] is None:
        return None
    at = bisect_right(worker.steps, finding["first_seq"], key=lambda row: row["seq"])
    return worker.steps[at]["t"] if at < len(worker.steps) else None
