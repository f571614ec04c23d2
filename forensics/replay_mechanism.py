"""The fault class that brought an event before a read (docs/verdicts.md, "Mechanism").

Invariant: a mechanism explains a finding and decides none. What the record does not show is 'mechanism unknown'.
"""

from __future__ import annotations

import numpy as np

from forensics.replay_class import DEEPEST, GRANTED, Classifier, Content, misplaced, tag_at_source
from forensics.replay_facts import Facts, Ints
from forensics.replay_order import Mode
from forensics.replay_records import NONE, WRITTEN, Event, Life, Read
from forensics.verdict import MECHANISM_UNKNOWN

ROBBED = ("taken", "reserved")
"""Ends of a life that its owner had no part in."""
SLOT = "slot"
FILLED = (*WRITTEN, "landing")
OF_WHAT_LAY_THERE = ("M1", MECHANISM_UNKNOWN)
"""Of a landing that brought what its source held all along. In a wrong place of the table, the place is at fault: the
rest of a last page is never read where it belongs."""


class Mechanisms:
    """Names mechanisms of findings one by one."""

    def __init__(self, facts: Facts, classifier: Classifier) -> None:
        self.facts = facts
        self.classifier = classifier
        self._read_beside: dict[tuple[int, str], Ints] = {}

    def of(self, x: Read, e: Event, content: Content, mode: Mode) -> str:
        """The mechanism of a read that certainly found e."""
        if content.cause:
            return content.cause
        if e.kind == "landing" and e.tag == x.tag:
            found = self._at_source(e)
            return "M13" if misplaced(e, x) and found in OF_WHAT_LAY_THERE else found
        life = self.facts.life(x.tag, self.classifier.page(e))
        if e.kind in WRITTEN and e.tag == x.tag:
            return MECHANISM_UNKNOWN if life is not None and life.owner == e.owner else "M11"
        if e.kind in FILLED:
            reserved = life.reserve_seq if life else -1
            if e.lo >= reserved or (mode is Mode.C and e.kind == "landing" and e.hi > reserved):
                return self.astray(e, life)
        return self._left_over(x, life) if life is not None else MECHANISM_UNKNOWN

    def astray(self, e: Event, life: Life | None) -> str:
        """Of an event under another tag than the page's, whose `life` had begun."""
        other = self.facts.life(e.tag, self.classifier.page(e))
        if other is None:
            return "M13"
        if life is None:
            return MECHANISM_UNKNOWN
        if other.reserve_seq > life.reserve_seq:
            return "M8" if life.ended in ROBBED else "M7"
        if other.ended in ROBBED:
            return "M8"
        if e.kind in WRITTEN:
            return "M7"
        return "M4" if other.held or e.acked else "M3"

    def _at_source(self, e: Event) -> str:
        pairs = [(landing, s, self.classifier.source_life(landing)) for landing, s in self._odd(e)]
        reused = [w for _, s, w in pairs if w is not None and s.lo >= w.end_seq]
        if reused:
            return "M8" if any(w.ended in ROBBED for w in reused) else "M5"
        if any(self._filled_later(landing, s) for landing, s, _ in pairs):
            return "M6"
        if any(landing.collided for landing, _, _ in pairs):
            return "M11"
        strays = [
            self.astray(s, w)
            for landing, s, w in pairs
            if s.kind in FILLED and w is not None and s.tag != landing.src_tag and s.lo >= w.reserve_seq
        ]
        if strays:
            return min(strays)
        left = [w for _, s, w in pairs if s.kind in ("unwritten", "scrub") or (w is not None and s.hi <= w.reserve_seq)]
        if not left:
            return MECHANISM_UNKNOWN
        return "M2" if any(w is not None and (w.failed or w.unreturned) for w in left) else "M1"

    def _odd(self, e: Event, depth: int = 1) -> list[tuple[Event, Event]]:
        """(landing, source event) where the chain of transfers under their own tags first brought what it should not."""
        owner = self._owner_of_tag(e)
        if depth > DEEPEST or e.src_cell == NONE or owner is None:
            return []
        found: list[tuple[Event, Event]] = []
        classes = self.classifier.source_classes(e, owner, depth)
        for s, content in zip(self.classifier.sources(e), classes, strict=True):
            if content.of not in GRANTED:
                deeper = s.kind == "landing" and s.tag == tag_at_source(e, s)
                found += (self._odd(s, depth + 1) if deeper else []) or [(e, s)]
        return found

    def _owner_of_tag(self, e: Event) -> int | None:
        life = self.facts.life(e.tag, self.classifier.page(e))
        return None if life is None else life.owner

    def _filled_later(self, landing: Event, s: Event) -> bool:
        if landing.src_tag == NONE:
            return False
        history = self.classifier.history(landing.src_cell)
        return history.has_filled(landing.src_tag, landing.src_lo, but=s.event)

    def _left_over(self, x: Read, life: Life) -> str:
        """The page was bound before, or without, the content that it was to have."""
        if self.classifier.history(x.cell).has_filled(x.tag, x.s0, grown=False):
            return "M6"
        if life.failed:
            return "M2"
        if life.misdirected:
            return "M13"
        if life.collided:
            return "M11"
        if self._another_component_had_it(x):
            return "M14"
        return "M2" if life.unreturned else "M1" if life.granted else MECHANISM_UNKNOWN

    def _another_component_had_it(self, x: Read) -> bool:
        pool = self._pool(x)
        beside = self._beside(x.rq, pool)
        for y in self.facts.select_reads(beside) if len(beside) else ():
            # What a slot says is of the whole handoff, whatever tokens the other page holds.
            overlapping = pool == SLOT or (x.req_lo < y.req_hi and y.req_lo < x.req_hi)
            if overlapping and self.classifier.history(y.cell).was_filled(y.tag, y.s0):
                return True
        return False

    def _beside(self, rq: int, pool: str) -> Ints:
        """Positions of a request's reads in other pools (but `slot`)."""
        if (rq, pool) not in self._read_beside:
            facts = self.facts
            where = facts.reads_of_request(rq)
            pools = facts.page_pool[facts.page_of_cell[facts.reads["cell"][where]]]
            same = [number for number, name in enumerate(facts.pools) if name in (pool, SLOT)]
            self._read_beside[rq, pool] = where[~np.isin(pools, same)]
        return self._read_beside[rq, pool]

    def _pool(self, x: Read) -> str:
        return self.facts.pools[int(self.facts.page_pool[self.facts.page_of_cell[x.cell]])]
