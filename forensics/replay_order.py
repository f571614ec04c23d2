"""What happened before what on one cell: the relations of docs/verdicts.md, and which events a reader may find.

Invariant: `History.possible` walks only events that no earlier certain event has overwritten and that began before
the read ended, so its cost does not grow with the cell's past or future. It relies on sound evidence: what the mover's
or the stream's order says never contradicts the order of seq.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from enum import Enum
from itertools import accumulate

from forensics.replay_facts import NONE, Event, Passes, Read
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
    return all(f is e or before(f, e, mode) or (reader is not None and passes.seq[reader] <= f.lo) for f in possible)


class RunningMaximum:
    """The greatest value among entries whose key is at most a bound."""

    def __init__(self, entries: Iterable[tuple[int, int]]) -> None:
        entries = sorted(entries)
        self._keys = [key for key, _ in entries]
        self._values = list(accumulate((value for _, value in entries), max))

    def at(self, bound: int) -> int:
        """NONE where no key is at most `bound`."""
        i = bisect_right(self._keys, bound)
        return self._values[i - 1] if i else NONE


class History:
    """The events of one cell, ordered once."""

    def __init__(self, events: list[Event]) -> None:
        self.events = sorted(events, key=lambda e: (e.hi, e.lo, e.event))
        self._ghosts = [e for e in self.events if e.kind == "ghost"]
        self._firm = [e for e in self.events if e.kind != "ghost"]
        self._by_id = {e.event: e for e in self._firm if e.kind == "growth"}
        self._hi = [e.hi for e in self._firm]
        self._least_lo = list(accumulate((e.lo for e in reversed(self._firm)), min))[::-1]
        self._overwrites = RunningMaximum((e.hi, e.lo) for e in self._firm)
        posts: dict[int, list[tuple[int, int]]] = defaultdict(list)
        launches: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for e in self._firm:
            if e.mover != NONE:
                posts[e.mover].append((e.hi, e.post_seq))
            if e.stream != NONE:
                launches[e.stream].append((e.hi, e.hi))
        self._posts = {mover: RunningMaximum(entries) for mover, entries in posts.items()}
        self._launches = {stream: RunningMaximum(entries) for stream, entries in launches.items()}

    def growth(self, x: Read) -> Event | None:
        """x's own growth event on this cell."""
        return self._by_id.get(x.growth)

    def possible(self, s0: int, s1_max: int, growth: Event | None = None) -> list[Event]:
        """Events that a reader in (s0, s1_max] may find, by seq and edges."""
        overwritten = max(self._overwrites.at(s0), growth.lo if growth else NONE)
        return [
            *(e for e in self._span(overwritten, s1_max) if not self._overtaken(e, s0)),
            *(e for e in self._ghosts if overwritten < e.hi and e.lo < s1_max and not self._overtaken(e, s0)),
        ]

    def _span(self, lo: int, hi: int) -> Iterator[Event]:
        """Firm events that may have taken place in (lo, hi)."""
        for i in range(bisect_right(self._hi, lo), len(self._firm)):
            if self._least_lo[i] >= hi:
                return
            if self._firm[i].lo < hi:
                yield self._firm[i]

    def _overtaken(self, e: Event, s0: int) -> bool:
        """A later post of e's mover, or a later write of e's stream, has landed by `s0`."""
        return (e.mover != NONE and e.mover in self._posts and e.done_seq <= self._posts[e.mover].at(s0)) or (
            e.stream != NONE and e.stream in self._launches and e.hi < self._launches[e.stream].at(s0)
        )

    def possible_for(self, x: Read, mode: Mode) -> list[Event]:
        """Events that x may find."""
        found = self.possible(x.s0, x.s1_max, self.growth(x))
        if mode is Mode.E:
            return found
        return [e for e in found if not gone(e, x, mode) and not self._hidden_by_clock(e, x)]

    def _hidden_by_clock(self, e: Event, x: Read) -> bool:
        # An f with f.hi <= e.lo is before e, and one with f.lo >= s0 is not pre: clocks overrule neither.
        own = self.growth(x)
        return any(pre(f, x, Mode.C) and before(e, f, Mode.C) for f in self._span(e.lo, x.s0)) or (
            own is not None and before(e, own, Mode.C)
        )
