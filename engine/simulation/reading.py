"""What a pass physically finds in its block table: right content, another's, its own in a wrong place, nobody's.

Invariant: judged by content and stamps alone. Right is what the reader wrote itself for that place of its table, or
content equal to its own prompt's at that place, whoever computed it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from engine.simulation.memory import CLOCK_SLACK_US, PageStore

_PLACES_APART = np.int64(0x1E3779B97F4A7C15)


def own_contents(stamps: np.ndarray | int, places: np.ndarray) -> np.ndarray:
    """What requests' pages hold at `places` (int64 [n]) of their tables, int64: what nobody else and no other place has."""
    return np.asarray(stamps ^ (places * _PLACES_APART))


def contents_at(stamp: int, known: np.ndarray, first: int, stop: int) -> np.ndarray:
    """What pages [first, stop) of a request's table hold: of the full pages of its prompt the digest (`known`, int64
    [n]), of the others its own."""
    contents = own_contents(stamp, np.arange(first, stop, dtype=np.int64))
    whole = known[first:stop]
    contents[: len(whole)] = whole
    return contents


@dataclass
class Reader:
    """A request whose table is read in one pool. `expected` int64 [n]: content of each full page of its prompt."""

    stamp: int
    expected: np.ndarray
    pages: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))
    tags: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    first: int = 0  # place of the first page in the request's table
    stale: bool = True  # has something changed since it was last looked at
    looked_us: int = 0  # when the pass began and ended for which it was last looked at (true time)
    until_us: int = 0

    def look(self, now: int, until: int) -> None:
        """A pass that begins now and ends at `until` looks at the table."""
        self.stale, self.looked_us, self.until_us = False, now, until

    def torn_by(self, pages: np.ndarray, now: int) -> set[int]:
        """Which of `pages`, to which something sets out now, the pass that looked last may still have read; it looks again."""
        if now > self.until_us + CLOCK_SLACK_US:
            return set()
        near = set(pages.tolist()) & set(self.pages.tolist())
        self.stale |= bool(near)
        return near


@dataclass(frozen=True)
class Found:
    """Pages by what was wrong there, with the stamps found (0 = never written).

    foreign: another's content; borrowed: the right content, computed by another; tainted: right or borrowed content
    that was computed after its writer had read foreign bytes. misplaced: its own content, but of another place of its
    table. displaced: that, too, but computed by another from the same tokens. astray: pages with content of the
    reader's own tokens, whoever computed it, under a header that names another tag than the reader's. torn: pages to
    which a write was under way, or came from a source that changed meanwhile: from outside nobody can tell what was
    read."""

    foreign: dict[int, list[int]]
    borrowed: dict[int, list[int]]
    tainted: dict[int, list[int]]
    torn: list[int]
    misplaced: list[int] = field(default_factory=list)
    displaced: dict[int, list[int]] = field(default_factory=dict)
    astray: list[int] = field(default_factory=list)

    def stamps(self) -> list[int]:
        """Every stamp found."""
        kinds = (self.foreign, self.borrowed, self.tainted, self.displaced)
        return [stamp for kind in kinds for stamps in kind.values() for stamp in stamps]

    @property
    def clean(self) -> bool:
        """Nothing but the reader's own."""
        return not (
            self.foreign
            or self.borrowed
            or self.tainted
            or self.torn
            or self.misplaced
            or self.displaced
            or self.astray
        )


NOTHING = Found({}, {}, {}, [])
Filled = Mapping[int, set[int]]
"""Slots of pages that a pass writes itself."""


def no_slots() -> Filled:
    """A pass whose writes are there before it reads, or that writes nothing."""
    return {}


def one_slot_each(pages: Sequence[int], slots: Sequence[int]) -> Filled:
    """The slots that the requests of a pass write, one each."""
    filled: dict[int, set[int]] = {}
    for page, slot in zip(pages, slots, strict=True):
        filled.setdefault(page, set()).add(slot)
    return filled


def look(store: PageStore, reader: Reader, kv_tokens: int, now: int, filling: Callable[[], Filled] = no_slots) -> Found:
    """What a read of slots [0, kv_tokens) of a table finds now; a page is torn where all foreign content lies in slots
    that the same pass fills."""
    size = store.page_tokens
    table = reader.pages[: -(-kv_tokens // size)]
    store.settle(table, now)
    if store.headers_only:
        return NOTHING
    cells = store.slots[table]
    need = np.minimum(kv_tokens - np.arange(len(table)) * size, size)
    expected = contents_at(reader.stamp, reader.expected, reader.first, reader.first + len(table))
    bottom = (cells["stamp"] == reader.stamp) & (cells["hi"] <= cells["lo"]) & (cells["content"] == expected)
    top = (cells["top_stamp"] == reader.stamp) & (cells["lo"] == 0) & (cells["hi"] >= need)
    top &= cells["top_content"] == expected
    torn = cells["racy"] | (store.arriving[table] > 0)
    found = Found({}, {}, {}, table[torn].tolist())
    found.astray.extend(table[(bottom | top) & (store.tag[table] != reader.tags[: len(table)])].tolist())
    others = np.flatnonzero(~(bottom | top))
    filled = filling() if len(others) else no_slots()
    for i in others:
        page = int(table[i])
        _look_at(
            store, reader, found, page, int(expected[i]), int(need[i]), int(reader.tags[i]), filled.get(page, set())
        )
    for kind in (found.foreign, found.displaced, found.borrowed, found.tainted):
        for page in [page for page, stamps in kind.items() if not stamps]:
            del kind[page]
    return found


def _look_at(
    store: PageStore, reader: Reader, found: Found, page: int, expected: int, need: int, tag: int, filled: set[int]
) -> None:
    """What a read of the first `need` slots of a page finds, of which its pass itself fills `filled`, into `found`."""
    foreign, lasting = False, False
    for part in store.look(page):
        if part.lo >= need:
            continue
        right = part.content == expected
        if part.stamp == reader.stamp:
            if not right and page not in found.misplaced:
                found.misplaced.append(page)
            continue
        elsewhere = not right and part.content in reader.expected
        if right or elsewhere:
            if store.tag[page] != tag and page not in found.astray:
                found.astray.append(page)
        else:
            foreign = True
            lasting |= not filled.issuperset(range(part.lo, min(part.hi, need)))
        for kind, holds in (
            (found.foreign, not (right or elsewhere)),
            (found.displaced, elsewhere),
            (found.borrowed, right),
            (found.tainted, right and part.tainted),
        ):
            if holds and part.stamp not in kind.setdefault(page, []):
                kind[page].append(part.stamp)
    if foreign and not lasting and page not in found.torn:
        found.torn.append(page)


def mismatches(store: PageStore, reader: Reader, kv_tokens: int) -> list[int]:
    """Places of the table whose header names another tag, or too few tokens."""
    size = store.page_tokens
    table = reader.pages[: -(-kv_tokens // size)]
    tokens, before = store.tokens[table].tolist(), len(table) - 1
    whole = before >= 0 and tokens[:-1].count(size) == before and tokens[-1] >= kv_tokens - before * size
    if whole and store.tag[table].tobytes() == reader.tags[: len(table)].tobytes():
        return []
    need = np.minimum(kv_tokens - np.arange(len(table)) * size, size)
    wrong = (store.tag[table] != reader.tags[: len(table)]) | (store.tokens[table] < need)
    return np.flatnonzero(wrong).tolist()
