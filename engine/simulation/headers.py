"""Pools of which only the page headers are kept: what a run needs for which nobody asked what physically lay in its pages.

Invariant: headers, flights and who hears of a change are those of `PageStore`, so that the ledger of a run is the same
whether the physical truth is kept beside it or not.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.simulation.memory import SLOTS, Flight, PageStore, Range, Write

NO_CONTENT: tuple[np.ndarray, dict[int, list[Range]]] = (np.zeros(0, SLOTS), {})


class HeaderStore(PageStore):
    """A pool's headers. Nothing of what is written to its pages is kept."""

    headers_only = True

    def __init__(self, pages: int, page_tokens: int) -> None:
        super().__init__(pages, page_tokens)
        # The same memory, as plain numbers: where one page is asked for, that is quicker.
        self._tags, self._valid, self._bound = self.tag.data, self.tokens.data, self.readers.data

    def race(self, pages: np.ndarray, whole: np.ndarray | None = None) -> None:
        """See `PageStore`. Which write came last is nobody's question."""

    def write(self, write: Write, now: int) -> None:
        """See `PageStore`."""
        self.settle(write.pages, now)
        size, end = self.page_tokens, write.tok_off + write.tokens
        first = 1 if write.tok_off % size else 0
        whole = max(end // size, first)
        if first:
            self._stamp(int(write.pages[0]), int(write.tag[0]), write.tok_off, min(end, size))
        if whole > first:
            pages = write.pages[first:whole]
            self.tag[pages], self.tokens[pages] = write.tag[first:whole], size
        if end > whole * size:
            self._stamp(int(write.pages[whole]), int(write.tag[whole]), 0, end - whole * size)
        self.tell(write.pages)

    def grow(self, pages: np.ndarray, lo: np.ndarray, count: int, stamps: np.ndarray, contents: np.ndarray,
             tags: np.ndarray, tainted: np.ndarray, now: int) -> None:  # fmt: skip
        """See `PageStore`."""
        self.fill_slots(pages.tolist(), lo.tolist(), count, tags.tolist(), now)

    def fill_slots(self, pages: Sequence[int], lo: Sequence[int], count: int, tags: Sequence[int], now: int) -> None:
        """As `grow`, told in plain numbers."""
        if self.incoming or self.outgoing:
            self.settle(np.array(pages, np.int32), now)
        shared = False
        for page, first, tag in zip(pages, lo, tags, strict=True):
            self._stamp(page, tag, first, first + count)
            shared |= self._bound[page] > 1
        if shared:
            self.tell(np.array(pages, np.int32))

    def fill(self, pages: np.ndarray, stamp: int, contents: np.ndarray | int, tainted: bool) -> None:
        """See `PageStore`."""

    def image(self, pages: np.ndarray) -> tuple[np.ndarray, dict[int, list[Range]]]:
        """See `PageStore`."""
        return NO_CONTENT

    def put(self, pages: np.ndarray, image: tuple[np.ndarray, dict[int, list[Range]]], tag: int, tokens: np.ndarray) -> None:  # fmt: skip
        """See `PageStore`."""
        self.tag[pages], self.tokens[pages] = tag, tokens
        self.tell(pages)

    def _stamp(self, page: int, tag: int, lo: int, hi: int) -> None:
        """What a write of slots [lo, hi) leaves in a page's header."""
        if lo == 0:
            self._tags[page], self._valid[page] = tag, hi
        elif self._tags[page] != tag:
            self._valid[page] = min(self._valid[page], lo)
        elif self._valid[page] >= lo:
            self._valid[page] = hi


class HeaderFlight(Flight):
    """A batch under way between such pools."""

    def race(self, pages: np.ndarray) -> None:
        """See `Flight`. Which bytes it took is nobody's question."""

    def meet(self, pages: np.ndarray) -> None:
        """See `Flight`."""

    def _land(self, upto: int) -> None:
        done, self._landed = self._landed, upto
        self._images = []
        self.target.put(self.dst_pages[done:upto], NO_CONTENT, self.tag, self.tokens[done:upto])
