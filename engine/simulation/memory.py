"""What physically lies in a pool in virtual time: who wrote each token slot, and what its page's header says.

A page is a bottom layer that some write of the whole page left, and over it one contiguous range that its present
writer fills slot by slot; where a page was left in a stranger shape than that, its bottom layer is a list of ranges.

Content is a number: for a full page of a prompt, the digest of all tokens up to its end (equal for equal prompts);
for anything else, one of its writer and place (`reading.contents_at`). Invariant: what is kept here follows from writes
and flights alone; the ledger and the block pool are unknown here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

NOBODY = 0
CLOCK_SLACK_US = 1_000
"""How far apart two workers' events must be for clocks to tell their order."""
RANGED = -1
"""Stands for the writer of a bottom layer that is not of one piece."""

SLOTS = np.dtype(
    [
        ("stamp", np.int64),  # bottom layer: writer
        ("content", np.int64),
        ("tainted", np.bool_),
        ("racy", np.bool_),  # landed from a source that was written while it was being read
        ("top_stamp", np.int64),  # the range [lo, hi) over it
        ("top_content", np.int64),
        ("top_tainted", np.bool_),
        ("lo", np.int32),
        ("hi", np.int32),
    ]
)


@dataclass(frozen=True)
class Range:
    """Slots [lo, hi) of one page, as one write left them."""

    lo: int
    hi: int
    stamp: int
    content: int
    tainted: bool


@dataclass(frozen=True)
class Write:
    """One request's write of slots [tok_off, tok_off + tokens) counted from the first of `pages` (int32 [n]).

    `contents` int64 [n] is what each page's slots then hold."""

    pages: np.ndarray
    tok_off: int
    tokens: int
    stamp: int
    contents: np.ndarray
    tag: np.ndarray  # int64 [n]
    tainted: bool = False


