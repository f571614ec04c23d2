"""What decode does with a prefix cache of its own: pages that need not be sent to it, and pages that it keeps.

A request's table begins with `cached_pages` pages of the tree, which nobody writes to; what is granted stands behind
them. Where there is no cache nothing is found, nothing is kept, and every page is free or a request's.

Invariant: a request has cached pages in its table only under a lock. Only content that its owner has finished with
becomes the cache's, and never from a pool that no longer knows whose a page is.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from engine.block_pool import tag_runs
from engine.cached_prefix import Looked
from engine.request import Request
from engine.role import Parts

FINISH = "finish"


class Granted(NamedTuple):
    """What is written for a request: `pages` (int32 [n]) under `tag`, for the prompt tokens behind the first `had`; `place`
    is that of the first page in the request's table, as a column, where it is not the table's first."""

    pages: np.ndarray
    tag: int
    had: int
    place: dict[str, int]


class DecodePrefix:
    """The cache of one decode worker's pool, or none."""

    def __init__(self, parts: Parts) -> None:
        self._parts, self._pool, self._cache = parts, parts.pool, parts.prefix

    def look(self, request: Request) -> Looked | None:
        """What the cache has of a waiting request's prompt. Changes nothing."""
        return self._cache.look(request, request.prompt_tokens) if self._cache is not None else None

    def fits(self, looked: Looked | None, pages: int) -> bool:
        """Whether `pages` pages can be had, those that a request found among them."""
        if self._cache is None:
            return pages <= self._pool.free_pages
        match = looked.match if looked is not None else None
        return pages - (len(match) if match is not None else 0) <= self._cache.spare(match)

    def make_room(self, pages: int) -> bool:
        """Whether `pages` pages are free, or are now that what nobody reads was evicted for them."""
        return self._cache.make_room(pages) if self._cache is not None else pages <= self._pool.free_pages

    def give(self, request: Request, looked: Looked | None) -> None:
        """Give a request the table of its prompt: what it found, and pages of its own, one at least."""
        count = self._pool.pages_for(request.prompt_tokens)
        if self._cache is None or looked is None:
            request.pages, tag = self._pool.reserve(request.req, count)
            request.tags = np.full(count, tag, np.int64)
        else:
            request.cached_pages = self._cache.give(request, looked, count - len(looked.match))

    def granted(self, request: Request) -> Granted:
        """The part of a table that is granted; nothing of it has grown yet."""
        cached = request.cached_pages
        place = {"pos": cached} if cached else {}
        return Granted(request.pages[cached:], int(request.tags[-1]), cached * self._pool.page_tokens, place)

    def bind(self, request: Request) -> None:
        """Rows of the pages that a request starts to read and that were not sent to it."""
        for tag, start, stop in tag_runs(request.tags[: request.cached_pages]):
            pages = request.pages[start:stop]
            self._parts.recorder.pages("bind", self._pool.name, request.req, tag, pages, pos=start)

    def leave(self, request: Request, cause: str) -> None:
        """A request reads its table no more: locks go, and where it ended well the full pages of its prompt stay. What is
        left in its table is its own, to be held or freed."""
        cache = self._cache
        if cache is None or not (request.cached_pages or cause == FINISH):
            return
        if cause == FINISH:
            cache.file(request, self._sound(request))
        own = cache.leave(request)
        request.pages = np.concatenate([np.zeros(0, np.int32), *(pages for _, pages in own)])
        request.tags = np.concatenate([np.zeros(0, np.int64), *(np.full(len(pages), tag) for tag, pages in own)])
        request.cached_pages = 0

    def forget(self, request: Request) -> None:
        """A request ends."""
        if self._cache is not None:
            self._cache.forget(request)

    def _sound(self, request: Request) -> int:
        """How many pages of a table, from its head, are still owned as it believes; the faults end that."""
        if self._parts.faults.double_free.struck:
            return 0
        gone = np.flatnonzero(self._pool.owner_tags(request.pages) != request.tags)
        return int(gone[0]) if len(gone) else len(request.pages)
