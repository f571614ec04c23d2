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

import numpy as np

from forensics.content import OWN_RANK, ContentEvent, EventRun, Grown, run_of
from forensics.order import INF
from forensics.rows import Ints, Pages, Row, WorkerKey, WorkerRows, as_ints

SEQ_BITS = 38
"""Bits of a seq: what a tag has for it."""

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
    `pos`: the page's place in the request's page table, as its bind says; `pos_last`: that of the bind's last page.
    """

    req: int
    pool: str
    page: int
    tag: int | None
    tok_lo: int
    tok_hi: int
    s0: int
    passes: tuple[Pass, ...]
    growth: Pass | None = None
    req_lo: int | None = None
    req_hi: int | None = None
    pos: int | None = None
    pos_last: int | None = None


@dataclass(frozen=True, slots=True)
class ReadRun:
    """One read of each of several pages: what one row bound, covers alike and reads as long.

    `pages`, `index` int64: the pages, and the place of each in the row's list. `read` has no page and the tokens and
    `pos` of index 0; `step`: by how many tokens of the request the next page is further on.
    """

    read: PageRead
    pages: Ints
    index: Ints
    step: int = 0

    def at(self, i: int, page: int) -> PageRead:
        """The read of the page at place `i` of the run, as one of `page`."""
        r, index = self.read, int(self.index[i])
        on = index * self.step
        return PageRead(
            r.req, r.pool, page, r.tag, r.tok_lo, r.tok_hi, r.s0, r.passes, r.growth,
            None if r.req_lo is None else r.req_lo + on, r.req_hi if r.req_hi is None or r.req_hi == INF else r.req_hi + on,
            None if r.pos is None else r.pos + index, r.pos_last,
        )  # fmt: skip


class Unbinds:
    """When the reading of bound pages ends by an unbind: the rows of one request and pool."""

    def __init__(self) -> None:
        self._rows: list[tuple[int, Pages]] = []
        self._index: tuple[Ints, Ints] | None = None

    def add(self, seq: int, pages: Pages) -> None:
        """Take in an unbind row."""
        self._rows.append((seq, pages))
        self._index = None

    def first_after(self, pages: Ints, after: int) -> Ints:
        """The first seq after `after` that unbinds each of `pages`; INF where none does."""
        later = next((named for seq, named in self._rows if seq > after), None)
        if later is not None and np.array_equal(as_ints(later), pages):
            return np.full(len(pages), next(seq for seq, _ in self._rows if seq > after), np.int64)
        if self._index is None:
            self._index = self._indexed()
        known, keys = self._index
        if not len(known):
            return np.full(len(pages), INF, np.int64)
        place = np.minimum(np.searchsorted(known, pages), len(known) - 1)
        found = keys[np.minimum(np.searchsorted(keys, (place << SEQ_BITS) + after, "right"), len(keys) - 1)]
        ahead = (known[place] == pages) & (found >> SEQ_BITS == place) & (found > (place << SEQ_BITS) + after)
        return np.where(ahead, found & ((1 << SEQ_BITS) - 1), INF)

    def _indexed(self) -> tuple[Ints, Ints]:
        """(the pages that are unbound, (place among them << SEQ_BITS) + seq of every unbind), both ascending."""
        pages = np.concatenate([np.empty(0, np.int64), *(as_ints(pages) for _, pages in self._rows)])
        known, place = np.unique(pages, return_inverse=True)
        seqs = np.repeat([seq for seq, _ in self._rows], [len(pages) for _, pages in self._rows])
        return known, np.sort((place << SEQ_BITS) + seqs)


@dataclass
class Attendance:
    """One request on one worker: its binds, its end and the passes it took part in."""

    req: int
    binds: list[Row] = field(default_factory=list)
    appends: list[Row] = field(default_factory=list)
    unbinds: dict[str, Unbinds] = field(default_factory=lambda: defaultdict(Unbinds))
    first_token: int = INF
    ended: int = INF
    pauses: list[tuple[int, int]] = field(default_factory=list)
    passes: tuple[Pass, ...] = ()

    def until(self, pool: str, pages: Ints, after: int) -> Ints:
        """The seq that ends the reading of each of `pages` that were bound at `after`."""
        if pool not in self.unbinds:
            return np.full(len(pages), self.ended, np.int64)
        return np.minimum(self.unbinds[pool].first_after(pages, after), self.ended)

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
        elif row["op"] == "unbind" and req in found and row["pages"] is not None:
            found[req].unbinds[row["pool"]].add(row["seq"], row["pages"])
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
    ends = [attendance.until(row["pool"], as_ints(row["pages"] or (-1,)), row["seq"]) for row in bound]
    return int(max(end.max() for end in ends))


def page_reads(worker: WorkerRows, attendance: Attendance) -> list[ReadRun]:
    """Token ranges that a request read through its binds, and those it read back as it grew."""
    reads: list[ReadRun] = []
    for row in attendance.binds:
        if row["pages"] is None:
            continue
        if row["pool"] == SLOT:
            reads += _slot_reads(row, worker.unit(SLOT))
            continue
        unit = worker.unit(row["pool"])
        first = (row["pos"] or 0) * unit
        for span in worker.spans(row["pool"], row["pages"], row):
            untils = attendance.until(row["pool"], span.pages, row["seq"])
            for until in np.unique(untils).tolist() if np.any(untils != untils[0]) else untils[:1].tolist():
                passes, alike = attendance.passes_in(row["seq"], until), untils == until
                if passes:
                    holds = (0, INF) if row["pool"] == STATE else (first + span.tok_lo, first + span.tok_hi)
                    read = PageRead(
                        row["req"], row["pool"], -1, row["tag"], span.tok_lo, span.tok_hi, row["seq"], passes, None,
                        *holds, row["pos"], None if row["pos"] is None else row["pos"] + len(row["pages"]) - 1,
                    )  # fmt: skip
                    step = 0 if row["pool"] == STATE else unit
                    reads.append(ReadRun(read, span.pages[alike], span.index[alike], step))
    if any(p.kind == "decode" for p in attendance.passes):
        reads += _growth_reads(worker, attendance)
    return reads


def _slot_reads(row: Row, unit: int) -> list[ReadRun]:
    """A slot's content is accepted at its bind: what was there then is what was read."""
    at = Pass(row["seq"] - 1, row["seq"], 0, 1, "bind", row["t"], row["t"], row["t"])
    pages = as_ints(row["pages"])
    read = PageRead(row["req"], SLOT, -1, row["tag"], 0, unit, row["seq"] - 1, (at,))
    return [ReadRun(read, pages, np.arange(len(pages)))]


