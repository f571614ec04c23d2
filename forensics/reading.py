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
    """Token range [tok_lo, tok_hi) of one page, read from `s0` on under `tag`; `growth` = the own write's (lo, hi]."""

    req: int
    pool: str
    page: int
    tag: int
    tok_lo: int
    tok_hi: int
    s0: int
    passes: tuple[Pass, ...]
    growth: tuple[int, int] | None = None


@dataclass
class Attendance:
    """One request on one worker: its binds, its end and the passes it took part in."""

    req: int
    binds: list[Row] = field(default_factory=list)
    appends: list[Row] = field(default_factory=list)
    full_writes: dict[int, int] = field(default_factory=dict)  # append tag -> seq of the write when it was full
    first_token: int = INF
    unbound: int = INF
    pauses: list[tuple[int, int]] = field(default_factory=list)
    passes: tuple[Pass, ...] = ()


def attendances(worker: WorkerRows) -> dict[int, Attendance]:
    """Every request of a worker that bound pages, with its passes."""
    found: dict[int, Attendance] = defaultdict(lambda: Attendance(0))
    appended: set[int] = set()
    for row in worker.pages:
        req = row["req"]
        if row["op"] == "bind":
            found[req].binds.append(row)
        elif row["op"] == "append":
            found[req].appends.append(row)
            appended.add(row["tag"])
        elif row["op"] == "write" and row["tag"] in appended:
            found[req].full_writes.setdefault(row["tag"], row["seq"])
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
    reads: list[PageRead] = []
    for pool in {row["pool"] for row in (*attendance.binds, *attendance.appends)}:
        page_tokens = worker.page_tokens.get(pool, 0)
        binds = [row for row in attendance.binds if row["pool"] == pool and row["pages"] is not None]
        if not page_tokens or not binds:
            continue
        last = max(binds, key=lambda row: (row["pos"] or 0) + len(row["pages"]))
        bound = (last["pos"] or 0) * page_tokens + (last["tok_off"] or 0) + _tokens_of(last, page_tokens)
        grown = bound + sum(p.n for p in attendance.passes if p.kind == "decode" and p.seq > last["seq"])
        reads += _tail_reads(attendance, last, bound, grown, page_tokens)
        for row in attendance.appends:
            if row["pool"] == pool and row["pages"] is not None:
                reads += _append_reads(attendance, row, grown, page_tokens)
    return reads


def _tokens_of(row: Row, page_tokens: int) -> int:
    return row["tokens"] if row["tokens"] is not None else len(row["pages"]) * page_tokens


def _tail_reads(attendance: Attendance, last: Row, bound: int, grown: int, page_tokens: int) -> list[PageRead]:
    """The slots behind the prompt in its last page."""
    index = bound // page_tokens - (last["pos"] or 0)
    lo = bound % page_tokens
    hi = min(page_tokens, lo + grown - bound)
    passes = tuple(p for p in attendance.passes if p.seq > last["seq"])
    if lo == 0 or hi <= lo or index >= len(last["pages"]) or not passes:
        return []
    growth = (last["seq"], passes[-1].seq)
    page = last["pages"][index]
    return [PageRead(last["req"], last["pool"], page, last["tag"], lo, hi, last["seq"], passes, growth)]


def _append_reads(attendance: Attendance, row: Row, grown: int, page_tokens: int) -> list[PageRead]:
    """An appended page: its first slot is written by the first pass after the append, the others by later passes."""
    passes = tuple(p for p in attendance.passes if p.seq > row["seq"])
    reads: list[PageRead] = []
    for index, page in enumerate(row["pages"]):
        written = min(grown - ((row["pos"] or 0) + index) * page_tokens, page_tokens)
        if written <= 0 or not passes:
            continue
        whole = attendance.full_writes.get(row["tag"], passes[-1].seq)
        ranges = [(0, 1, (row["seq"], passes[0].seq)), (1, written, (row["seq"], whole))]
        for lo, hi, growth in ranges:
            if lo < hi:
                reads.append(PageRead(row["req"], row["pool"], page, row["tag"], lo, hi, row["seq"], passes, growth))
    return reads


def attendances_of(workers: dict[WorkerKey, WorkerRows]) -> dict[WorkerKey, dict[int, Attendance]]:
    """Attendances of every worker."""
    return {key: attendances(worker) for key, worker in workers.items()}
