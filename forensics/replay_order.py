"""What happened before what on one cell: the relations of docs/verdicts.md, and which events a reader may find.

Invariant: `History.possible` walks only events that no earlier certain event has overwritten and that began before
the read ended, so its cost does not grow with the cell's past or future. It relies on sound evidence: what the mover's
or the stream's order says never contradicts the order of seq.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from forensics.replay_facts import Facts, Ints
from forensics.replay_records import NONE, Event, Passes, Read
from forensics.verdict import Proof


class Mode(Enum):
    """Mode E trusts seq and edges only; mode C adds clocks, and what it decides is inferred."""

    E = Proof.PROVED
    C = Proof.INFERRED

    @property
    def proof(self) -> Proof:
        """The proof that a decision in this mode carries."""
        return self.value


def before(e: Event, f: Event, mode: Mode) -> bool:
    """e took place before f."""
    if _before_by_seq(e, f):
        return True
    return mode is Mode.C and e.t_hi < f.t_lo and not _before_by_seq(f, e)


def _before_by_seq(e: Event, f: Event) -> bool:
    return (
        e.hi <= f.lo
        or (e.mover != NONE and e.mover == f.mover and e.done_seq <= f.post_seq)
        or (e.stream != NONE and e.stream == f.stream and e.hi < f.hi)
    )


def _above(one: Event, other: Event) -> bool:
    """One's authority is higher, whatever one that is not known (0 or 1) may be."""
    return max(one.authority, 0) > (other.authority if other.authority != NONE else 1)


def pre(e: Event, x: Read, mode: Mode) -> bool:
    """e took place before x's first pass, or is what x itself writes as it grows."""
    if e.hi <= x.s0 or e.event == x.growth:
        return True
    return mode is Mode.C and e.t_hi < x.first_t and e.lo < x.s0


def gone(e: Event, x: Read, mode: Mode) -> bool:
    """e took place after x's last pass."""
    if e.lo >= x.s1_max:
        return True
    return mode is Mode.C and e.t_lo > x.end_t and x.s1 == x.s1_max and not seen(e, x, Mode.E)


def seen(e: Event, x: Read, mode: Mode) -> bool:
    """e took place before x's last pass began."""
    if pre(e, x, mode) or e.hi <= x.last_since:
        return True
    return mode is Mode.C and e.t_hi < x.last_t_end and e.lo < x.s1_max


def first_certain_pass(e: Event, s0: int, passes: Passes) -> int | None:
    """Index of the first run that began after e, for a reader from `s0` on."""
    if e.hi <= s0:
        index = bisect_right(passes.seq, s0)
        return index if index < len(passes.seq) else None
    # since_seq < seq: no run up to e.hi can have begun after it.
    for index in range(bisect_right(passes.seq, e.hi), len(passes.seq)):
        if passes.since_seq[index] >= e.hi:
            return index
    return None


def first_possible_pass(e: Event, s0: int, passes: Passes) -> int | None:
    """Index of the first run that may have found e."""
    index = bisect_right(passes.seq, max(e.lo, s0))
    return index if index < len(passes.seq) else None


def certain(e: Event, x: Read, possible: list[Event], passes: Passes, mode: Mode) -> bool:
    """Some pass of x certainly found e: `possible` are the events it may have found, e among them."""
    if not seen(e, x, mode):
        return False
    reader = first_certain_pass(e, x.s0, passes)
    return all(
        f.event == e.event or before(f, e, mode) or (reader is not None and _passed(f, passes, reader, mode))
        for f in possible
    )


def _passed(f: Event, passes: Passes, reader: int, mode: Mode) -> bool:
    """f came only after the run `reader`."""
    if passes.seq[reader] <= _overwrites_from(f):
        return True
    return mode is Mode.C and passes.end_t[reader] < f.t_lo and passes.since_seq[reader] < f.hi


def _overwrites_from(f: Event) -> int:
    """The seq of the last run that found what f overwrites: a pass reads a state before it rewrites it."""
    return f.hi if f.kind == "rewrite" else f.lo


class RunningMaximum:
    """The greatest value among entries whose key is at most a bound; `keys` ascending."""

    def __init__(self, keys: list[int], values: Ints) -> None:
        self._keys = keys
        self._values = np.maximum.accumulate(values).tolist()

    def at(self, bound: int) -> int:
        """NONE where no key is at most `bound`."""
        i = bisect_right(self._keys, bound)
        return self._values[i - 1] if i else NONE