class PageStore:
    """The pages of one pool of one worker."""

    headers_only: ClassVar[bool] = False

    def __init__(self, pages: int, page_tokens: int) -> None:
        self.page_tokens = page_tokens
        self.slots = np.zeros(pages, SLOTS)
        self.tag = np.zeros(pages, np.int64)
        self.tokens = np.zeros(pages, np.int32)  # valid tokens, as the header says
        self.ranges: dict[int, list[Range]] = {}  # bottom layers that are not of one piece
        self.incoming: list[Flight] = []
        self.outgoing: list[Flight] = []
        self.arriving = np.zeros(pages, np.int32)  # flights to and from each page
        self.leaving = np.zeros(pages, np.int32)
        self.readers = np.zeros(pages, np.int32)  # how many requests have each page bound
        self._marked = np.zeros(pages, np.bool_)  # scratch of `among`
        self.before_change: Callable[[], None] = lambda: None
        """Called before anything here is looked at or changed from outside: who owns the worker brings it up to date."""
        self.changed: Callable[[np.ndarray], None] = lambda pages: None
        """Called with bound pages whose content somebody else has just changed."""
        self.approached: Callable[[np.ndarray], None] = lambda pages: None
        """Called with bound pages to which a flight sets out."""
        self.landed: Callable[[np.ndarray], None] = lambda pages: None
        """Called with pages to which a flight has just brought bytes."""

    def settle(self, pages: np.ndarray, now: int) -> None:
        """Let every flight from or to these pages go as far as it has come by now."""
        if self.incoming and np.count_nonzero(self.arriving[pages]):
            for flight in (*self.incoming,):
                flight.advance(now)
        if self.outgoing and np.count_nonzero(self.leaving[pages]):
            for flight in (*self.outgoing,):
                flight.advance(now)

    def race(self, pages: np.ndarray, whole: np.ndarray | None = None) -> None:
        """A local write: flights under way from these pages, and to `whole` (None: all of them), cannot be told apart from it
        in time."""
        if self.outgoing and np.count_nonzero(self.leaving[pages]):
            for flight in self.outgoing:
                flight.race(pages)
        met = pages if whole is None else whole
        if self.incoming and np.count_nonzero(self.arriving[met]):
            for flight in self.incoming:
                flight.meet(met)

    def write(self, write: Write, now: int) -> None:
        """A local pass wrote slots."""
        self.settle(write.pages, now)
        self.race(write.pages)
        size, end = self.page_tokens, write.tok_off + write.tokens
        first = 1 if write.tok_off % size else 0
        whole = max(end // size, first)
        if first:
            self._part(write, 0, write.tok_off, min(end, size))
        if whole > first:
            pages, part = write.pages[first:whole], slice(first, whole)
            self.fill(pages, write.stamp, write.contents[part], write.tainted)
            self.tag[pages], self.tokens[pages] = write.tag[part], size
        if end > whole * size:
            self._part(write, whole, 0, end - whole * size)
        self.tell(write.pages)

    def grow(self, pages: np.ndarray, lo: np.ndarray, count: int, stamps: np.ndarray, contents: np.ndarray,
             tags: np.ndarray, tainted: np.ndarray, now: int) -> None:  # fmt: skip
        """One decode run: `count` slots from `lo` int [n] on in each of `pages` int32 [n], one page per request."""
        slots, every = self.slots, pages
        self.settle(pages, now)
        # Of a page that its writer alone reads, the slots before these are beyond doubt, whatever becomes of these.
        self.race(pages, pages[(lo == 0) | (self.readers[pages] > 1)])
        simple = (slots["top_stamp"][pages] == stamps) & (slots["hi"][pages] == lo) & (tags == self.tag[pages])
        simple &= (slots["top_tainted"][pages] == tainted) & (slots["top_content"][pages] == contents) & (lo > 0)
        simple &= self.tokens[pages] == lo
        shared, odd = self.readers[pages].max(initial=0) > 1, np.zeros(0, np.int64)
        if not simple.all():
            simple &= (slots["lo"][pages] > 0) | (lo + count < self.page_tokens)
            odd = np.arange(len(pages)) if shared else np.flatnonzero(~simple)
            pages = pages[:0] if shared else pages[simple]
        slots["hi"][pages] += count
        self.tokens[pages] += count
        for i in odd.tolist():
            one = Write(
                every[i : i + 1], int(lo[i]), count, int(stamps[i]), contents[i : i + 1], tags[i : i + 1],
                bool(tainted[i]),
            )  # fmt: skip
            self._part(one, 0, one.tok_off, one.tok_off + count)
        if shared:
            self._contend(every, lo)
            self.tell(every)

    def _contend(self, pages: np.ndarray, lo: np.ndarray) -> None:
        """Where requests write one slot in one pass: nobody can tell from outside whose bytes stay."""
        slots, writers = np.unique(pages.astype(np.int64) * self.page_tokens + lo, return_counts=True)
        self.slots["racy"][slots[writers > 1] // self.page_tokens] = True

    def fill(self, pages: np.ndarray, stamp: int, contents: np.ndarray | int, tainted: bool) -> None:
        """Whole pages are one writer's."""
        self._forget_ranges(pages)
        cells = np.zeros(len(pages), SLOTS)
        cells["stamp"], cells["content"], cells["tainted"] = stamp, contents, tainted
        if self.incoming:  # nobody can tell from outside whether this came last
            cells["racy"] = self.arriving[pages] > 0
        self.slots[pages] = cells

    def zero(self, pages: np.ndarray, now: int) -> None:
        """Scrubbed: nobody's, and no tag."""
        self.settle(pages, now)
        self.race(pages)
        self.fill(pages, NOBODY, 0, False)
        self.tag[pages], self.tokens[pages] = 0, 0
        self.tell(pages)

    def image(self, pages: np.ndarray) -> tuple[np.ndarray, dict[int, list[Range]]]:
        """A copy of what lies in `pages` (and by place in the list, bottom layers not of one piece)."""
        odd = (
            {i: self.ranges[int(page)] for i, page in enumerate(pages) if int(page) in self.ranges}
            if self.ranges
            else {}
        )
        cells = self.slots[pages]
        if self.incoming:
            cells["racy"] |= self.arriving[pages] > 0
        return cells, odd

    def put(self, pages: np.ndarray, image: tuple[np.ndarray, dict[int, list[Range]]], tag: int, tokens: np.ndarray) -> None:  # fmt: skip
        """Write an image over `pages`, with headers made for `tag`."""
        self._forget_ranges(pages)
        self.slots[pages] = image[0]
        for i, ranges in image[1].items():
            if pages[i] not in pages[i + 1 :]:  # of a page that is named twice, the last image stays
                self.ranges[int(pages[i])] = ranges
        self.tag[pages], self.tokens[pages] = tag, tokens
        self.tell(pages)

    def look(self, page: int) -> list[Range]:
        """The ranges of one page, in order, all of it."""
        cell, size = self.slots[page], self.page_tokens
        bottom = self.ranges.get(page) or [
            Range(0, size, int(cell["stamp"]), int(cell["content"]), bool(cell["tainted"]))
        ]
        lo, hi = int(cell["lo"]), int(cell["hi"])
        if hi <= lo:
            return bottom
        top = Range(lo, hi, int(cell["top_stamp"]), int(cell["top_content"]), bool(cell["top_tainted"]))
        under = [
            Range(a, b, r.stamp, r.content, r.tainted)
            for r in bottom
            for a, b in ((r.lo, min(r.hi, lo)), (max(r.lo, hi), r.hi))
            if a < b
        ]
        return sorted([*under, top], key=lambda r: r.lo)

    def _part(self, write: Write, index: int, lo: int, hi: int) -> None:
        """Slots [lo, hi) of one page."""
        page, cell = int(write.pages[index]), self.slots[write.pages[index]]
        content = int(write.contents[index])
        goes_on = cell["top_stamp"] == write.stamp and cell["hi"] == lo and cell["top_tainted"] == write.tainted
        goes_on &= cell["top_content"] == content
        if not (goes_on and lo > 0):
            ranges = self.look(page)
            if len(ranges) > 1 or int(cell["hi"]) > int(cell["lo"]):
                self.ranges[page] = ranges
                cell["stamp"] = cell["content"] = RANGED
            cell["top_stamp"], cell["top_content"] = write.stamp, content
            cell["top_tainted"], cell["lo"] = write.tainted, lo
        cell["hi"] = hi
        self.slots[page] = cell
        tag = int(write.tag[index])
        if lo == 0:
            self.tag[page], self.tokens[page] = tag, hi
        elif self.tag[page] != tag:
            self.tokens[page] = min(int(self.tokens[page]), lo)
        elif self.tokens[page] >= lo:
            self.tokens[page] = hi
        if cell["lo"] == 0 and hi == self.page_tokens:
            self.fill(write.pages[index : index + 1], write.stamp, write.contents[index : index + 1], write.tainted)

    def _forget_ranges(self, pages: np.ndarray) -> None:
        if self.ranges:
            for page in pages.tolist():
                self.ranges.pop(page, None)

    def tell(self, pages: np.ndarray) -> None:
        """Others who read these pages are to look again."""
        bound = self.readers[pages] > 0
        if 1 in bound.tobytes():
            self.changed(pages[bound])

    def expect(self, pages: np.ndarray) -> None:
        """A flight to these pages sets out: a pass that reads them now may find them before it lands, or after."""
        bound = self.readers[pages] > 0
        if 1 in bound.tobytes():
            self.approached(pages[bound])

    def among(self, pages: np.ndarray, others: np.ndarray) -> np.ndarray:
        """Which of `pages` are among `others`, bool [n]."""
        self._marked[others] = True
        found: np.ndarray = self._marked[pages]
        self._marked[others] = False
        return found


class Flight:
    """A batch under way: page i is read at `start + i * step_us` and lands one `step_us` later."""

    def __init__(
        self, source: PageStore, src_pages: np.ndarray, target: PageStore, dst_pages: np.ndarray, tag: int,
        tokens: np.ndarray, start_us: int, step_us: int,
    ) -> None:  # fmt: skip
        self.source, self.src_pages, self.target, self.dst_pages = source, src_pages, target, dst_pages
        self.tag, self.tokens, self.start_us, self.step_us = tag, tokens, start_us, step_us
        self._images: list[tuple[int, int, tuple[np.ndarray, dict[int, list[Range]]]]] = []
        self._racy = np.zeros(len(src_pages), np.bool_)
        self._distinct = _distinct(src_pages), _distinct(dst_pages)
        if not self._distinct[1]:  # one page twice: nobody can tell which image came last
            places, named = np.unique(dst_pages, return_counts=True)
            self._racy = np.isin(dst_pages, places[named > 1])
        self._read = self._landed = 0
        self._advancing = False
        if target.incoming and np.count_nonzero(target.arriving[dst_pages]):
            for other in target.incoming:  # two at once: nobody can tell from outside which came last
                other.meet(dst_pages)
                self.meet(other.dst_pages)
        _count(source.leaving, src_pages, 1, self._distinct[0])
        _count(target.arriving, dst_pages, 1, self._distinct[1])
        source.outgoing.append(self)
        target.incoming.append(self)
        target.expect(dst_pages)

    @property
    def end_us(self) -> int:
        """When the last page has landed."""
        return self.start_us + len(self.src_pages) * self.step_us

    def lands_us(self, index: int) -> int:
        """When page `index` lands."""
        return self.start_us + (index + 1) * self.step_us

    def race(self, pages: np.ndarray) -> None:
        """Source pages are written while this flight is under way: nobody can tell from outside which bytes it took."""
        hit = self.source.among(self.src_pages, pages)
        self._racy |= hit
        self.target.slots["racy"][self.dst_pages[: self._landed][hit[: self._landed]]] = True

    def advance(self, now: int) -> None:
        """Read and land what is due by now."""
        count, passed = len(self.src_pages), now - self.start_us
        if passed < 0 or self._landed == count or self._advancing:
            return
        self._advancing = True  # what is brought up to date below asks for the same
        due = min(count, passed // self.step_us + 1) if self.step_us else count
        if due > self._read:
            self.source.before_change()
            part = self.src_pages[self._read : due]
            self._images.append((self._read, due, self.source.image(part)))
            self._read = due
        landed = min(count, passed // self.step_us) if self.step_us else count
        if landed > self._landed:
            self.target.before_change()
            self._land(landed)
        self._advancing = False
        if self._landed == count:
            self.source.outgoing.remove(self)
            _count(self.source.leaving, self.src_pages, -1, self._distinct[0])

    def forget(self) -> None:
        """Nobody's clock is so far off that this could still be under way."""
        self.target.before_change()
        self.target.incoming.remove(self)
        _count(self.target.arriving, self.dst_pages, -1, self._distinct[1])
        self.target.tell(self.dst_pages)

    def meet(self, pages: np.ndarray) -> None:
        """Target pages are written by somebody else while this flight is under way."""
        hit = self.target.among(self.dst_pages, pages)
        self._racy |= hit
        self.target.slots["racy"][self.dst_pages[: self._landed][hit[: self._landed]]] = True

    def _land(self, upto: int) -> None:
        done, self._landed = self._landed, upto
        for first, last, (cells, odd) in self._images:
            lo, hi = max(first, done), min(last, upto)
            if lo < hi:
                part = {i - (lo - first): ranges for i, ranges in odd.items() if lo - first <= i < hi - first}
                image = cells[lo - first : hi - first], part
                image[0]["racy"] |= self._racy[lo:hi]
                self.target.put(self.dst_pages[lo:hi], image, self.tag, self.tokens[lo:hi])
                self.target.landed(self.dst_pages[lo:hi])
        self._images = [image for image in self._images if image[1] > upto]


def _distinct(pages: np.ndarray) -> bool:
    return len(set(pages.tolist())) == len(pages)


def _count(flights: np.ndarray, pages: np.ndarray, by: int, distinct: bool) -> None:
    """One flight more (or less) to or from each page, as often as it is named."""
    if distinct:
        flights[pages] += by
    else:
        np.add.at(flights, pages, by)
