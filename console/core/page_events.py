"""The order of events on one page, as it bears on one response: who owned it, who wrote it, who read it.

Invariant: rows of the reading worker stand in seq order. Rows of movers stand where edges allow, and within that where
their clock says; `placed` tells which of the two decided.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from console.core.lives import Life, PoolLives
from console.core.readings import Reading
from console.core.snapshot import Snapshot
from engine.ledger.tag import split_tag
from forensics.responses import verdict_of
from forensics.rows import Pages, Row, WorkerKey
from forensics.verdict import Kind, Verdict

MAX_EVENTS = 200
_TOLD = frozenset({"post", "done", "fail", "ack", "reject"})
"""Rows of other workers that can be an event of a page."""


class Placed(StrEnum):
    """What put an event at its place."""

    SEQ = "seq"
    EDGE = "edge"
    CLOCK = "clock"


@dataclass(frozen=True)
class PageEvent:
    """One line. `t_us` in the reading worker's clock; `delta_us` to the line before; `generation` = seq of the tag.

    `verdict` marks a line that matters (contaminated: foreign write or read); `offending` is the one to look at first.
    """

    t_us: int
    delta_us: int | None
    worker: str
    seq: int
    kind: str
    rid: str | None
    tenant: str | None
    generation: int | None
    note: str
    verdict: Verdict | None
    placed: Placed
    offending: bool


@dataclass(frozen=True)
class PageStory:
    """Events of a page; `left_out` of them do not fit MAX_EVENTS."""

    page: int
    pool: str
    worker: str
    events: tuple[PageEvent, ...]
    left_out: int


@dataclass(frozen=True)
class _Entry:
    """An event with its place: after row `anchor` of the reading worker."""

    anchor: int
    remote: bool
    event: PageEvent


@dataclass(frozen=True)
class _Scene:
    """What the builders need: the victim's life of the page and the range of rows of the reading worker."""

    snapshot: Snapshot
    reading: Reading
    page: int
    key: WorkerKey
    lives: PoolLives
    life: Life | None
    start: int
    end: int

    def inside(self, seq: int) -> bool:
        return self.start <= seq <= self.end


def page_story(snapshot: Snapshot, reading: Reading, page: int) -> PageStory:
    """The events of `page` from the donor's life on it to the end of the victim's."""
    key = (reading.worker, reading.epoch)
    if key not in snapshot.workers or reading.req is None:
        return PageStory(page, reading.pool, reading.worker, (), 0)
    scene = _scene(snapshot, reading, page, key)
    entries = [*_page_rows(scene), *_request_rows(scene), *_passes(scene), *_own_transfers(scene)]
    entries += _mover_rows(scene, entries)
    entries.sort(key=lambda e: (e.anchor, e.remote, e.event.t_us if e.remote else 0, e.event.seq))
    events = _point_out([entry.event for entry in entries])
    return PageStory(page, reading.pool, reading.worker, tuple(events[:MAX_EVENTS]), max(len(events) - MAX_EVENTS, 0))


def _scene(snapshot: Snapshot, reading: Reading, page: int, key: WorkerKey) -> _Scene:
    lives = snapshot.lives(key, reading.pool)
    mine = [life for life in lives.of_page(page) if life.req == reading.req]
    life = mine[-1] if mine else None
    start = life.start_seq if life else 0
    donors = {f["donor_rid"] for f in reading.findings if _has(f["page_list"], page)}
    before = [other for other in lives.of_page(page) if other.start_seq < start]
    of_donor = [other for other in before if snapshot.rid_of(key, other.req) in donors]
    if of_donor or before:
        start = (of_donor or before)[-1].start_seq
    end = life.end_seq if life and life.end_seq is not None else 1 << 62
    return _Scene(snapshot, reading, page, key, lives, life, start, end)


def _has(pages: Pages | None, page: int) -> bool:
    """Whether a list names the page; without making a number of every page of a long list."""
    return pages is not None and bool((np.asarray(pages) == page).any())


