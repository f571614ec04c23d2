"""What was written where: content events on page ranges.

Invariant: an event is placed by seq and edges alone; its times are bounds in the clock of the worker whose page
it changed, or None. A claim (receipt, ack, status) makes no event.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from forensics.lives import PageKey
from forensics.order import INF, NOTHING
from forensics.rows import Ints, Row, WorkerKey, WorkerRows

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


@dataclass(frozen=True, slots=True)
class EventRun:
    """One event on each of several pages: what one row did to pages that it covers alike.

    `pages`, `index` int64: the pages, and the place of each in the row's list. `event` has no page, no digest and the
    source and `pos` of index 0. `digests`, `sources`: the row's lists, by index. `collided`: pages to whose event it applies.
    """

    event: ContentEvent
    pages: Ints
    index: Ints
    digests: list[int] | None = None
    sources: Ints | None = None
    collided: frozenset[int] = frozenset()

    def at(self, i: int, page: PageKey, source: PageKey | None) -> ContentEvent:
        """The event on the page at place `i` of the run, as one on `page`, from `source`."""
        e, index, come = self.event, int(self.index[i]), self.event.source
        # Written out: `replace` takes five times as long, and this is done for every event of every stand-in.
        return ContentEvent(
            page, e.kind, e.tok_lo, e.tok_hi, e.lo, e.hi, e.t_lo, e.t_hi, e.req, e.tag, e.part, e.parts, e.mover, e.post_seq,
            e.done_seq, e.stream,
            None if come is None or source is None else Source(source, come.lo, come.hi, come.tag, come.since, come.until),
            e.reason, e.digest if self.digests is None else digest_of(self.digests, index),
            None if e.pos is None else e.pos + index, e.authority, e.flaw,
            e.collided or (bool(self.collided) and int(self.pages[i]) in self.collided), e.acked,
        )  # fmt: skip


def run_of(event: ContentEvent) -> EventRun:
    """A run of one page."""
    source = None if event.source is None else np.array([event.source.page[2]], np.int64)
    return EventRun(event, np.array([event.page[2]], np.int64), np.zeros(1, np.int64), None, source)


Grown = tuple[str, int, int | None, int]
"""(pool, request, tag, page): a page that the passes of a request filled under a tag."""


def local_events(worker: WorkerRows, grown: set[Grown]) -> list[EventRun]:
    """Events of the worker's own `write` and `scrub` rows. Writes of `grown` pages are growth, made elsewhere."""
    times = {row["seq"]: row["t"] for row in (*worker.pages, *worker.transfers, *worker.requests, *worker.steps)}
    appended = {row["tag"] for row in worker.pages if row["op"] == "append"}
    events: list[EventRun] = []
    for row in worker.pages:
        if row["op"] not in ("write", "scrub") or row["pages"] is None:
            continue
        other = None
        if row["op"] == "write" and row["tag"] in appended:
            place = (row["pool"], row["req"], row["tag"])
            other = {page for page in row["pages"] if (*place, page) not in grown}
            if not other:
                continue
        since = row["since_seq"] if row["since_seq"] is not None else row["seq"] - 1
        t_lo = row["t"] if row["since_seq"] is None else times.get(since)
        part, parts = part_of(row)
        for span in worker.spans(row["pool"], row["pages"], row):
            kept = slice(None) if other is None else [i for i, page in enumerate(span.pages.tolist()) if page in other]
            if kept == []:
                continue
            event = ContentEvent(
                (worker.key, row["pool"], -1), row["op"], span.tok_lo, span.tok_hi, since, row["seq"],
                t_lo, row["t"], row["req"], row["tag"], part, parts, worker.key, stream=row["stream"],
                pos=row["pos"], authority=OWN_RANK,
            )  # fmt: skip
            events.append(EventRun(event, span.pages[kept], span.index[kept], row["digests"]))
    return events


def part_of(row: Row) -> tuple[int, int]:
    """(part, parts) that a row wrote; (0, 1) = the whole page."""
    parts = row["parts"] or 1
    return (row["part"] or 0, parts) if parts > 1 else (0, 1)


def digest_of(digests: list[int] | None, index: int) -> int | None:
    """The digest of a row's page at `index`; None where it has none."""
    return digests[index] if digests is not None and index < len(digests) else None


def pos_of(row: Row, index: int) -> int | None:
    """The place in the request's page table of the row's page at `index`; None where the row does not say."""
    return None if row["pos"] is None else int(row["pos"]) + index
