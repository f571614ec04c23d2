"""Pages of one pool: who owns which, under which tag, who else has locked them, and which are kept on purpose.

Invariant: every page but the null block is in exactly one `PageState`; all but the free ones carry the tag of the
reserve that last allocated them and its request, also while a cache keeps them. A page that anybody has locked is
never freed. The ledger row of a change is taken in the same critical section as the change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from engine.ledger.recorder import Recorder

NULL_BLOCK = 0
NO_OWNER = -1
EVICT, QUARANTINE = "evict", "quarantine"


class PageState(IntEnum):
    """What a page is doing. Cached and shared pages belong to a cache; shared ones are locked by a request."""

    FREE = 1
    USED = 2
    CACHED = 3
    SHARED = 4
    HELD = 5
    QUARANTINED = 6


_FREE, _USED, _CACHED, _SHARED, _HELD, _QUARANTINED = _ANY = tuple(PageState)
_REQUESTS, _CACHES = (_USED, _HELD, _QUARANTINED), (_CACHED, _SHARED)
_NUMBERS = range(max(PageState) + 1)


class NotOwned(Exception):
    """Something was to be done with pages by somebody who does not have them in the way believed."""


@dataclass(frozen=True)
class PageFacts:
    """All that the pool knows of one page. `listed`: how often it stands in the free list."""

    page: int
    state: str
    tag: int
    owner: int | None
    lockers: tuple[int, ...]
    references: int
    listed: int
    held: bool
    why: str = ""


@dataclass(frozen=True)
class PoolAudit:
    """Pages by state, and what is wrong (empty when all is well), with the facts of each wrong page."""

    counts: dict[str, int]
    wrong: tuple[int, ...]
    findings: tuple[PageFacts, ...] = ()


def tag_runs(tags: np.ndarray) -> Iterator[tuple[int, int, int]]:
    """(tag, start, stop) of each run of equal tags, in order: the shape of a ledger row."""
    start, count = 0, len(tags)
    if tags.tobytes() != tags[:1].tobytes() * count:  # most tables are of one tag
        for stop in ((tags[1:] != tags[:-1]).nonzero()[0] + 1).tolist():
            yield int(tags[start]), start, stop
            start = stop
    if count:
        yield int(tags[start]), start, count


def _any(mask: np.ndarray) -> bool:
    """Whether any of a few flags (bool [n]) is set: quicker than numpy's own for so few."""
    return 1 in mask.tobytes()


class _FreeStack:
    """The free list. Grows where a faulty caller puts back more than was taken: that is for the audit to find."""

    def __init__(self, pages: int) -> None:
        self._pages = np.arange(pages - 1, NULL_BLOCK, -1, dtype=np.int32)
        self._count = len(self._pages)

    def __len__(self) -> int:
        return self._count

    def take(self, count: int) -> np.ndarray:
        """The `count` pages put in last, the last one first."""
        taken = self._pages[self._count - count : self._count][::-1].copy()
        taken.flags.writeable = False  # the ledger then keeps the list itself, and no copy
        self._count -= count
        return taken

    def put(self, pages: np.ndarray) -> None:
        """Put pages in, so that the next `take` of as many gives them in this order."""
        end = self._count + len(pages)
        if end > len(self._pages):
            self._pages = np.resize(self._pages, 2 * end)
        self._pages[self._count : end] = pages[::-1]
        self._count = end

    def append(self, page: int) -> None:
        """Put one page in."""
        self.put(np.array([page], np.int32))

    def listed(self) -> np.ndarray:
        """Every page in the list."""
        return self._pages[: self._count]