def _event(
    scene: _Scene, row: Row, kind: str, note: str, *, tag: int | None = None, req: int | None = None
) -> PageEvent:
    key, req = (row["worker"], row["epoch"]), row["req"] if req is None else req
    rid, tenant = scene.snapshot.rid_of(key, req), scene.snapshot.tenant_of(key, req)
    generation = split_tag(tag).seq if tag else None
    return PageEvent(
        row["t"], None, row["worker"], row["seq"], kind, rid, tenant, generation, note, None, Placed.SEQ, False
    )


def _page_rows(scene: _Scene) -> list[_Entry]:
    """Rows of the `pages` table that name the page."""
    found = []
    for row in scene.snapshot.workers[scene.key].pages:
        if row["pool"] != scene.reading.pool or not scene.inside(row["seq"]) or not _has(row["pages"], scene.page):
            continue
        event = _event(scene, row, row["op"].upper(), _page_note(scene, row), tag=row["tag"])
        if scene.life and row["op"] == "write" and row["req"] != scene.reading.req and scene.life.covers(row["seq"]):
            event = replace(event, verdict=_verdict(scene), note=f"{event.note} into g{split_tag(scene.life.tag).seq}")
        found.append(_Entry(row["seq"], False, event))
    return found


def _page_note(scene: _Scene, row: Row) -> str:
    words = [_pages(len(row["pages"]))]
    if row["op"] in ("bind", "receipt", "write") and row["tokens"] is not None:
        words.append(f"{row['tokens']} tokens")
    if row["op"] == "receipt":
        words.append("believed filled")
    if row["cause"]:
        words.append(f"cause {row['cause']}")
    if row["op"] == "free" and row["cause"] != "drained" and _still_posted(scene, row):
        words.append("! remote write not drained")
    return ", ".join(words)


def _pages(n: int | None) -> str:
    return "? pages" if n is None else f"{n} page" if n == 1 else f"{n} pages"


def _still_posted(scene: _Scene, free: Row) -> bool:
    """Whether a write under the freed tag was done only after a row that the free's worker had seen before freeing."""
    return any(
        scene.snapshot.order.known(key, scene.key, free["seq"]) < row["seq"]
        for key, row in scene.snapshot.landed_under.get(free["tag"], ())
        if _has(row["dst_pages"], scene.page)
    )


def _request_rows(scene: _Scene) -> list[_Entry]:
    """What decode believed of the victim, and aborts of the owners of the page."""
    owners = {life.req for life in scene.lives.of_page(scene.page) if scene.start <= life.start_seq <= scene.end}
    found = []
    for row in scene.snapshot.workers[scene.key].requests:
        if not scene.inside(row["seq"]) or row["req"] not in owners:
            continue
        if row["op"] == "commit" and row["req"] == scene.reading.req:
            found.append(_Entry(row["seq"], False, _event(scene, row, "COMMIT", _commit_note(scene, row))))
        elif row["op"] == "abort":
            note = f"request ended: {row['reason'] or row['status'] or 'no reason recorded'}"
            found.append(_Entry(row["seq"], False, _event(scene, row, "ABORTED", note)))
    return found


def _commit_note(scene: _Scene, row: Row) -> str:
    lives = scene.lives
    tags = lives.tag[(lives.req == row["req"]) & (lives.start_seq < row["seq"])]
    landed = (done for tag in set(tags.tolist()) for _, done in scene.snapshot.landed_under.get(tag, ()))
    written = {page for done in landed for page in done["dst_pages"] or ()}
    covered = "" if row["covered_tokens"] is None else f", {row['covered_tokens']} tokens believed"
    warning = "! " if len(written) < len(tags) else ""
    return f"{warning}movers wrote {len(written)} of {len(tags)} pages{covered}"


