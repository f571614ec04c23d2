"""Incidents: findings grouped by mechanism and by the pool that was read.

Invariant: an incident's id depends on its mechanism, pool and first response only, so that it stays while the incident
grows. A response that is still being judged belongs to no incident on account of what is not known yet.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property

from console.core.marks import VERDICT_SEVERITY, Severity
from console.core.mechanisms import UNDECIDED, WRONG_CONTENT, title
from forensics.responses import verdict_of
from forensics.rows import Row, WorkerKey, WorkerRows
from forensics.verdict import Kind, Verdict

SETTLE_US = 10_000_000
"""How long after its end a response may wait for the last rows of living writers before `unknown` is an incident."""
RECENT_US = 60_000_000


@dataclass(frozen=True)
class Judged:
    """What grouping needs: responses and findings as rows, times in us, the worker epochs that are still writing."""

    responses: list[Row]
    findings: list[Row]
    workers: dict[WorkerKey, WorkerRows]
    alive: frozenset[WorkerKey]
    now_us: int

    @cached_property
    def running(self) -> frozenset[str]:
        """rids that a living worker has received and not ended."""
        found: set[str] = set()
        for key in self.alive & self.workers.keys():
            rids: dict[int, str] = {}
            for row in self.workers[key].requests:
                if row["op"] == "receive" and row["rid"]:
                    rids[row["req"]] = row["rid"]
                elif row["op"] in ("finish", "abort"):
                    rids.pop(row["req"], None)
            found |= set(rids.values())
        return frozenset(found)


@dataclass(frozen=True)
class Reading:
    """What one incident says of one response: one request on the reading worker and its findings.

    `verdict` is that of these findings alone, `pages` counts distinct pages, `seen_us` is when such content was first
    read (the worker's clock), or when the response began where that is not known.
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
        return f"{self.rid}/{self.epoch}/{self.req}"


@dataclass(frozen=True)
class Incident:
    """Findings of one mechanism in one pool of one worker. Times in us UTC."""

    id: str
    severity: Severity
    mechanism: str
    worker: str
    pool: str
    readings: tuple[Reading, ...]
    first_seen_us: int | None
    last_seen_us: int | None
    recent: int
    growing: bool

    @property
    def title(self) -> str:
        """`M1 short handoff`."""
        return title(self.mechanism)

    @property
    def counts(self) -> dict[Verdict, int]:
        """Responses by the gravest verdict that this incident supports for them."""
        gravest: dict[str, Verdict] = {}
        for reading in self.readings:
            gravest[reading.rid] = min(gravest.get(reading.rid, reading.verdict), reading.verdict, key=lambda v: v.rank)
        return {verdict: sum(v is verdict for v in gravest.values()) for verdict in Verdict}

    @property
    def worst(self) -> Verdict:
        """The gravest verdict in it."""
        return min((reading.verdict for reading in self.readings), key=lambda v: v.rank)

    @property
    def donor_tenants(self) -> tuple[str, ...]:
        """Tenants whose content was there, sorted."""
        return tuple(sorted({tenant for r in self.readings for _, tenant in r.donors if tenant}))

    @property
    def reader_tenants(self) -> tuple[str, ...]:
        """Tenants whose responses are in it, sorted."""
        return tuple(sorted({r.tenant for r in self.readings if r.tenant}))

    @property
    def lasted_us(self) -> int | None:
        """From the first to the last such read."""
        if self.first_seen_us is None or self.last_seen_us is None:
            return None
        return self.last_seen_us - self.first_seen_us

    def reading(self, rid: str | None) -> Reading | None:
        """The gravest reading of a response."""
        return next((r for r in self.readings if r.rid == rid), None)


def group_incidents(judged: Judged) -> tuple[Incident, ...]:
    """All incidents, gravest first, then newest, then by id."""
    groups: dict[tuple[str, str, str], list[Reading]] = defaultdict(list)
    responses = {row["rid"]: row for row in judged.responses}
    for (mechanism, worker, pool, rid, _, _), findings in _by_reading(judged).items():
        groups[mechanism, worker, pool].append(_reading(responses.get(rid), findings, judged))
    for row in judged.responses:
        doubt = _doubt(row, judged)
        if doubt is not None:
            groups[UNDECIDED, doubt.worker, doubt.pool].append(doubt)
    incidents: list[Incident] = []
    taken: set[str] = set()
    for key, readings in sorted(groups.items(), key=lambda item: (_begin(item[1]), item[0])):
        incidents.append(_incident(key, readings, judged, taken))
    return tuple(sorted(incidents, key=lambda i: (i.severity, -(i.last_seen_us or 0), i.id)))


def still_judging(judged: Judged) -> int:
    """How many responses are `unknown` only because their rows are still on the way."""
    return sum(row["verdict"] == Verdict.UNKNOWN and _on_the_way(row, judged) for row in judged.responses)


def _on_the_way(response: Row | None, judged: Judged) -> bool:
    """Whether a living writer may still tell: the response runs, or has ended only just now."""
    if not judged.alive or response is None:
        return False
    if response["rid"] in judged.running or response["finished"] is None:
        return True
    return bool(judged.now_us - response["finished"] < SETTLE_US)


def _by_reading(judged: Judged) -> dict[tuple[str, str, str, str, int, int], list[Row]]:
    responses = {row["rid"]: row for row in judged.responses}
    found: dict[tuple[str, str, str, str, int, int], list[Row]] = defaultdict(list)
    for finding in judged.findings:
        if finding["kind"] == Kind.CLEAN:
            continue
        if verdict_of(finding) is Verdict.UNKNOWN and _on_the_way(responses.get(finding["rid"]), judged):
            continue
        mechanism = finding["mechanism"] or (WRONG_CONTENT if finding["kind"] == Kind.CORRUPT else UNDECIDED)
        found[mechanism, finding["worker"], finding["pool"], finding["rid"], finding["epoch"], finding["req"]].append(
            finding
        )
    return found


def _reading(response: Row | None, findings: list[Row], judged: Judged) -> Reading:
    verdict = min((verdict_of(f) for f in findings), key=lambda v: v.rank)
    leading = min((f for f in findings if verdict_of(f) is verdict), key=_order_of)
    seen = [t for f in findings if (t := first_read_us(f, judged.workers)) is not None]
    started = response["started"] if response else None
    return Reading(
        rid=leading["rid"], tenant=leading["tenant"], verdict=verdict, proof=leading["proof"],
        derived=leading["derived"], worker=leading["worker"], epoch=leading["epoch"], req=leading["req"],
        pool=leading["pool"],
        pages=len({page for f in findings for page in f["page_list"] or ()}),
        donors=tuple(sorted({f["donor_rid"]: f["donor_tenant"] for f in findings if f["donor_rid"]}.items())),
        first_step=leading["first_step"], first_step_last=leading["first_step_last"],
        first_step_proof=leading["first_step_proof"] or "", seen_us=min(seen, default=started),
        status=response["status"] if response else "", finished_us=response["finished"] if response else None,
        reason="; ".join(sorted({f["reason"] for f in findings if f["reason"]})), findings=tuple(findings),
    )  # fmt: skip


def _doubt(response: Row, judged: Judged) -> Reading | None:
    """A reading of a response that is unknown although no finding says why (its own rows are lost, or none tell)."""
    if response["verdict"] != Verdict.UNKNOWN or _on_the_way(response, judged):
        return None
    if any(f["rid"] == response["rid"] and verdict_of(f) is Verdict.UNKNOWN for f in judged.findings):
        return None
    return Reading(
        rid=response["rid"], tenant=response["tenant"], verdict=Verdict.UNKNOWN, proof=response["proof"], derived=False,
        worker=response["first_worker"] or "", epoch=0, req=None, pool="", pages=0, donors=(), first_step=None,
        first_step_last=None, first_step_proof="", seen_us=response["started"], status=response["status"],
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
    return next((row["t"] for row in worker.steps if row["seq"] > finding["first_seq"]), None)


def _begin(readings: list[Reading]) -> tuple[int, str]:
    return min((r.seen_us if r.seen_us is not None else 1 << 62, r.rid) for r in readings)


def _incident(key: tuple[str, str, str], readings: list[Reading], judged: Judged, taken: set[str]) -> Incident:
    mechanism, worker, pool = key
    ordered = tuple(sorted(readings, key=lambda r: (r.verdict.rank, r.seen_us or 0, r.rid, r.epoch)))
    seen = [r.seen_us for r in ordered if r.seen_us is not None]
    recent = len({r.rid for r in ordered if r.seen_us is not None and judged.now_us - r.seen_us < RECENT_US})
    open_now = any(r.rid in judged.running for r in ordered)
    return Incident(
        id=_id("|".join((*key, _begin(readings)[1])), taken), mechanism=mechanism, worker=worker, pool=pool,
        readings=ordered,
        severity=min(VERDICT_SEVERITY[r.verdict] for r in ordered), first_seen_us=min(seen, default=None),
        last_seen_us=max(seen, default=None), recent=recent if judged.alive else 0,
        growing=bool(judged.alive) and (open_now or recent > 0),
    )  # fmt: skip


def _id(identity: str, taken: set[str]) -> str:
    digest = hashlib.sha256(identity.encode()).hexdigest()
    length = 4
    while f"I-{digest[:length]}" in taken:
        length += 2
    taken.add(f"I-{digest[:length]}")
    return f"I-{digest[:length]}"