class BlockPool:
    """Allocator of one component's pages. Page 0 is the null block and is never handed out.

    The free list is a stack, and a request's pages go back in reverse: the next request of the same size gets them in
    the same order of its table, as in a pool under load where the hottest pages are reused first.
    """

    def __init__(self, name: str, pages: int, page_tokens: int, recorder: Recorder) -> None:
        self.name, self.pages, self.page_tokens = name, pages, page_tokens
        self._recorder = recorder
        self._free = _FreeStack(pages)
        self._state = np.full(pages, _FREE, np.uint8)
        self._state[NULL_BLOCK] = 0
        self._tag = np.zeros(pages, np.int64)
        self._owner = np.full(pages, NO_OWNER, np.int64)
        self._references = np.zeros(pages, np.int32)
        self._locks: dict[int, list[np.ndarray]] = {}  # req -> the pages of each share that is not undone
        self._counts = [0] * len(_NUMBERS)
        self._counts[_FREE] = pages - 1
        self._order = np.arange(pages, dtype=np.int32)
        self._place = np.zeros(pages, np.int32)  # scratch of `_require_distinct`

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
            self._own(req, pages, tag)
        return pages, tag

    def append(self, req: int, pos: int) -> tuple[int, int]:
        """One more page at place `pos` of a request's table, and its tag. Raises MemoryError where none is free."""
        with self._recorder.lock:
            pages = self._take(1)
            tag = self._recorder.append(self.name, req, pages, pos=pos)
            self._own(req, pages, tag)
        return int(pages[0]), tag

    def hold(self, req: int, tag: int, pages: np.ndarray, cause: str, *, deadline: int | None = None) -> None:
        """Keep pages whose request ended, until a remote writer has drained or `deadline` (us). Raises NotOwned."""
        with self._recorder.lock:
            self.require_owned(pages, tag)
            self._move(pages, _HELD, (_USED, _HELD))
            self._recorder.pages("hold", self.name, req, tag, pages, cause=cause, deadline=deadline)

    def quarantine(self, req: int, tag: int, pages: np.ndarray, cause: str = QUARANTINE) -> None:
        """Take pages out of use: a hold with no end but a `free` that somebody decides on. Raises NotOwned."""
        with self._recorder.lock:
            self.require_owned(pages, tag)
            self._move(pages, _QUARANTINED, _REQUESTS)
            self._recorder.pages("hold", self.name, req, tag, pages, cause=cause)

    def free(self, req: int | None, tag: int, pages: np.ndarray, cause: str) -> None:
        """Return pages to the pool; a cache that evicts does so for no request.

        Raises NotOwned, and frees none, where one is not owned under `tag`, is locked, or belongs to a cache that is
        not evicting it.
        """
        with self._recorder.lock:
            self.require_owned(pages, tag)
            self._require_distinct(pages)
            self._move(pages, _FREE, self._freeable(cause))
            self._tag[pages], self._owner[pages] = 0, NO_OWNER
            self._free.put(pages)
            self._recorder.record("pages", "free", pool=self.name, req=req, tag=tag, pages=pages, cause=cause)

    def free_unchecked(self, req: int, tag: int, pages: np.ndarray, cause: str) -> None:
        """Put pages into the free list whoever owns them: what a pool without owners does, for faults alone."""
        with self._recorder.lock:
            self._free.put(pages)
            self._recorder.record("pages", "free", pool=self.name, req=req, tag=tag, pages=pages, cause=cause)

    def cache(self, req: int, pages: np.ndarray, tags: np.ndarray) -> None:
        """Hand a request's pages (int32 [n], under `tags` int64 [n]) to a cache, which keeps them until it evicts.

        The cache's own `insert` row tells it. Tag and owner stay: no new reserve happens. Raises NotOwned.
        """
        with self._recorder.lock:
            self.require_owned(pages, tags)
            self._require_distinct(pages)
            others = self._owner[pages] != req
            if _any(others):
                found = pages[others].tolist()
                raise NotOwned(f"pool {self.name}: pages {found} are not request {req}'s to hand to a cache")
            self._move(pages, _CACHED, (_USED,))

    def share(self, req: int, pages: np.ndarray, tags: np.ndarray, *, pos: int = 0) -> None:
        """Lock cached pages (int32 [n], under `tags` int64 [n]) for a request that reads them; `pos` is their place.

        One ledger row per run of one tag; a lock of the request's own pages has none. Raises NotOwned, and locks none,
        where a page is not cached under its tag.
        """
        with self._recorder.lock:
            self.require_owned(pages, tags)
            self._require_distinct(pages)
            self._move(pages, _SHARED, _CACHES)
            self._references[pages] += 1
            self._locks.setdefault(req, []).append(pages)
            self._lock_rows("share", req, pages, tags, pos)

    def unshare(self, req: int, pages: np.ndarray, tags: np.ndarray, *, pos: int = 0) -> None:
        """Undo one `share`, with the same arguments. Raises NotOwned where there was none."""
        with self._recorder.lock:
            self._forget_lock(req, pages)
            left = self._references[pages] - 1
            self._references[pages] = left
            self._move(pages[left == 0], _CACHED, (_SHARED,))
            self._lock_rows("unshare", req, pages, tags, pos)

    def scrub(self, pages: np.ndarray) -> None:
        """Record that pages were zeroed. Raises NotOwned where somebody has one locked to read it."""
        with self._recorder.lock:
            locked = pages[self._references[pages] > 0]
            if len(locked):
                raise NotOwned(f"pool {self.name}: pages {locked.tolist()} are locked; their content is being read")
            self._recorder.record("pages", "scrub", pool=self.name, pages=pages)

    def owner_tag(self, page: int) -> int:
        """The tag under which a page is owned; 0 where it is free."""
        return int(self._tag[page])

    def owner_tags(self, pages: np.ndarray) -> np.ndarray:
        """The tags (int64 [n]) under which pages are owned; 0 where free."""
        tags: np.ndarray = self._tag[pages]
        return tags

    def references(self, pages: np.ndarray) -> np.ndarray:
        """How many locks each page (int32 [n]) has."""
        return np.asarray(self._references[pages])

    def owner_of(self, page: int) -> int | None:
        """The request for which a page was reserved; None where it is free."""
        owner = int(self._owner[page])
        return None if owner == NO_OWNER else owner

    def state_of(self, page: int) -> PageState:
        """What a page is doing. Raises ValueError for the null block."""
        return PageState(int(self._state[page]))

    def pages_in(self, *states: PageState) -> np.ndarray:
        """Every page (int64, ascending) in one of some states."""
        return np.flatnonzero(np.isin(self._state, states))

    def counts(self) -> dict[str, int]:
        """Pages by state, without the null block. They add up to `usable_pages`."""
        return {state.name.lower(): self._counts[state] for state in PageState}

    def facts(self, page: int, why: str = "") -> PageFacts:
        """Owner, lockers, reference count, free-list and hold membership of one page."""
        state = PageState(int(self._state[page]))
        return PageFacts(
            page, state.name.lower(), self.owner_tag(page), self.owner_of(page),
            tuple(sorted(req for req, locks in self._locks.items() for pages in locks if page in pages)),
            int(self._references[page]), int(np.count_nonzero(self._free.listed() == page)),
            state in (_HELD, _QUARANTINED), why,
        )  # fmt: skip

    def audit(self, tables: Mapping[int, np.ndarray] | None = None, *, record: bool = False) -> PoolAudit:
        """Whether free list, states, tags, owners, locks and counts agree.

        With `tables` (req -> the page numbers of its block table, for every request that is not at an end) also
        whether each page is in the tables of those who may use it and of nobody else. `record` writes the outcome.
        """
        with self._recorder.lock:
            suspects = self._suspects()
            if tables is not None:
                suspects += self._suspects_of(tables)
            why: dict[int, str] = {}
            for words, pages in suspects:
                for page in np.unique(pages[pages != NULL_BLOCK]).tolist():
                    why[page] = f"{why[page]}; {words}" if page in why else words
            findings = tuple(self.facts(page, why[page]) for page in sorted(why))
            audit = PoolAudit(self.counts(), tuple(sorted(why)), findings)
            if record:
                self._recorder.record("pages", "audit", pool=self.name, pages=audit.wrong)
        return audit

    def _suspects(self) -> list[tuple[str, np.ndarray]]:
        free, shared = self._state == _FREE, self._state == _SHARED
        listed = np.bincount(self._free.listed(), minlength=self.pages)
        locked = [pages for locks in self._locks.values() for pages in locks]
        references = np.bincount(np.concatenate([np.zeros(0, np.int32), *locked]), minlength=self.pages)
        owned = self._tag != 0
        found = [
            ("is in the free list and owned", (listed > 0) & (~free | owned)),
            ("is in the free list more than once", listed > 1),
            ("is neither in the free list nor owned", (listed == 0) & (free | ~owned)),
            ("has a tag without an owner, or an owner without a tag", owned != (self._owner != NO_OWNER)),
            ("has another reference count than locks", self._references != references),
            ("is locked and not cached, or shared without a lock", shared != (self._references > 0)),
        ]
        counted = np.bincount(self._state, minlength=len(self._counts)).tolist()
        wrong_states = [state for state in PageState if counted[state] != self._counts[state]]
        found.append(("is in a state whose count is wrong", np.isin(self._state, wrong_states)))
        return [(words, np.flatnonzero(mask)) for words, mask in found]

    def _suspects_of(self, tables: Mapping[int, np.ndarray]) -> list[tuple[str, np.ndarray]]:
        found = []
        users = np.zeros(self.pages, np.int32)  # tables that a page is in without a lock
        for req, table in tables.items():
            locked = np.concatenate([*self._locks.get(req, []), np.zeros(0, np.int32)])
            own = np.setdiff1d(table, locked)
            users[own] += 1
            found.append((f"is in the table of request {req}, which has no claim to it", own[self._owner[own] != req]))
            cached = np.isin(self._state[own], _CACHES)
            found.append((f"is a cache's and in the table of request {req}, which has not locked it", own[cached]))
        found.append(("is in the tables of several requests that have not locked it", np.flatnonzero(users > 1)))
        used = self._state == _USED
        found.append(("is owned by a request that is at an end", np.flatnonzero(used & (users == 0))))
        return found

    def _take(self, count: int) -> np.ndarray:
        if count > len(self._free):
            raise MemoryError(f"pool {self.name}: {count} pages wanted, {len(self._free)} free")
        return self._free.take(count)

    def _own(self, req: int, pages: np.ndarray, tag: int) -> None:
        self._move(pages, _USED, _ANY)
        self._tag[pages], self._owner[pages] = tag, req

    def _move(self, pages: np.ndarray, state: PageState, allowed: tuple[PageState, ...]) -> None:
        """Change the state of pages. Raises NotOwned, and changes none, where one is in no `allowed` state."""
        states = self._state[pages].tobytes()  # counting bytes is quicker than any array function on a few pages
        if states and states[0] in allowed and states.count(states[0]) == len(states):  # nearly always
            self._counts[states[0]] -= len(states)
            self._counts[state] += len(states)
            self._state[pages] = state
            return
        found = [states.count(each) for each in _NUMBERS]
        if sum([found[each] for each in allowed]) != len(pages):
            wrong = pages[~np.isin(self._state[pages], allowed)]
            words = ", ".join(f"{page} is {PageState(int(self._state[page])).name.lower()}" for page in wrong.tolist())
            raise NotOwned(f"pool {self.name}: not owned so that they could become {state.name.lower()}: page {words}")
        for old, count in enumerate(found):
            self._counts[old] -= count
        self._counts[state] += len(pages)
        self._state[pages] = state

    def _freeable(self, cause: str) -> tuple[PageState, ...]:
        """States that pages may be freed from: locked ones never, a cache's only where it evicts them."""
        return (*_REQUESTS, _CACHED) if cause == EVICT else _REQUESTS

    def require_owned(self, pages: np.ndarray, tags: np.ndarray | int) -> None:
        """Raise NotOwned where a page is not owned under its tag (one for all, or int64 [n])."""
        differs = self._tag[pages] != tags
        if _any(differs):
            believed = f"tag {tags}" if isinstance(tags, int) else "the tags believed"
            raise NotOwned(f"pool {self.name}: pages {pages[differs].tolist()} are not owned under {believed}")

    def _require_distinct(self, pages: np.ndarray) -> None:
        if len(pages) < 2:
            return
        order = self._order[: len(pages)]
        if len(order) == len(pages):
            self._place[pages] = order
        if len(order) < len(pages) or _any(self._place[pages] != order):
            raise NotOwned(f"pool {self.name}: a page is named twice in {pages.tolist()}; nobody owns it twice")

    def _forget_lock(self, req: int, pages: np.ndarray) -> None:
        locks = self._locks.get(req, [])
        for place, locked in enumerate(locks):
            if locked is pages or np.array_equal(locked, pages):
                del locks[place]
                if not locks:
                    del self._locks[req]
                return
        raise NotOwned(f"pool {self.name}: request {req} holds no lock of exactly the pages {pages.tolist()}")

    def _lock_rows(self, op: str, req: int, pages: np.ndarray, tags: np.ndarray, pos: int) -> None:
        for tag, start, stop in tag_runs(tags):
            if self._owner[pages[start]] != req:
                self._recorder.pages(op, self.name, req, tag, pages[start:stop], pos=pos + start)
