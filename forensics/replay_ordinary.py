"""The ordinary case, many reads at a time: one event that a read can have found, and its reader was entitled to it.

Invariant: this module only ever says "clean, proved" or "look closer"; for every read it clears, the judge of single
reads (`replay_findings.py`) comes to the same result.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from forensics.replay_facts import NONE, Facts, Ints

KEY_BITS = 62
FOREVER = 1 << 62


class Timeline:
    """All events ordered by (cell, hi) and by (cell, lo): a place in time on a cell is one number."""

    def __init__(self, facts: Facts) -> None:
        events, reads = facts.events, facts.reads
        seqs = (events["hi"], events["lo"], reads["s1_max"])
        last = max(int(column.max(initial=0, where=column < FOREVER)) for column in seqs)
        self._forever = last + 2
        self._bits = int(self._forever + 1).bit_length()
        if len(facts.cell_ids).bit_length() + self._bits > KEY_BITS:
            cells = f"{len(facts.cell_ids)} cells with seqs up to {last}"
            raise ValueError(f"evidence too large to replay at once: {cells}; query a shorter window of the ledger")
        self._cells = len(facts.cell_ids)
        hi, lo = self.key(events["cell"], events["hi"]), self.key(events["cell"], events["lo"])
        self._by_hi = np.argsort(hi, kind="stable")
        self._hi, self._lo = hi[self._by_hi], np.sort(lo)
        self._end_of_cell = np.searchsorted(self._hi, self.key(np.arange(self._cells) + 1, np.int64(-1)))
        firm = ~facts.is_kind("ghost")[self._by_hi]
        self._firm_hi = self._hi[firm]
        self._latest_lo = np.maximum.accumulate(lo[self._by_hi][firm]) if firm.any() else np.empty(0, np.int64)

    def key(self, cell: Ints, seq: Ints | np.int64) -> Ints:
        """Cells first, then seq; everything after the last known seq is one moment."""
        return (cell << self._bits) + np.minimum(seq, self._forever) + 1

    def sole(self, cell: Ints, s0: Ints, s1_max: Ints, growth: Ints, growth_lo: Ints) -> Ints:
        """The one event that a reader of `cell` in (s0, s1_max] can have found; NONE where there is not exactly one.

        `growth`: the reader's own growth event or NONE, begun at `growth_lo`.
        """
        start = np.searchsorted(self._firm_hi, self.key(cell, s0), side="right") - 1
        floor = self.key(cell, np.int64(-1))
        overwritten = np.maximum(self._latest_lo[np.maximum(start, 0)], floor) if len(self._latest_lo) else floor
        overwritten = np.where(start >= 0, overwritten, floor)
        grown = growth != NONE
        own = self.key(cell, growth_lo)
        odd = grown & ((own < overwritten) | (growth_lo >= s1_max))
        overwritten = np.where(grown, own, overwritten)
        first = np.searchsorted(self._hi, overwritten, side="right")
        later = len(self._lo) - np.searchsorted(self._lo, self.key(cell, s1_max), side="left")
        after_cell = len(self._lo) - self._end_of_cell[cell]
        count = self._end_of_cell[cell] - first - (later - after_cell)
        event = np.where(grown, growth, self._by_hi[np.minimum(first, len(self._by_hi) - 1)])
        return np.where((count == 1) & ~odd, event, NONE)


def ordinary_reads(facts: Facts, timeline: Timeline) -> NDArray[np.bool_]:
    """Clear every read that found certainly one event, its own or a transfer of its own."""
    reads, events = facts.reads, facts.events
    count = len(reads["cell"])
    if not count or not len(facts.kinds):
        return np.zeros(count, bool)
    growth_lo = np.where(reads["growth"] >= 0, events["lo"][reads["growth"]], NONE)
    event = timeline.sole(reads["cell"], reads["s0"], reads["s1_max"], reads["growth"], growth_lo)
    owner, tag = events["owner"][event], events["tag"][event]
    known = (event != NONE) & (reads["owner"] != NONE) & (tag == reads["tag"])
    written = _is_written(facts)
    clean = known & written[event] & (owner == reads["owner"])
    landed = np.flatnonzero(known & facts.is_kind("landing")[event])
    page = facts.page_of_cell[reads["cell"][landed]]
    mine = facts.owners(reads["tag"][landed], page) == reads["owner"][landed]
    clean[landed] = mine & (_landed_owner(facts, timeline, written, event[landed]) == reads["owner"][landed])
    return clean


def _is_written(facts: Facts) -> NDArray[np.bool_]:
    return (facts.is_kind("write") | facts.is_kind("growth")) & (facts.events["owner"] != NONE)


def _landed_owner(facts: Facts, timeline: Timeline, written: NDArray[np.bool_], landing: Ints) -> Ints:
    """Whose content, under its own tag at the source, each landing certainly brought; NONE where not so simple."""
    events = facts.events
    cell = events["src_cell"][landing]
    none = np.full(len(landing), NONE, np.int64)
    source = timeline.sole(np.maximum(cell, 0), events["src_lo"][landing], events["src_hi"][landing], none, none)
    simple = (cell >= 0) & (source != NONE)
    simple &= written[source] & (events["tag"][source] == events["src_tag"][landing])
    return np.where(simple, events["owner"][source], NONE)
