"""What was written where: content events on page ranges.

Invariant: an event is placed by seq and edges alone; its times are bounds in the clock of the worker whose page
it changed, or None. A claim (receipt, ack, status) makes no event.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from forensics.lives import PageKey
from forensics.order import INF, NOTHING
from forensics.rows import Row, WorkerKey, WorkerRows

OWN_RANK, AUTHORITATIVE, SUBORDINATE = 2, 1, 0
"""Whose word stands where two workers write one page under one tag; None = not known."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where a landing's bytes came from, and the window (lo, hi] of the source worker's seq in which they were read.

    The reading certainly went on in [since, until] (empty where `until` < `since`). `tag` None: a tier without pages,
    whose content is read under whatever tag it has.
    """

    page: PageKey
    lo: int
    hi: int
    tag: int | None
    since: int = INF
    until: int = NOTHING


@dataclass(slots=True)
class ContentEvent:
    """One change of content on [tok_lo, tok_hi) of one page, somewhere in (lo, hi] of its worker's seq.

    `part` of `parts` (1 = the whole page). `pos`: where in its request's page table its row says that the page is.
    """

    page: PageKey
    kind: str
    tok_lo: int
    tok_hi: int
    lo: int
    hi: int
    t_lo: int | None = None
    t_hi: int | None = None
    req: int | None = None
    tag: int | None = None
    part: int = 0
    parts: int = 1
    mover: WorkerKey | None = None
    post_seq: int | None = None
    done_seq: int | None = None
    stream: str | None = None
    source: Source | None = None
    reason: str | None = None
    digest: int | None = None
    pos: int | None = None
    authority: int | None = None
    flaw: str | None = None
    collided: bool = False
    acked: bool = False


def local_events(worker: WorkerRows) -> list[ContentEvent]:
    """Events of the worker's own `write` and `scrub` rows. Writes of appended pages are growth, made elsewhere."""
    times = {row["seq"]: row["t"] for row in (*worker.pages, *worker.transfers, *worker.requests, *worker.steps)}
    appended = {row["tag"] for row in worker.pages if row["op"] == "append"}
    events: list[ContentEvent] = []
    for row in worker.pages:
        if row["op"] not in ("write", "scrub") or row["pages"] is None:
            continue
        if row["op"] == "write" and row["tag"] in appended:
            continue
        since = row["since_seq"] if row["since_seq"] is not None else row["seq"] - 1
        t_lo = row["t"] if row["since_seq"] is None else times.get(since)
        part, parts = part_of(row)
        for span in worker.spans(row["pool"], row["pages"], row):
            events.append(
                ContentEvent(
                    (worker.key, row["pool"], span.page), row["op"], span.tok_lo, span.tok_hi, since, row["seq"],
                    t_lo, row["t"], row["req"], row["tag"], part, parts, worker.key, stream=row["stream"],
                    digest=digest_of(row, span.index), pos=pos_of(row, span.index), authority=OWN_RANK,
                )
            )  # fmt: skip
    return events


def part_of(row: Row) -> tuple[int, int]:
    """(part, parts) that a row wrote; (0, 1) = the whole page."""
    parts = row["parts"] or 1
    return (row["part"] or 0, parts) if parts > 1 else (0, 1)


def digest_of(row: Row, index: int) -> int | None:
    """The digest of the row's page at `index`; None where it has none."""
    digests = row["digests"]
    return digests[index] if digests is not None and index < len(digests) else None


def pos_of(row: Row, index: int) -> int | None:
    """The place in the request's page table of the row's page at `index`; None where the row does not say."""
    return None if row["pos"] is None else int(row["pos"]) + index


def proved_by_checks(worker: WorkerRows, events: list[ContentEvent]) -> list[ContentEvent]:
    """Landings on a worker's pages, placed by its failed tag checks.

    A failed tag check proves that the page held `found` at its `step`, and the same request's checks of earlier
    steps, which held, prove that it did not yet: the landing stands right before that pass. Of several that brought
    the page that tag, nobody can say which one the check met.
    """
    runs = {row["step"]: row for row in worker.steps}
    first: dict[tuple[str, int, int], tuple[int, int]] = {}
    for row in worker.checks:
        run = runs.get(row["step"])
        if row["op"] != "mismatch" or row["page"] is None or run is None or run["n"] != 1 or run["since_seq"] is None:
            continue
        at = (row["pool"], row["page"], row["found"])
        bound = max((b["seq"] for b in worker.pages if b["op"] == "bind" and b["req"] == row["req"]), default=INF)
        bound = max([bound, *(r["seq"] for r in worker.requests if r["op"] == "resume" and r["req"] == row["req"])])
        held = max(
            (s["seq"] for s in worker.steps if bound <= s["since_seq"] and s["seq"] <= run["since_seq"]),
            default=NOTHING,
        )
        first.setdefault(at, (held, run["since_seq"]))
    if not first:
        return events
    brought = Counter((e.page, e.tag) for e in events if e.kind == "landing")
    placed = []
    for event in events:
        found = first.get((event.page[1], event.page[2], event.tag or 0)) if event.page[0] == worker.key else None
        is_sole = event.kind == "landing" and brought[event.page, event.tag] == 1
        if is_sole and found is not None and event.lo <= found[1] and event.hi > found[0]:
            placed.append(replace(event, lo=max(event.lo, found[0]), hi=min(event.hi, found[1])))
        else:
            placed.append(event)
    return placed
