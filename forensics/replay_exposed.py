"""Exposure without a foreign read: others' bytes landed in a life, or a source was released while it was read.

Invariant: seq and edges only. A finding here never says that anybody read the bytes. Where nobody knows whose they
were, nobody knows whether it was exposed.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from forensics.replay_class import OTHER_GEOMETRY, Class, Reader
from forensics.replay_facts import Facts, Ints
from forensics.replay_findings import Found, Judge
from forensics.replay_ordinary import Timeline
from forensics.replay_records import Read
from forensics.verdict import Kind, Proof

RELEASED = "source released while it was read"


def exposed(facts: Facts, timeline: Timeline, judge: Judge) -> list[Found]:
    """Findings of both kinds, for every page that was read."""
    if not len(facts.reads["cell"]):
        return []
    landings = np.flatnonzero(facts.is_kind("landing"))
    return [*_overlaps(facts, timeline, judge, landings), *_released(facts, judge, landings)]


def _written_outside(facts: Facts) -> Ints:
    """Written events that are not inside the life of their own tag."""
    events = facts.events
    written = np.flatnonzero(facts.is_written)
    reserve, end = facts.spans(events["tag"][written], facts.page_of_cell[events["cell"][written]])
    return written[(events["lo"][written] < reserve) | (events["hi"][written] > end)]


def _overlaps(facts: Facts, timeline: Timeline, judge: Judge, landings: Ints) -> list[Found]:
    """Others' events inside the life that a read page had under its reader's own tag."""
    events, reads = facts.events, facts.reads
    candidates = np.concatenate([landings, _written_outside(facts)])
    if not len(candidates):
        return []
    order = candidates[np.lexsort((events["lo"][candidates], events["cell"][candidates]))]
    first, last = _between(facts, timeline, order)
    sole = order[first % len(order)]
    others = (last - first > 1) | (
        (last - first == 1) & ((events["tag"][sole] != reads["tag"]) | (events["collided"][sole] > 0))
    )
    found: list[Found] = []
    for x, start, stop in zip(
        facts.select_reads(np.flatnonzero(others)), first[others].tolist(), last[others].tolist(), strict=True
    ):
        found += _strays(facts, judge, x, order[start:stop])
    return found


def _between(facts: Facts, timeline: Timeline, order: Ints) -> tuple[Ints, Ints]:
    """For each read, the range of `order` (landings by cell and lo) that began in its page's life."""
    events, reads = facts.events, facts.reads
    keys = timeline.key(events["cell"][order], events["lo"][order])
    first = np.searchsorted(keys, timeline.key(reads["cell"], reads["reserve_seq"]))
    return first, np.maximum(np.searchsorted(keys, timeline.key(reads["cell"], reads["end_seq"])), first)


def _strays(facts: Facts, judge: Judge, x: Read, candidates: Ints) -> list[Found]:
    page = judge.page(x)
    life = facts.life(x.tag, page)
    if life is None or life.owner != x.owner or not facts.requests[x.rq].complete:
        return []
    found = []
    for e in map(facts.event, candidates.tolist()):
        collided = e.tag == x.tag and e.kind == "landing" and e.collided
        if e.hi > life.end_seq or not (collided or e.tag != x.tag):
            continue
        content = judge.classifier.classify(e, Reader(x.owner, x.tag, x.s0))
        if content.of is Class.FOREIGN:
            mechanism = "M11" if collided else judge.mechanisms.astray(e, life)
            found.append(Found(x.rq, page, Kind.EXPOSED, Proof.PROVED, mechanism=mechanism, donor=content.donor))
        elif content.of is Class.UNKNOWN:
            mechanism = "M13" if content.reason == OTHER_GEOMETRY else ""
            found.append(Found(x.rq, page, Kind.UNKNOWN, Proof.PROVED, mechanism=mechanism, reason=content.reason))
    return found


def _released(facts: Facts, judge: Judge, landings: Ints) -> list[Found]:
    """Landings whose source's life ended while they certainly read it."""
    events, reads = facts.events, facts.reads
    known = landings[events["src_cell"][landings] >= 0]
    ends = facts.ends(events["src_tag"][known], facts.page_of_cell[events["src_cell"][known]])
    released = known[(events["src_since"][known] <= ends) & (ends <= events["src_until"][known])]
    tags: dict[int, set[int]] = defaultdict(set)
    for cell, tag in zip(events["cell"][released].tolist(), events["tag"][released].tolist(), strict=True):
        tags[cell].add(tag)
    near = np.flatnonzero(np.isin(reads["cell"], events["cell"][released]))
    return [
        Found(x.rq, judge.page(x), Kind.EXPOSED, Proof.PROVED, mechanism="M5", reason=RELEASED)
        for x in facts.select_reads(near)
        if x.tag in tags[x.cell]
    ]
