"""Who read which pages when: binds and appends joined with the steps runs that attended to them.

Invariant: a read without a pass after its bind is no read, but for a `slot`, which is read once, at its bind. A read
of a page ends where the page is unbound. A request's decode pass k writes the slot at position (bound tokens + k - 1),
so its growth region is exactly as long as its decode passes are many; a `state` page is rewritten by every pass.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise

from forensics.content import OWN_RANK, ContentEvent, pos_of
from forensics.order import INF
from forensics.rows import Row, WorkerKey, WorkerRows

SLOT, STATE = "slot", "state"
"""Components that hold no tokens: handoff metadata, and recurrent state that every pass rewrites in place."""


@dataclass(frozen=True, slots=True)
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


@dataclass(slots=True)
class PageRead:
    """Token range [tok_lo, tok_hi) of one page, read from `s0` on under `tag`; `growth` = the run that wrote it.

    `req_lo`, `req_hi`: which tokens of the request these are; None where the component holds none or it grew them.
    `pos`: the page's place in the request's page table, as its bind says.
    """

    req: int
    pool: str
    page: int
    tag: int
    tok_lo: int
    tok_hi: int
    s0: int
    passes: tuple[Pass, ...]
    growth: Pass | None = None
    req_lo: int | None = None
    req_hi: int | None = None
    pos: int | None = None


@dataclass
class Attendance:
    """One request on one worker: its binds, its end and the passes it took part in."""

    req: int
    binds: list[Row] = field(default_factory=list)
    appends: list[Row] = field(default_factory=list)
    unbinds: dict[tuple[str, int], list[int]] = field(default_factory=lambda: defaultdict(list))
    first_token: int = INF
    ended: int = INF
    pauses: list[tuple[int, int]] = field(default_factory=list)
    passes: tuple[Pass, ...] = ()

    def until(self, pool: str, page: int, after: int) -> int:
        """The seq that ends the reading of a page that was bound at `after`."""
        return min(next((seq for seq in self.unbinds.get((pool, page), ()) if seq > after), INF), self.ended)

    def passes_in(self, after: int, until: int) -> tuple[Pass, ...]:
        """Its passes that ended after `after` and began before `until`."""
        if until >= self.ended and (not self.passes or self.passes[0].seq > after):
            return self.passes
        return tuple(p for p in self.passes if p.seq > after and p.since_seq < until)


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
            for page in row["pages"] or ():
                found[req].unbinds[row["pool"], page].append(row["seq"])
    for row in worker.requests:
        if row["req"] in found:
            _apply_request_row(found[row["req"]], row)
    runs = Runs(worker)
    for req, attendance in found.items():
        attendance.req = req
        attendance.passes = runs.attended_by(attendance)
    return dict(found)


def _apply_request_row(attendance: Attendance, row: Row) -> None:
    if row["op"] == "first_token":
        attendance.first_token = row["seq"]
    elif row["op"] in ("finish", "abort"):
        attendance.ended = min(attendance.ended, row["seq"])
    elif row["op"] == "pause":
        if attendance.pauses and attendance.pauses[-1][1] == INF:  # paused already, and now for another reason
            attendance.pauses[-1] = (attendance.pauses[-1][0], row["seq"])
        attendance.pauses.append((row["seq"], INF))
    elif row["op"] == "resume" and attendance.pauses:
        attendance.pauses[-1] = (attendance.pauses[-1][0], row["seq"])


class Runs:
    """The steps runs of a worker in seq order."""

    def __init__(self, worker: WorkerRows) -> None:
        self._is_prefill = worker.role == "prefill"
        self._all = [_as_pass(row) for row in worker.steps]
        self._seqs = [p.seq for p in self._all]
        self._least_since = [p.since_seq for p in self._all]
        for i in range(len(self._all) - 2, -1, -1):
            self._least_since[i] = min(self._least_since[i], self._least_since[i + 1])

    def attended_by(self, attendance: Attendance) -> tuple[Pass, ...]:
        """The runs that a request took part in: from its first bind until nothing of it is bound any more."""
        bound = [row for row in (*attendance.binds, *attendance.appends) if row["pool"] != SLOT]
        if not bound:
            return ()
        until = _last_unbind(attendance, bound)
        first = bisect_right(self._seqs, min(row["seq"] for row in bound))
        last = bisect_left(self._least_since, until)
        return tuple(p for p in self._all[first:last] if p.since_seq < until and self._attends(p, attendance))

    def _attends(self, p: Pass, attendance: Attendance) -> bool:
        if p.kind == "prefill" and p.since_seq >= attendance.first_token:
            return False
        # A run beside this request: a prefill run on a worker where it already decodes, or the reverse.
        if p.kind == "decode" and self._is_prefill:
            return False
        return not any(lo <= p.since_seq < hi for lo, hi in attendance.pauses)


def _as_pass(row: Row) -> Pass:
    since = row["since_seq"] if row["since_seq"] is not None else row["seq"] - 1
    t_end = row["t_end"] if row["t_end"] is not None else row["t"]
    end_t = max(row["t"] + (row["micros"] or 0), t_end)
    return Pass(since, row["seq"], row["step"] or 0, row["n"] or 1, row["op"], row["t"], t_end, end_t)


def _last_unbind(attendance: Attendance, bound: list[Row]) -> int:
    """The end of the request, or of the last of its pages before it."""
    if not attendance.unbinds:
        return attendance.ended
    ends = [attendance.until(row["pool"], page, row["seq"]) for row in bound for page in row["pages"] or (-1,)]
    return max(ends, default=attendance.ended)


def page_reads(worker: WorkerRows, attendance: Attendance) -> list[PageRead]:
    """Token ranges that a request read through its binds, and those it read back as it grew."""
    reads: list[PageRead] = []
    for row in attendance.binds:
        if row["pages"] is None:
            continue
        if row["pool"] == SLOT:
            reads += _slot_reads(row, worker.unit(SLOT))
            continue
        base = (row["pos"] or 0) * worker.unit(row["pool"])
        passes: dict[int, tuple[Pass, ...]] = {}
        for span in worker.spans(row["pool"], row["pages"], row):
            until = attendance.until(row["pool"], span.page, row["seq"])
            if until not in passes:
                passes[until] = attendance.passes_in(row["seq"], until)
            if passes[until]:
                first = base + span.index * worker.unit(row["pool"])
                holds = (0, INF) if row["pool"] == STATE else (first + span.tok_lo, first + span.tok_hi)
                reads.append(
                    PageRead(
                        row["req"], row["pool"], span.page, row["tag"], span.tok_lo, span.tok_hi, row["seq"],
                        passes[until], None, *holds, pos_of(row, span.index),
                    )
                )  # fmt: skip
    if any(p.kind == "decode" for p in attendance.passes):
        reads += _growth_reads(worker, attendance)
    return reads


def _slot_reads(row: Row, unit: int) -> list[PageRead]:
    """A slot's content is accepted at its bind: what was there then is what was read."""
    at = Pass(row["seq"] - 1, row["seq"], 0, 1, "bind", row["t"], row["t"], row["t"])
    return [PageRead(row["req"], SLOT, page, row["tag"], 0, unit, row["seq"] - 1, (at,)) for page in row["pages"]]


