"""The ordinary case, many reads at a time: one event that a read can have found, and its reader was entitled to it.

Invariant: this module only ever says "clean, proved" or "look closer"; for every read it clears, the judge of single
reads (`replay_findings.py`) comes to the same result.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from forensics.replay_facts import Facts, Ints
from forensics.replay_records import NONE, Taking

KEY_BITS = 62
OWN_RANK = 2
"""The authority of a page's own worker."""
FOREVER = 1 << 62


class Timeline:
    """All events ordered by (cell, hi) and by (cell, lo): a place in time on a cell is one number."""

    def __init__(self, facts: Facts) -> None:
        events, reads = facts.events, facts.reads
        seqs = [events[name] for name in ("lo", "hi", "src_lo", "src_hi")]
        seqs += [reads[name] for name in ("s0", "s1_max", "reserve_seq", "end_seq")]
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
        firm = ~facts.is_ghost[self._by_hi]
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


Mask = NDArray[np.bool_]


class Cleared(NamedTuple):
    """Per read: cleared here, and if so whose write it found in the end; `borrowed`: another's, by a share."""

    clean: Mask
    borrowed: Mask
    root: Ints


def ordinary_reads(facts: Facts, timeline: Timeline) -> Cleared:
    """Clear every read that certainly found one write: its own or shared with it, here or brought by its transfer."""
    reads, events = facts.reads, facts.events
    count = len(reads["cell"])
    if not count or not len(facts.kinds):
        return Cleared(np.zeros(count, bool), np.zeros(count, bool), np.full(count, NONE, np.int64))
    growth_lo = np.where(reads["growth"] >= 0, events["lo"][reads["growth"]], NONE)
    met = timeline.sole(reads["cell"], reads["s0"], reads["s1_max"], reads["growth"], growth_lo)
    root, reader = met.copy(), np.stack([reads["owner"], reads["tag"], reads["s0"]])
    landed = np.flatnonzero((met != NONE) & facts.is_kind("landing")[met] & (events["tag"][met] == reads["tag"]))
    mine = facts.owners(reads["tag"][landed], facts.page_of_cell[reads["cell"][landed]]) == reads["owner"][landed]
    landed = landed[mine]
    root[landed] = sole_sources(facts, timeline, met[landed])
    reader[1:, landed] = events["src_tag"][met[landed]], events["src_lo"][met[landed]]
    as_it_should_be = _in_place(facts, met) & (facts.flaws[met] == NONE)
    if len(contested := _contested(facts)):
        as_it_should_be &= ~np.isin(met, contested) & ~np.isin(root, contested)
    own, borrowed = (granted & as_it_should_be for granted in _granted(facts, root, *reader))
    return Cleared(own | borrowed, borrowed, np.where(own | borrowed, root, NONE))


def _in_place(facts: Facts, met: Ints) -> Mask:
    """The page stands in the request's table where the row that filled it says, as far as both say it."""
    here, there = facts.reads["pos"], facts.events["pos"][met]
    return (here == there) | (here == NONE) | (there == NONE)


def _contested(facts: Facts) -> Ints:
    """Events beside which another writer of the same page and tag may count: a little more than those that do."""
    events = facts.events
    filled = facts.is_content & (events["mover"] != NONE)
    remote = filled & (events["authority"] < OWN_RANK)
    has_remote = np.zeros(len(facts.cell_ids), bool)
    has_remote[events["cell"][remote]] = True
    where = np.flatnonzero(filled & has_remote[events["cell"]])
    if not len(where):
        return where
    where = where[np.lexsort((events["tag"][where], events["cell"][where]))]
    cell, tag, mover, lo = (events[name][where] for name in ("cell", "tag", "mover", "lo"))
    first = np.flatnonzero(np.r_[True, (cell[1:] != cell[:-1]) | (tag[1:] != tag[:-1])])
    group = np.repeat(np.arange(len(first)), np.diff(np.r_[first, len(where)]))
    several = np.minimum.reduceat(mover, first) != np.maximum.reduceat(mover, first)
    local = ~remote[where]
    # Where all but one mover are remote and landed before a local event, the local one's word stands.
    remote_until = np.maximum.reduceat(np.where(local, NONE, events["hi"][where]), first)
    least = np.minimum.reduceat(np.where(local, mover, FOREVER), first)
    greatest = np.maximum.reduceat(np.where(local, mover, NONE), first)
    stands = local & (remote_until[group] <= lo) & (least == greatest)[group]
    return where[several[group] & ~stands]


def sole_sources(facts: Facts, timeline: Timeline, landing: Ints) -> Ints:
    """The one event that each landing's source can have held while it was read; NONE where there is not exactly one."""
    events = facts.events
    cell, lo, hi = (events[name][landing] for name in ("src_cell", "src_lo", "src_hi"))
    none = np.full(len(landing), NONE, np.int64)
    return np.where(cell >= 0, timeline.sole(np.maximum(cell, 0), lo, hi, none, none), NONE)


def _granted(facts: Facts, event: Ints, owner: Ints, tag: Ints, s0: Ints) -> tuple[Mask, Mask]:
    """Which of these events are local writes that the reader (owner, tag, s0) may read: its own; by a share."""
    events = facts.events
    writer = events["owner"][event]
    written = (event != NONE) & (owner != NONE) & facts.is_written[event] & (writer != NONE)
    written &= events["tag"][event] == tag
    own = written & (writer == owner)
    others = np.flatnonzero(written & (writer != owner))
    page = facts.page_of_cell[events["cell"][event[others]]]
    lasting = events["hi"][event[others]] <= facts.ends(tag[others], page)
    lasting &= facts.owners(tag[others], page) == writer[others]
    shares = zip(*(column[others].tolist() for column in (owner, tag, s0)), page.tolist(), strict=True)
    same = [facts.taking(o, at, t, since) is Taking.SAME for o, t, since, at in shares]
    borrowed = np.zeros(len(event), bool)
    borrowed[others] = lasting & np.array(same, bool)
    return own, borrowed