class History:
    """The events of one cell, ordered once. Holds numbers; an `Event` is made only of what a read may have found."""

    def __init__(self, facts: Facts, cell: int) -> None:
        self._facts = facts
        where = facts.events_of(cell)
        where = where[np.lexsort((facts.events["lo"][where], facts.events["hi"][where]))]
        is_ghost = facts.is_ghost[where]
        self._ghosts = where[is_ghost].tolist()
        self._firm = where[~is_ghost]
        lo, hi = facts.events["lo"][self._firm], facts.events["hi"][self._firm]
        self._lo, self._hi = lo.tolist(), hi.tolist()
        self._least_lo = np.minimum.accumulate(lo[::-1])[::-1].tolist()
        self._overwrites = RunningMaximum(self._hi, lo)
        self._posts = self._latest("mover", "post_seq")
        self._launches = self._latest("stream", "hi")

    def _latest(self, order: str, place: str) -> dict[int, RunningMaximum]:
        """By mover or stream: how far it had come with what had taken place by some seq."""
        ids = self._facts.events[order][self._firm]
        found = {}
        for one in set(ids[ids != NONE].tolist()):
            entries = self._firm[ids == one]
            found[one] = RunningMaximum(self._facts.events["hi"][entries].tolist(), self._facts.events[place][entries])
        return found

    def has_filled(self, tag: int, after: int, *, grown: bool = True, but: int = NONE) -> bool:
        """A landing or write under `tag` (with `grown`, growth too) took place, or may have, after seq `after`."""
        late = self._firm[bisect_right(self._hi, after) :]
        return bool(np.any(self._fills(late, tag, grown) & (late != but)))

    def was_filled(self, tag: int, until: int) -> bool:
        """A landing or write under `tag` took place by seq `until`."""
        return bool(np.any(self._fills(self._firm[: bisect_right(self._hi, until)], tag, grown=False)))

    def _fills(self, where: Ints, tag: int, grown: bool) -> NDArray[np.bool_]:
        kinds = self._facts.is_content if grown else self._facts.is_filling
        return kinds[where] & (self._facts.events["tag"][where] == tag)

    def contest(self, e: Event) -> bool | None:
        """Whether another writer's word should stand where e does; False: nobody can say; None: it should not."""
        others = self._firm[self._fills(self._firm, e.tag, grown=True)]
        movers = self._facts.events["mover"][others]
        rivals = (
            [self._facts.event(int(f)) for f in others[(movers != NONE) & (movers != e.mover)]]
            if e.mover != NONE
            else []
        )
        rivals = [f for f in rivals if NONE in (e.digest, f.digest) or e.digest != f.digest]
        if any(_before_by_seq(f, e) and _above(f, e) for f in rivals):
            return True
        open_to_doubt = (not _before_by_seq(e, f) and not (_before_by_seq(f, e) and _above(e, f)) for f in rivals)
        return False if any(open_to_doubt) else None

    def possible(self, s0: int, s1_max: int, growth: Event | None = None) -> list[Event]:
        """Events that a reader in (s0, s1_max] may find, by seq and edges."""
        overwritten = max(self._overwrites.at(s0), growth.lo if growth else NONE)
        ghosts = (e for e in map(self._facts.event, self._ghosts) if overwritten < e.hi and e.lo < s1_max)
        return [e for e in (*self._span(overwritten, s1_max), *ghosts) if not self._overtaken(e, s0)]

    def _span(self, lo: int, hi: int) -> Iterator[Event]:
        """Firm events that may have taken place in (lo, hi)."""
        for i in range(bisect_right(self._hi, lo), len(self._hi)):
            if self._least_lo[i] >= hi:
                return
            if self._lo[i] < hi:
                yield self._facts.event(int(self._firm[i]))

    def _overtaken(self, e: Event, s0: int) -> bool:
        """A later post of e's mover, or a later write of e's stream, has landed by `s0`."""
        return (e.mover in self._posts and e.done_seq <= self._posts[e.mover].at(s0)) or (
            e.stream in self._launches and e.hi < self._launches[e.stream].at(s0)
        )

    def possible_for(self, x: Read, mode: Mode) -> list[Event]:
        """Events that x may find."""
        growth = self._facts.event(x.growth) if x.growth != NONE else None
        found = self.possible(x.s0, x.s1_max, growth)
        if mode is Mode.E:
            return found
        return [e for e in found if not gone(e, x, mode) and not self._hidden_by_clock(e, x, growth)]

    def _hidden_by_clock(self, e: Event, x: Read, growth: Event | None) -> bool:
        # An f over by s0 with f.hi <= e.lo is before e, and one with f.lo >= s0 is not pre: clocks overrule neither.
        near = self._span(min(e.lo, x.s0), x.s0)
        return any(pre(f, x, Mode.C) and before(e, f, Mode.C) for f in near) or (
            growth is not None and before(e, growth, Mode.C)
        )
