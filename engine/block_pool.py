"""Pages of one pool: who owns which, under which tag, and which are kept on purpose.

Invariant: every page but the null block is in exactly one place: free, or owned by one live tag (and then perhaps
held or quarantined). The ledger row of a change is taken in the same critical section as the change.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import Enum, auto

import numpy as np

from engine.ledger.recorder import Recorder

NULL_BLOCK = 0


class PageState(Enum):
    """What a page is doing."""

    FREE = auto()
    USED = auto()
    HELD = auto()
    QUARANTINED = auto()


class NotOwned(Exception):
    """A page was to be freed by somebody who does not own it under the tag believed."""


@dataclass(frozen=True)
class PoolAudit:
    """Pages by state, and what is wrong (empty when all is well)."""

    counts: dict[str, int]
    wrong: tuple[int, ...]


class BlockPool:
    """Allocator of one component's pages. Page 0 is the null block and is never handed out.

    The free list is a stack, and a request's pages go back in reverse: the next request of the same size gets them in
    the same order of its table, as in a pool under load where the hottest pages are reused first.
    """

    def __init__(self, name: str, pages: int, page_tokens: int, recorder: Recorder) -> None:
        self.name, self.pages, self.page_tokens = name, pages, page_tokens
        self._recorder = recorder
        self._free = list(range(pages - 1, NULL_BLOCK, -1))
        self._state = [PageState.FREE] * pages
        self._tag = [0] * pages

    @property
    def usable_pages(self) -> int:
        """Pages that requests can have."""
        return self.pages - 1

    @property
    def free_pages(self) -> int:
        """Pages that can be handed out now."""
        return len(self._free)

    def pages_for(self, tokens: int) -> int:
        """Pages that `tokens` tokens need."""
        return -(-tokens // self.page_tokens)

    def reserve(self, req: int, count: int, *, xfer: int | None = None) -> tuple[np.ndarray, int]:
        """`count` pages (int32) for a request, and their tag. Raises MemoryError where too few are free."""
        with self._recorder.lock:
            pages = self._take(count)
            tag = self._recorder.reserve(self.name, req, pages, xfer=xfer)
            self._own(pages, tag)
        return pages, tag

    def append(self, req: int, pos: int) -> tuple[int, int]:
        """One more page at place `pos` of a request's table, and its tag. Raises MemoryError where none is free."""
        with self._recorder.lock:
            pages = self._take(1)
            tag = self._recorder.append(self.name, req, pages, pos=pos)
            self._own(pages, tag)
        return int(pages[0]), tag

    def hold(self, req: int, tag: int, pages: np.ndarray, cause: str) -> None:
        """Keep pages whose request ended, until a remote writer has drained."""
        with self._recorder.lock:
            self._check(pages, tag)
            for page in pages:
                self._state[page] = PageState.HELD
            self._recorder.pages("hold", self.name, req, tag, pages, cause=cause)

    def free(self, req: int, tag: int, pages: np.ndarray, cause: str) -> None:
        """Return pages to the pool. Raises NotOwned, and frees none, where one is not owned under `tag`."""
        with self._recorder.lock:
            self._check(pages, tag)
            for page in pages[::-1]:
                self._state[page], self._tag[page] = PageState.FREE, 0
                self._free.append(int(page))
            self._recorder.pages("free", self.name, req, tag, pages, cause=cause)

    def owner_tag(self, page: int) -> int:
        """The tag under which a page is owned; 0 where it is free."""
        return self._tag[page]

    def counts(self) -> dict[str, int]:
        """Pages by state, without the null block."""
        found = Counter(state.name.lower() for state in self._state[1:])
        return {state.name.lower(): found[state.name.lower()] for state in PageState}

    def audit(self) -> PoolAudit:
        """Whether free list, states and tags agree."""
        listed = Counter(self._free)
        wrong = [
            page
            for page in range(1, self.pages)
            if listed[page] != (self._state[page] is PageState.FREE) or (self._tag[page] == 0) != (listed[page] == 1)
        ]
        return PoolAudit(self.counts(), tuple(wrong))

    def _take(self, count: int) -> np.ndarray:
        if count > len(self._free):
            raise MemoryError(f"pool {self.name}: {count} pages wanted, {len(self._free)} free")
        return np.array([self._free.pop() for _ in range(count)], np.int32)

    def _own(self, pages: np.ndarray, tag: int) -> None:
        for page in pages:
            self._state[page], self._tag[page] = PageState.USED, tag

    def _check(self, pages: np.ndarray, tag: int) -> None:
        wrong = [int(page) for page in pages if self._tag[page] != tag]
        if wrong:
            raise NotOwned(f"pool {self.name}: pages {wrong} are not owned under tag {tag}")
