"""What a reader finds in one event: class(e; o, tau) of docs/verdicts.md.

Invariant: content decides. A class rests on who wrote the bytes, on the tags they were written under and on shares.
What nobody can know any more (an owner, a source, an order at the source) makes it unknown, never foreign and never
entitled.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from forensics.replay_facts import Facts
from forensics.replay_order import History
from forensics.replay_records import NEVER_BEFORE, NONE, WRITTEN, Event, Life, Read, Taking
from forensics.verdict import MECHANISM_UNKNOWN

DEEPEST = 8
"""Landings nest at most this deep."""
OWNER_LOST = "owner lost"
SOURCE_UNKNOWN = "source unknown"
UNDECIDED_SOURCE = "undecided source"
UNDECIDED_ORDER = "undecided order"
CHAIN_TOO_LONG = "transfer chain too long"
OTHER_GEOMETRY = "page geometry differs"
TWO_WRITERS = "two writers"


class Class(StrEnum):
    """What an event's content is to one reader."""

    ENTITLED = "entitled"
    FOREIGN = "foreign"
    STALE = "stale"
    UNWRITTEN = "unwritten"
    SHARED = "shared"
    WRONG = "wrong"
    UNKNOWN = "unknown"


RIGHT = frozenset({Class.ENTITLED, Class.SHARED})
GRANTED = RIGHT | {Class.WRONG}
"""The reader may read it: its own, or another's by a share (which may be a finding of its own)."""
CORRUPT = frozenset({Class.STALE, Class.UNWRITTEN, Class.WRONG})


class Content(NamedTuple):
    """A class; `donor` of foreign content (NONE where several), `reason` of unknown, `cause`: a mechanism that it implies."""

    of: Class
    donor: int | None = None
    reason: str = ""
    cause: str = ""


class Reader(NamedTuple):
    """Who reads (owner), under which tag it attends, from which seq of the cell's worker on."""

    owner: int
    tag: int
    s0: int


ENTITLED = Content(Class.ENTITLED)
UNWRITTEN = Content(Class.UNWRITTEN)
STALE = Content(Class.STALE)
KEY_LACKS_MEANING = Content(Class.WRONG, cause="M12")
CAUSES = {
    Taking.TENANT: MECHANISM_UNKNOWN, Taking.TENANT_BY_COMPLETE_KEY: "P0", Taking.TENANT_BY_INCOMPLETE_KEY: "M12",
}  # fmt: skip


def unknown(reason: str) -> Content:
    """Content that nothing decides."""
    return Content(Class.UNKNOWN, reason=reason)


def wrong(cause: str) -> Content:
    """Content that its reader may have, and that is not what it should be."""
    return Content(Class.WRONG, cause=cause)