def _passes(scene: _Scene) -> list[_Entry]:
    """Forward passes of the victim: those before its first foreign one, that one, and the rest as one line each."""
    bound = _bound(scene)
    if bound is None:
        return []
    runs = [r for r in scene.snapshot.workers[scene.key].steps if bound[0] < r["seq"] <= bound[1]]
    first = _first_foreign_seq(scene)
    before = [r for r in runs if first is not None and r["seq"] <= first]
    after = [r for r in runs if first is not None and r["seq"] > first]
    if first is None:
        return _summed(scene, runs, "")
    found = _summed(scene, before, "")
    if after:
        event = _event(scene, after[0], "READ", f"not its own, from step {after[0]['step']}", req=scene.reading.req)
        event = replace(event, rid=scene.reading.rid, tenant=scene.reading.tenant, verdict=_verdict(scene))
        found.append(_Entry(after[0]["seq"], False, event))
    return found + _summed(scene, after[1:], "more ")


def _summed(scene: _Scene, runs: list[Row], more: str) -> list[_Entry]:
    if not runs:
        return []
    last = runs[-1]["step"] + runs[-1]["n"] - 1
    passes = sum(r["n"] for r in runs)
    note = f"{passes} {more}pass{'es' * (passes > 1)}, step {runs[0]['step']}" + (
        f"–{last}" if last > runs[0]["step"] else ""
    )
    event = _event(scene, runs[0], "READ", note, req=scene.reading.req)
    event = replace(event, rid=scene.reading.rid, tenant=scene.reading.tenant)
    return [_Entry(runs[0]["seq"], False, event)]


def _bound(scene: _Scene) -> tuple[int, int] | None:
    """Seqs between which the victim attended to the page."""
    start, end = None, 1 << 62
    for row in scene.snapshot.workers[scene.key].pages:
        if row["req"] != scene.reading.req or not _has(row["pages"], scene.page):
            continue
        if row["op"] in ("bind", "append") and start is None:
            start = row["seq"]
        elif row["op"] in ("unbind", "free"):
            end = min(end, row["seq"])
    return None if start is None else (start, end)


def _first_foreign_seq(scene: _Scene) -> int | None:
    seqs = [
        f["first_seq"]
        for f in scene.reading.findings
        if f["kind"] in (Kind.FOREIGN, Kind.CORRUPT) and _has(f["page_list"], scene.page) and f["first_seq"] is not None
    ]
    return min(seqs, default=None)


def _own_transfers(scene: _Scene) -> list[_Entry]:
    """Grants of the page, and what the reading worker heard or said of those handoffs."""
    xfers = _xfers(scene)
    found = []
    for row in scene.snapshot.workers[scene.key].transfers:
        if (
            not scene.inside(row["seq"])
            or row["xfer"] not in xfers
            or row["op"] not in ("grant", "abort", "ack", "expire")
        ):
            continue
        if row["op"] == "grant":
            note = (
                f"{_pages(row['asked'] or len(row['dst_pages'] or ()))} asked of {', '.join(row['writers'] or ['?'])}"
            )
        else:
            outstanding = "" if row["outstanding"] is None else f", {row['outstanding']} outstanding"
            towards = "sent to" if row["status"] == "sent" else f"{row['status'] or ''} from".strip()
            note = f"{towards} {row['peer'] or '?'}{outstanding}"
        found.append(_Entry(row["seq"], False, _event(scene, row, row["op"].upper(), note, tag=row["dst_tag"])))
    return found


def _xfers(scene: _Scene) -> set[int]:
    """Handoffs whose grant names the page while it is looked at, and the tags they write under."""
    return {
        row["xfer"]
        for row in scene.snapshot.workers[scene.key].transfers
        if row["op"] == "grant" and scene.inside(row["seq"]) and _has(row["dst_pages"], scene.page)
    }