def _growth_reads(worker: WorkerRows, attendance: Attendance) -> list[ReadRun]:
    """What the request wrote as it grew, run by run, and read back in later passes.

    A slot of a run of one pass is read from the next run on; in a longer run also within it. A range that no
    later pass read has no passes: its write counts, there is no read.
    """
    reads: list[ReadRun] = []
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


def _table_growth(page_tokens: int, attendance: Attendance, pool: str, start: int, stop: int) -> list[ReadRun]:
    """See `_growth_reads`, for the table that a request had in (start, stop)."""

    def mine(rows: list[Row]) -> list[Row]:
        return [row for row in rows if row["pool"] == pool and row["pages"] is not None and start < row["seq"] < stop]

    reads: list[ReadRun] = []
    binds = mine(attendance.binds)
    if not binds:
        return reads
    last = max(binds, key=lambda row: ((row["pos"] or 0) + len(row["pages"]), row["seq"]))
    written = (last["pos"] or 0) * page_tokens + (last["tok_off"] or 0) + _tokens_of(last, page_tokens)
    places = _Places(last, mine(attendance.appends))
    runs = [p for p in attendance.passes if p.kind == "decode" and last["seq"] < p.seq < stop]
    for i, run in enumerate(runs):
        later = runs[i:] if run.n > 1 else runs[i + 1 :]
        for index in range(written // page_tokens, -(-(written + run.n) // page_tokens)):
            place = places.at(index)
            if place is None:
                continue
            page, tag, bound_at = place
            lo = max(written - index * page_tokens, 0)
            hi = min(written + run.n - index * page_tokens, page_tokens)
            number = np.array([page], np.int64)
            until = int(attendance.until(pool, number, bound_at)[0])
            if run.since_seq >= until:
                continue
            s0 = run.since_seq if run.n > 1 else run.seq
            kept = later if until >= attendance.ended else [p for p in later if p.since_seq < until]
            read = PageRead(attendance.req, pool, page, tag, lo, hi, s0, tuple(kept), run)
            reads.append(ReadRun(read, number, np.zeros(1, np.int64)))
        written += run.n
    return reads


def _tokens_of(row: Row, page_tokens: int) -> int:
    return row["tokens"] if row["tokens"] is not None else len(row["pages"]) * page_tokens


class _Places:
    """Place in the block table -> (page, tag, seq of its bind or append), for the pages that a request can grow into. A
    page that left the window may stand there again."""

    def __init__(self, last: Row, appends: list[Row]) -> None:
        self._last = last
        self._appended = {
            (row["pos"] or 0) + i: (page, row["tag"], row["seq"])
            for row in appends
            for i, page in enumerate(row["pages"] or ())
        }

    def at(self, index: int) -> tuple[int, int | None, int] | None:
        """The page at a place, its tag and since when it is there; None where there is none."""
        offset = index - (self._last["pos"] or 0)
        if index in self._appended or not 0 <= offset < len(self._last["pages"]):
            return self._appended.get(index)
        return self._last["pages"][offset], self._last["tag"], self._last["seq"]


def grown(key: WorkerKey, run: ReadRun) -> EventRun:
    """The event by which a growth read's own run wrote what later passes read back."""
    read, by = run.read, run.read.growth
    if by is None:
        raise ValueError("not a growth read")
    event = ContentEvent(
        (key, read.pool, -1), "growth", read.tok_lo, read.tok_hi, by.since_seq, by.seq, by.t, by.end_t, read.req, read.tag,
        mover=key, authority=OWN_RANK,
    )  # fmt: skip
    return EventRun(event, run.pages, run.index)


def filled(reads: list[tuple[WorkerKey, ReadRun]]) -> dict[WorkerKey, set[Grown]]:
    """By worker the pages that passes of their requests filled, which `grown` makes the events of."""
    found: dict[WorkerKey, set[Grown]] = defaultdict(set)
    for key, run in reads:
        if run.read.growth is not None:
            read = run.read
            found[key] |= {(read.pool, read.req, read.tag, page) for page in run.pages.tolist()}
    return found


def rewrites(worker: WorkerRows, attendance: Attendance) -> list[EventRun]:
    """What a request's decode passes wrote in place: its `state` pages, run by run."""
    events: list[EventRun] = []
    for row in attendance.binds:
        for page in (row["pages"] or ()) if row["pool"] == STATE else ():
            until = int(attendance.until(row["pool"], np.array([page], np.int64), row["seq"])[0])
            for run in attendance.passes_in(row["seq"], until):
                if run.kind == "decode":
                    event = ContentEvent(
                        (worker.key, row["pool"], page), "rewrite", 0, worker.unit(row["pool"]), run.since_seq, run.seq,
                        run.t, run.end_t, row["req"], row["tag"], mover=worker.key, authority=OWN_RANK,
                    )  # fmt: skip
                    events.append(run_of(event))
    return events


def attendances_of(workers: dict[WorkerKey, WorkerRows]) -> dict[WorkerKey, dict[int, Attendance]]:
    """Attendances of every worker."""
    return {key: attendances(worker) for key, worker in workers.items()}