def _growth_reads(worker: WorkerRows, attendance: Attendance) -> list[PageRead]:
    """What the request wrote as it grew, run by run, and read back in later passes.

    A slot of a run of one pass is read from the next run on; in a longer run also within it. A range that no
    later pass read has no passes: its write counts, there is no read.
    """
    reads: list[PageRead] = []
    for pool in sorted({row["pool"] for row in (*attendance.binds, *attendance.appends)} - {SLOT, STATE}):
        binds = [row for row in attendance.binds if row["pool"] == pool and row["pages"] is not None]
        if worker.page_tokens.get(pool, 0) and binds:
            for start, stop in _tables(attendance, binds):
                reads += _table_growth(worker.page_tokens[pool], attendance, pool, start, stop)
    return reads


def _tables(attendance: Attendance, binds: list[Row]) -> list[tuple[int, int]]:
    """Spans of seqs, one for each table that a request had: after a retraction it is bound anew, to other pages."""
    anew = [lo for lo, hi in attendance.pauses if any(lo < row["seq"] < hi for row in binds)]
    return list(pairwise([-1, *anew, INF]))


def _table_growth(page_tokens: int, attendance: Attendance, pool: str, start: int, stop: int) -> list[PageRead]:
    """See `_growth_reads`, for the table that a request had in (start, stop)."""

    def mine(rows: list[Row]) -> list[Row]:
        return [row for row in rows if row["pool"] == pool and row["pages"] is not None and start < row["seq"] < stop]

    reads: list[PageRead] = []
    binds = mine(attendance.binds)
    if not binds:
        return reads
    last = max(binds, key=lambda row: (row["pos"] or 0) + len(row["pages"]))
    written = (last["pos"] or 0) * page_tokens + (last["tok_off"] or 0) + _tokens_of(last, page_tokens)
    places = _places(last, mine(attendance.appends))
    runs = [p for p in attendance.passes if p.kind == "decode" and last["seq"] < p.seq < stop]
    for i, run in enumerate(runs):
        later = runs[i:] if run.n > 1 else runs[i + 1 :]
        for index in range(written // page_tokens, -(-(written + run.n) // page_tokens)):
            if index not in places:
                continue
            page, tag, bound_at = places[index]
            lo = max(written - index * page_tokens, 0)
            hi = min(written + run.n - index * page_tokens, page_tokens)
            until = attendance.until(pool, page, bound_at)
            if run.since_seq >= until:
                continue
            s0 = run.since_seq if run.n > 1 else run.seq
            kept = later if until >= attendance.ended else [p for p in later if p.since_seq < until]
            reads.append(PageRead(attendance.req, pool, page, tag, lo, hi, s0, tuple(kept), run))
        written += run.n
    return reads


def _tokens_of(row: Row, page_tokens: int) -> int:
    return row["tokens"] if row["tokens"] is not None else len(row["pages"]) * page_tokens


def _places(last: Row, appends: list[Row]) -> dict[int, tuple[int, int, int]]:
    """Place in the block table -> (page, tag, seq of its bind or append), for the pages that a request can grow into. A
    page that left the window may stand there again."""
    places: dict[int, tuple[int, int, int]] = {}
    for row in (last, *appends):
        first = row["pos"] or 0
        places |= {first + i: (page, row["tag"], row["seq"]) for i, page in enumerate(row["pages"] or ())}
    return places


def rewrites(worker: WorkerRows, attendance: Attendance) -> list[ContentEvent]:
    """What a request's decode passes wrote in place: its `state` pages, run by run."""
    events: list[ContentEvent] = []
    for row in attendance.binds:
        for page in (row["pages"] or ()) if row["pool"] == STATE else ():
            until = attendance.until(row["pool"], page, row["seq"])
            for run in attendance.passes_in(row["seq"], until):
                if run.kind == "decode":
                    events.append(
                        ContentEvent(
                            (worker.key, row["pool"], page), "rewrite", 0, worker.unit(row["pool"]), run.since_seq, run.seq,
                            run.t, run.end_t, row["req"], row["tag"], mover=worker.key, authority=OWN_RANK,
                        )
                    )  # fmt: skip
    return events


def attendances_of(workers: dict[WorkerKey, WorkerRows]) -> dict[WorkerKey, dict[int, Attendance]]:
    """Attendances of every worker."""
    return {key: attendances(worker) for key, worker in workers.items()}