def _mover_rows(scene: _Scene, listed: list[_Entry]) -> list[_Entry]:
    """Posts, landings, failures and acks of movers, and rejections of the victim elsewhere."""
    xfers, found = _xfers(scene), []
    anchors = sorted((entry.anchor, entry.event.t_us) for entry in listed)
    for key, worker in scene.snapshot.workers.items():
        if key == scene.key:
            continue
        last = 0
        told = [row for row in (*worker.transfers, *worker.requests) if row["op"] in _TOLD]
        for row in sorted(told, key=lambda r: r["seq"]):
            event = _remote_event(scene, row, xfers)
            if event is None:
                continue
            anchor, event = _place(scene, key, row, event, anchors, last)
            last = anchor
            if scene.inside(anchor) and (anchor > scene.start or event.kind == "REJECT"):
                found.append(_Entry(anchor, True, _judge_landing(scene, row, anchor, event)))
    return found


def _remote_event(scene: _Scene, row: Row, xfers: set[int]) -> PageEvent | None:
    if "xfer" not in row:
        rid = scene.snapshot.rid_of((row["worker"], row["epoch"]), row["req"])
        if row["op"] != "reject" or rid != scene.reading.rid:
            return None
        return _event(scene, row, "REJECT", f"! {row['reason'] or row['status'] or 'refused'} ({row['worker']})")
    if row["op"] in ("post", "done", "fail"):
        if row["peer"] not in (None, scene.key[0]) or not _has(row["dst_pages"], scene.page):
            return None
        words = {"post": "POST", "done": "LANDS", "fail": "FAIL"}[row["op"]]
        tail = f": {row['status']}" if row["op"] == "fail" and row["status"] else ""
        return _event(
            scene, row, words, f"batch {row['chunk']} of {row['worker']}, {_pages(row['n'])}{tail}", tag=row["dst_tag"]
        )
    if row["op"] == "ack" and row["status"] == "sent" and row["xfer"] in xfers:
        return _event(
            scene, row, "ACK", f"sent by {row['worker']}, {row['outstanding']} outstanding", tag=row["dst_tag"]
        )
    return None


def _place(
    scene: _Scene, key: WorkerKey, row: Row, event: PageEvent, anchors: list[tuple[int, int]], last: int
) -> tuple[int, PageEvent]:
    """The listed row of the reading worker after which a mover's row goes, and its time in that worker's clock."""
    order = scene.snapshot.order
    low, high = order.known(scene.key, key, row["seq"]), order.after(key, row["seq"], scene.key)
    bounds = order.convert(row["t"], key, scene.key)
    t = row["t"] if bounds is None else (bounds[0] + bounds[1]) // 2
    least = max([last, *(seq for seq, _ in anchors if seq <= low)], default=0)
    possible = [(seq, at) for seq, at in anchors if least < seq < high]
    anchor = max([least, *(seq for seq, at in possible if at <= t)])
    placed = Placed.CLOCK if possible else Placed.EDGE
    return anchor, replace(event, t_us=t, placed=placed)


def _judge_landing(scene: _Scene, row: Row, anchor: int, event: PageEvent) -> PageEvent:
    """A landing under another tag within the victim's life is the foreign write."""
    life = scene.life
    if row["op"] != "done" or life is None or row["dst_tag"] == life.tag or not life.covers(anchor):
        return event
    note = f"into g{split_tag(life.tag).seq}, meant for g{event.generation}; {event.note}"
    return replace(event, verdict=_verdict(scene), note=note)


def _verdict(scene: _Scene) -> Verdict:
    """The gravest verdict on this page."""
    found = [verdict_of(f) for f in scene.reading.findings if _has(f["page_list"], scene.page)]
    return min(found, key=lambda v: v.rank, default=Verdict.UNKNOWN)


def _point_out(events: list[PageEvent]) -> list[PageEvent]:
    """Add the time between lines, and point at the write that did it, or else at the read."""
    marked = [i for i, event in enumerate(events) if event.verdict is not None]
    writes = [i for i in marked if events[i].kind != "READ"]
    offending = next(iter(writes or marked), None)
    return [
        replace(event, delta_us=event.t_us - events[i - 1].t_us if i else None, offending=i == offending)
        for i, event in enumerate(events)
    ]
