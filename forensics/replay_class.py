"""What a reader finds in one event: class(e; o, tau) of docs/verdicts.md.

Invariant: content decides. A class rests on who wrote the bytes, on the tags they were written under and on shares.
What nobody can know any more (an owner, a source, an order at the source) makes it unknown, never foreign and never
entitled.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from forensics.replay_facts import NEVER_BEFORE, NONE, Event, Facts
from forensics.replay_order import History

DEEPEST = 8
"""Landings nest at most this deep."""
OWNER_LOST = "owner lost"
SOURCE_UNKNOWN = "source unknown"
UNDECIDED_SOURCE = "undecided source"
UNDECIDED_ORDER = "undecided order"
CHAIN_TOO_LONG = "transfer chain too long"


class Class(StrEnum):
    """What an event's content is to one reader."""

    ENTITLED = "entitled"
    FOREIGN = "foreign"
    STALE = "stale"
    UNWRITTEN = "unwritten"
    SHARED = "shared"
    WRONG = "wrong"
    UNKNOWN = "unknown"


GRANTED = frozenset({Class.ENTITLED, Class.SHARED, Class.WRONG})
"""The reader may read it: its own, or another's by a share (which may be a finding of its own)."""
CORRUPT = frozenset({Class.STALE, Class.UNWRITTEN, Class.WRONG})


class Content(NamedTuple):
    """A class; `donor` of foreign content (NONE where several), `reason` of unknown, `by_share`: a share led to it."""

    of: Class
    donor: int | None = None
    reason: str = ""
    by_share: bool = False


class Reader(NamedTuple):
    """Who reads (owner), under which tag it attends, from which seq of the cell's worker on."""

    owner: int
    tag: int
    s0: int


ENTITLED = Content(Class.ENTITLED)
UNWRITTEN = Content(Class.UNWRITTEN)
STALE = Content(Class.STALE)
BY_IDENTITY = {"same": ENTITLED, "tenant": Content(Class.SHARED), "meaning": Content(Class.WRONG)}


def unknown(reason: str) -> Content:
    """Content that nothing decides."""
    return Content(Class.UNKNOWN, reason=reason)


