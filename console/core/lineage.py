"""Lineage of one response: its pages in slot order, and for each the requests whose content stood there.

Invariant: every page that the request was given appears once; a page is called somebody's only where a finding says so.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from console.core.marks import LinkStyle, link_style
from console.core.readings import Reading
from console.core.snapshot import Snapshot
from forensics.responses import verdict_of
from forensics.rows import Row
from forensics.verdict import Verdict

MAX_NODES = 100


@dataclass(frozen=True)
class Link:
    """From a page to a donor (None = a donor that the record does not name, or several)."""

    donor: str | None
    style: LinkStyle
    derived: bool


@dataclass(frozen=True)
class LineagePage:
    """One page of the victim. Tokens [tok_lo, tok_hi) of its prompt and answer; `slot` is its place in the table."""

    page: int
    slot: int | None
    tok_lo: int | None
    tok_hi: int | None
    tag: int | None
    verdict: Verdict
    links: tuple[Link, ...]
    reason: str


@dataclass(frozen=True)
class Donor:
    """A request whose content was read or overlapped, and how it ended."""

    rid: str | None
    tenant: str | None
    room: int | None
    status: str
    pages: int


@dataclass(frozen=True)
class Lineage:
    """`pages` holds the pages with findings, in slot order; `own` counts the others of `total`.

    Beyond MAX_NODES pages the rest is counted in `more`, never dropped silently.
    """

    reading: Reading
    pages: tuple[LineagePage, ...]
    donors: tuple[Donor, ...]
    own: int
    total: int
    more: int

    @property
    def found(self) -> tuple[int, ...]:
        """Pages with a foreign read, in slot order; where there is none, all with findings."""
        foreign = tuple(p.page for p in self.pages if p.verdict is Verdict.CONTAMINATED)
        return foreign or tuple(p.page for p in self.pages)


def lineage(snapshot: Snapshot, reading: Reading) -> Lineage:
    """Build the lineage of one reading of an incident."""
    by_page: dict[int, list[Row]] = {}
    for finding in reading.findings:
        for page in finding["page_list"] or ():
            by_page.setdefault(page, []).append(finding)
    slots = _slots(snapshot, reading)
    pages = [_page(page, findings, slots) for page, findings in by_page.items()]
    pages.sort(key=lambda p: (p.slot is None, p.slot, p.page))
    total = len(slots.keys() | by_page.keys())
    return Lineage(
        reading,
        tuple(pages[:MAX_NODES]),
        _donors(snapshot, pages),
        total - len(pages),
        total,
        max(len(pages) - MAX_NODES, 0),
    )


def _slots(snapshot: Snapshot, reading: Reading) -> dict[int, tuple[int, int, int, int]]:
    """(slot, tok_lo, tok_hi, tag) by page, of the last life in which the request had it."""
    key = (reading.worker, reading.epoch)
    if key not in snapshot.workers or reading.req is None:
        return {}
    size = snapshot.workers[key].page_tokens.get(reading.pool, 0)
    lives = snapshot.lives(key, reading.pool)
    mine = np.flatnonzero(lives.req == reading.req)
    mine = mine[np.lexsort((lives.start_seq[mine], lives.pos[mine]))]
    columns = (column[mine].tolist() for column in (lives.page, lives.pos, lives.tag))
    return {page: (pos, pos * size, (pos + 1) * size, tag) for page, pos, tag in zip(*columns, strict=True)}


def _page(page: int, findings: list[Row], slots: dict[int, tuple[int, int, int, int]]) -> LineagePage:
    verdict = min((verdict_of(f) for f in findings), key=lambda v: v.rank)
    links: dict[str | None, Link] = {}
    for finding in sorted(findings, key=lambda f: verdict_of(f).rank):
        if verdict_of(finding) in (Verdict.CONTAMINATED, Verdict.EXPOSED) or finding["donor_rid"]:
            style = link_style(verdict_of(finding), finding["proof"])
            links.setdefault(finding["donor_rid"], Link(finding["donor_rid"], style, finding["derived"]))
    slot, lo, hi, tag = slots.get(page, (None, None, None, None))
    reason = "; ".join(sorted({f["reason"] for f in findings if f["reason"]}))
    return LineagePage(page, slot, lo, hi, tag, verdict, tuple(links.values()), reason)


def _donors(snapshot: Snapshot, pages: list[LineagePage]) -> tuple[Donor, ...]:
    """Donors in the order of the middle of their pages, so that lines cross as little as one pass can do."""
    places: dict[str | None, list[int]] = {}
    for index, page in enumerate(pages):
        for link in page.links:
            places.setdefault(link.donor, []).append(index)
    order = sorted(places, key=lambda rid: (sum(places[rid]) / len(places[rid]), rid or ""))
    return tuple(_donor(snapshot, rid, len(places[rid])) for rid in order)


def _donor(snapshot: Snapshot, rid: str | None, pages: int) -> Donor:
    if rid is None:
        return Donor(None, None, None, "several or unnamed", pages)
    keys = snapshot.requests_of.get(rid, ())
    rows = [snapshot.requests[key] for key in keys]
    room = next((row["room"] for row in rows if row["room"] is not None), None)
    room = room or next((snapshot.rooms[key] for key in keys if key in snapshot.rooms), None)
    status = snapshot.status_of(rid)
    return Donor(rid, next((row["tenant"] for row in rows), None), room, status, pages)
