"""Who read which pages when: binds and appends joined with the steps runs that attended to them.

Invariant: a read without a pass after its bind is no read. A request's decode pass k writes the slot at
position (bound tokens + k - 1), so its growth region is exactly as long as its decode passes are many.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from forensics.order import INF
from forensics.rows import Row, WorkerKey, WorkerRows, spans


@dataclass(frozen=True)
class Pass:
    """One steps run as one request saw it: passes in (since_seq, seq]; times us of first start, last start, last end."""

    since_seq: int
    seq: int
    step: int
    n: int
    kind: str
    t: int
    t_end: int
    end_t: int


@dataclass(frozen=True)
class PageRead:
    """Token range [tok_lo, tok_hi) of one page, read from `s0` on under `tag`; `growth` = the run that wrote it."""

    req: int
    pool: str
    page: int
    tag: int
    tok_lo: int
    tok_hi: int
    s0: int
    passes: tuple[Pass, ...]
    growth: Pass | None = None


@dataclass
class Attendance:
    """One request on one worker: its binds, its end and the passes it took part in."""

    req: int
    binds: list[Row] = field(default_factory=list)
    appends: list[Row] = field(default_factory=list)
    first_token: int = INF
    unbound: int = INF
    pauses: list[tuple[int, int]] = field(default_factory=list)
    passes: tuple[Pass, ...] = ()


def attendances(worker: WorkerRows) -> dict[int, Attendance]:
    """Every request of a worker that bound pages, with its passes."""
    found: dict[int, Attendance] = defaultdict(lambda: Attendance(0))
    for row in worker.pages:
        req = row["req"]
        if row["op"] == "bind":
            found[req].binds.append(row)
        elif row["op"] == "append":
            found[req].appends.append(row)
        elif row["op"] == "unbind" and req in found:
            found[req].unbound = min(found[req].unbound, row["seq"])
    for row in worker.requests:
        if row["req"] not in found:
            continue
        _apply_request_row(found[row["req"]], row)
    for req, attendance in found.items():
        attendance.req = req
        attendance.passes = _passes(attendance, worker)
    return dict(found)


def _apply_request_row(attendance: Attendance, row: Row) -> None:
    if row["op"] == "first_token":
        attendance.first_token = row["seq"]
    elif row["op"] in ("finish", "abort"):
        attendance.unbound = min(attendance.unbound, row["seq"])
    elif row["op"] == "pause":
        attendance.pauses.append((row["seq"], INF))
    elif row["op"] == "resume" and attendance.pauses:
        attendance.pauses[-1] = (attendance.pauses[-1][0], row["seq"])


def _passes(attendance: Attendance, worker: WorkerRows) -> tuple[Pass, ...]:
    if not attendance.binds and not attendance.appends:
        return ()
    start = min(row["seq"] for row in (*attendance.binds, *attendance.appends))
    chosen = []
    for row in worker.steps:
        since, seq = row["since_seq"] if row["since_seq"] is not None else row["seq"] - 1, row["seq"]
        if seq <= start or since >= attendance.unbound:
            continue
        if row["op"] == "prefill" and since >= attendance.first_token:
            continue
        # A run beside this request: a prefill run on a worker where it already decodes, or the reverse.
        if row["op"] == "decode" and worker.role == "prefill":
            continue
        if any(lo <= since < hi for lo, hi in attendance.pauses):
            continue
        t = row["t"]
        t_end = row["t_end"] if row["t_end"] is not None else t
        end_t = max(t + (row["micros"] or 0), t_end)
        chosen.append(Pass(since, seq, row["step"] or 0, row["n"] or 1, row["op"], t, t_end, end_t))
    return tuple(chosen)


def page_reads(worker: WorkerRows, attendance: Attendance) -> list[PageRead]:
    """Token ranges that a request read through its binds, and those it read back as it grew."""
    reads: list[PageRead] = []
    for row in attendance.binds:
        passes = tuple(p for p in attendance.passes if p.seq > row["seq"])
        if not passes or row["pages"] is None:
            continue
        page_tokens = worker.page_tokens.get(row["pool"], 0)
        for span in spans(row["pages"], row["tok_off"], row["tokens"], page_tokens):
            reads.append(
                PageRead(row["req"], row["pool"], span.page, row["tag"], span.tok_lo, span.tok_hi, row["seq"], passes)
            )
    if any(p.kind == "decode" for p in attendance.passes):
        reads += _growth_reads(worker, attendance)
    return reads


def _growth_reads(worker: WorkerRows, attendance: Attendance) -> list[PageRead]:
    """What the request wrote as it grew, run by run, and read back in later passes.

    A slot of a run of one pass is read from the next run on; in a longer run also within it. A range that no
    later pass read has no passes: its write counts, there is no read.
    """
    reads: list[PageRead] = []
    for pool in sorted({row["pool"] for row in (*attendance.binds, *attendance.appends)}):
        page_tokens = worker.page_tokens.get(pool, 0)
        binds = [row for row in attendance.binds if row["pool"] == pool and row["pages"] is not None]
        if not page_tokens or not binds:
            continue
        last = max(binds, key=lambda row: (row["pos"] or 0) + len(row["pages"]))
        written = (last["pos"] or 0) * page_tokens + (last["tok_off"] or 0) + _tokens_of(last, page_tokens)
        places = _places(last, [row for row in attendance.appends if row["pool"] == pool])
        runs = [p for p in attendance.passes if p.kind == "decode" and p.seq > last["seq"]]
        for i, run in enumerate(runs):
            later = tuple(runs[i:] if run.n > 1 else runs[i + 1 :])
            for index in range(written // page_tokens, -(-(written + run.n) // page_tokens)):
                if index not in places:
                    continue
                page, tag = places[index]
                lo = max(written - index * page_tokens, 0)
                hi = min(written + run.n - index * page_tokens, page_tokens)
                s0 = run.since_seq if run.n > 1 else run.seq
                reads.append(PageRead(attendance.req, pool, page, tag, lo, hi, s0, later, run))
            written += run.n
    return reads


def _tokens_of(row: Row, page_tokens: int) -> int:
    return row["tokens"] if row["tokens"] is not None else len(row["pages"]) * page_tokens


def _places(last: Row, appends: list[Row]) -> dict[int, tuple[int, int]]:
    """Place in the block table -> (page, tag), for the pages that a request can grow into."""
    first = last["pos"] or 0
    places = {first + i: (page, last["tag"]) for i, page in enumerate(last["pages"])}
    for row in appends:
        places |= {(row["pos"] or 0) + i: (page, row["tag"]) for i, page in enumerate(row["pages"] or ())}
    return places


def attendances_of(workers: dict[WorkerKey, WorkerRows]) -> dict[WorkerKey, dict[int, Attendance]]:
    """Attendances of every worker."""
    return {key: attendances(worker) for key, worker in workers.items()}