class Classifier:
    """Classes of events, remembered; histories of cells, built once."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self._histories: dict[int, History] = {}
        self._classes: dict[tuple[int, Reader, int], Content] = {}
        self._sources: dict[int, list[Event]] = {}

    def history(self, cell: int) -> History:
        """The events of a cell."""
        if cell not in self._histories:
            self._histories[cell] = History(self.facts, cell)
        return self._histories[cell]

    def classify(self, e: Event, reader: Reader, depth: int = 1) -> Content:
        """class(e; reader); `depth` counts landings from the read down."""
        key = (e.event, reader, depth)
        if key not in self._classes:
            self._classes[key] = self._classify(e, reader, depth)
        return self._classes[key]

    def _classify(self, e: Event, reader: Reader, depth: int) -> Content:
        if e.kind == "ghost":
            return unknown(e.reason)
        if e.kind in ("unwritten", "scrub"):
            return UNWRITTEN
        return self._landing(e, reader, depth) if e.kind == "landing" else self._written(e, reader)

    def _written(self, e: Event, reader: Reader) -> Content:
        if e.owner == NONE:
            return unknown(OWNER_LOST)
        if e.owner == reader.owner:
            return ENTITLED if e.tag == reader.tag else STALE
        by_share = self._by_share(e, reader) if e.tag == reader.tag else None
        if by_share is not None and e.owner == self._owner(reader.tag, e):
            return by_share
        return Content(Class.FOREIGN, e.owner)

    def _owner(self, tag: int, e: Event) -> int:
        life = self.facts.life(tag, self._page(e))
        return life.owner if life else NONE

    def _page(self, e: Event) -> int:
        return int(self.facts.page_of_cell[e.cell])

    def _by_share(self, e: Event, reader: Reader) -> Content | None:
        """What a share makes of its giver's own content in e; None where no share covers e."""
        page = self._page(e)
        identity = self.facts.identity(reader.owner, page, reader.tag, reader.s0)
        life = self.facts.life(reader.tag, page) if identity is not None else None
        if identity is None or life is None or e.lo >= life.end_seq:
            return None
        if e.hi > life.end_seq:
            return unknown(UNDECIDED_ORDER)  # before or after the giver's life ended
        return BY_IDENTITY.get(identity) or Content(Class.FOREIGN, life.owner, by_share=True)

    def sources(self, e: Event) -> list[Event]:
        """What the source of a landing may have held while it was read."""
        if e.event not in self._sources:
            self._sources[e.event] = self.history(e.src_cell).possible(e.src_lo, e.src_hi)
        return self._sources[e.event]

    def source_classes(self, e: Event, owner: int, depth: int = 1) -> list[Content]:
        """Classes of `sources(e)` for a reader at the source under the source's tag."""
        at_source = Reader(owner, e.src_tag, e.src_lo)
        return [self.classify(s, at_source, depth + 1) for s in self.sources(e)]

    def _landing(self, e: Event, reader: Reader, depth: int) -> Content:
        if depth > DEEPEST:
            return unknown(CHAIN_TOO_LONG)
        if e.src_cell == NONE:
            return unknown(SOURCE_UNKNOWN)
        members = self.source_classes(e, reader.owner, depth)
        reasons = [member.reason for member in members if member.of is Class.UNKNOWN]
        if reasons:
            return unknown(min(reasons))
        if not members:
            return unknown(UNDECIDED_SOURCE)
        return self._by_roots(e, reader) if e.tag != reader.tag else self._landing_under_tag(e, reader, members, depth)

    def _landing_under_tag(self, e: Event, reader: Reader, members: list[Content], depth: int) -> Content:
        owner = self._owner(e.tag, e)
        if owner == NONE:
            return unknown(OWNER_LOST)
        if owner == reader.owner:
            return self._own_landing(e, reader, members)
        return self._shared_landing(e, reader, owner, depth)

    def _own_landing(self, e: Event, reader: Reader, members: list[Content]) -> Content:
        """A transfer under the reader's own tag passes on what the reader might read at the source."""
        kinds = {member.of for member in members}
        if kinds & GRANTED:
            return members[0] if len(kinds) == 1 else unknown(UNDECIDED_SOURCE)
        by_roots = self._by_roots(e, reader)
        if by_roots.of is Class.FOREIGN:
            return by_roots._replace(by_share=all(member.by_share for member in members))
        return by_roots

    def _shared_landing(self, e: Event, reader: Reader, owner: int, depth: int) -> Content:
        """A transfer under another's tag: by a share, if its giver was entitled to it."""
        by_share = self._by_share(e, reader)
        if by_share is None:
            return self._by_roots(e, reader)
        to_giver = self.classify(e, Reader(owner, reader.tag, reader.s0), depth)
        if to_giver.of is Class.UNKNOWN:
            return to_giver
        return by_share if to_giver.of is Class.ENTITLED else self._by_roots(e, reader)

    def _by_roots(self, e: Event, reader: Reader) -> Content:
        owners = {root.owner if root.kind in ("write", "growth") else None for root in self.roots(e)}
        if NONE in owners:
            return unknown(OWNER_LOST)
        if owners == {None}:
            return UNWRITTEN
        if owners == {reader.owner}:
            return STALE
        if None in owners or reader.owner in owners:
            return unknown(UNDECIDED_SOURCE)
        return Content(Class.FOREIGN, owners.pop() if len(owners) == 1 else NONE)

    def roots(self, e: Event) -> list[Event]:
        """Where the bytes of a landing may have come from in the end. Only for landings of a known class."""
        if e.kind != "landing":
            return [e]
        found = {root.event: root for s in self.sources(e) for root in self.roots(s)}
        return list(found.values())

    def source_end(self, e: Event) -> int:
        """end_seq(src_tag, source page); NEVER_BEFORE where no row speaks of that life."""
        life = self.facts.life(e.src_tag, int(self.facts.page_of_cell[e.src_cell])) if e.src_cell != NONE else None
        return life.end_seq if life else NEVER_BEFORE