def taken(content: Content, taking: Taking, giver: int) -> Content:
    """What `content`, which `giver` may read, is to who took it from there."""
    stolen = Content(Class.FOREIGN, giver, cause="M12")
    if taking is Taking.SAME:
        return content
    if taking is Taking.BOTH:
        return stolen
    if taking is Taking.MEANING:
        return stolen if content.of is Class.SHARED else content if content.of is Class.WRONG else KEY_LACKS_MEANING
    if content.of is Class.WRONG:
        return stolen if content.cause == "M12" else content
    cause = CAUSES[taking]
    return Content(Class.SHARED, cause=cause if content.of is Class.ENTITLED else min(cause, content.cause))


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

    def classify_for(self, e: Event, x: Read) -> Content:
        """The class of e for a read, its place in the request's table included."""
        reader = Reader(x.owner, x.tag, x.s0)
        content = self.classify(e, reader)
        if content.of not in RIGHT or not misplaced(e, x):
            return content
        return self._of_later_place(e, reader) if e.pos > x.pos_last else wrong("M13")

    def _of_later_place(self, e: Event, reader: Reader) -> Content:
        """The class of what stands at another place than it was made for, a later one than any that the reader was lent:
        its key says nothing of that, so another's content there is no more the reader's than if it had no key."""
        if reader.owner in (e.owner, self.owner(e.tag, e)):
            return wrong("M13")
        content = self._by_roots(e, reader) if e.kind == "landing" else Content(Class.FOREIGN, e.owner)
        if content.of is Class.FOREIGN:
            return content._replace(cause="M13")
        return content if content.of is Class.UNKNOWN else wrong("M13")

    def classify(self, e: Event, reader: Reader, depth: int = 1) -> Content:
        """class(e; reader); `depth` counts landings from the read down."""
        key = (e.event, reader, depth)
        if key not in self._classes:
            content = self._of_content(e, reader, depth)
            self._classes[key] = self._as_laid_out(e, content) if content.of in RIGHT else content
        return self._classes[key]

    def _as_laid_out(self, e: Event, content: Content) -> Content:
        """Content that was granted, unless its layout is another or somebody else wrote over it."""
        if e.kind == "landing" and e.flaw == "layout":
            return wrong("M13")
        contest = self.history(e.cell).contest(e)
        if contest is None:
            return content
        return wrong("M11") if contest else unknown(TWO_WRITERS)

    def _of_content(self, e: Event, reader: Reader, depth: int) -> Content:
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
        if e.tag == reader.tag and e.owner == self.owner(e.tag, e):
            lent = self._lent(e, reader, ENTITLED)
            if lent is not None:
                return lent
        return Content(Class.FOREIGN, e.owner)

    def owner(self, tag: int, e: Event) -> int:
        """owner(tag) at the event's page; NONE where it is lost."""
        life = self.facts.life(tag, self.page(e))
        return life.owner if life else NONE

    def page(self, e: Event) -> int:
        """The page that e changed."""
        return int(self.facts.page_of_cell[e.cell])

    def _lent(self, e: Event, reader: Reader, content: Content) -> Content | None:
        """What a share makes of e, which is `content` to its giver; None where no share speaks for it."""
        page = self.page(e)
        taking = self.facts.taking(reader.owner, page, reader.tag, reader.s0)
        by_somebody = taking or self.facts.taking(NONE, page, reader.tag, reader.s0)
        life = self.facts.life(reader.tag, page) if by_somebody is not None else None
        if life is None or e.lo >= life.end_seq:
            return None
        if taking is None:
            return unknown(OWNER_LOST)  # the taker may have been the reader
        if e.hi > life.end_seq:
            return unknown(UNDECIDED_ORDER)  # before or after the giver's life ended
        return taken(content, taking, life.owner)

    def sources(self, e: Event) -> list[Event]:
        """What the source of a landing may have held while it was read."""
        if e.event not in self._sources:
            self._sources[e.event] = self.history(e.src_cell).possible(e.src_lo, e.src_hi)
        return self._sources[e.event]

    def source_classes(self, e: Event, owner: int, depth: int = 1) -> list[Content]:
        """Classes of `sources(e)` for a reader at the source under the source's tag (a view: under each one's own)."""
        return [
            self.classify(s, Reader(owner, tag_at_source(e, s), e.src_lo), depth + 1) for s in self.sources(e)
        ]  # fmt: skip

    def _landing(self, e: Event, reader: Reader, depth: int) -> Content:
        if depth > DEEPEST:
            return unknown(CHAIN_TOO_LONG)
        if e.src_cell == NONE:
            return unknown(SOURCE_UNKNOWN)
        if e.flaw == "size":
            return unknown(OTHER_GEOMETRY)
        members = self.source_classes(e, reader.owner, depth)
        reasons = [member.reason for member in members if member.of is Class.UNKNOWN]
        if reasons:
            return unknown(min(reasons))
        if not members:
            return unknown(UNDECIDED_SOURCE)
        return self._by_roots(e, reader) if e.tag != reader.tag else self._landing_under_tag(e, reader, members, depth)

    def _landing_under_tag(self, e: Event, reader: Reader, members: list[Content], depth: int) -> Content:
        owner = self.owner(e.tag, e)
        if owner == NONE:
            return unknown(OWNER_LOST)
        if owner == reader.owner:
            return self._own_landing(e, reader, members)
        return self._shared_landing(e, reader, owner, depth)

    def _own_landing(self, e: Event, reader: Reader, members: list[Content]) -> Content:
        """A transfer under the reader's own tag passes on what the reader might read at the source."""
        kinds = {member.of for member in members}
        if kinds & GRANTED:
            one = Content(members[0].of, cause=min(member.cause for member in members))
            return one if len(kinds) == 1 else unknown(UNDECIDED_SOURCE)
        by_roots = self._by_roots(e, reader)
        stolen = all(member.of is Class.FOREIGN and member.cause == "M12" for member in members)
        return by_roots._replace(cause="M12") if by_roots.of is Class.FOREIGN and stolen else by_roots

    def _shared_landing(self, e: Event, reader: Reader, owner: int, depth: int) -> Content:
        """A transfer under another's tag: by a share, if its giver was entitled to it."""
        if self._lent(e, reader, ENTITLED) is None:
            return self._by_roots(e, reader)
        to_giver = self.classify(e, Reader(owner, reader.tag, reader.s0), depth)
        if to_giver.of is Class.UNKNOWN:
            return to_giver
        lent = self._lent(e, reader, to_giver) if to_giver.of in GRANTED else None
        return lent or self._by_roots(e, reader)

    def _by_roots(self, e: Event, reader: Reader) -> Content:
        owners = {root.owner if root.kind in WRITTEN else None for root in self.roots(e)}
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

    def source_life(self, e: Event) -> Life | None:
        """The life of (src_tag, source page); None where no row speaks of it, and in a view."""
        if NONE in (e.src_cell, e.src_tag):
            return None
        return self.facts.life(e.src_tag, int(self.facts.page_of_cell[e.src_cell]))

    def source_end(self, e: Event) -> int:
        """end_seq(src_tag, source page); NEVER_BEFORE where no row speaks of that life."""
        life = self.source_life(e)
        return life.end_seq if life else NEVER_BEFORE


def misplaced(e: Event, x: Read) -> bool:
    """Whether content under the reader's tag stands at another place in its table than it was made for."""
    return e.tag == x.tag and NONE not in (e.pos, x.pos) and e.pos != x.pos


def tag_at_source(e: Event, s: Event) -> int:
    """The tag under which a landing's source event s is read."""
    return s.tag if e.src_tag == NONE else e.src_tag
