"""The prefix cache of one pool: a radix tree over page keys, with locks, least-recently-used eviction and its rows.

Invariant: a page is in the tree exactly as long as the pool counts it as cached or shared, and under the tag it has
there. A node that is locked, or lies above one that is, is never evicted. `match_prefix` changes nothing: pages are
safe to read only under a lock. There is no clock: "used last" is the order of calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

import numpy as np

from engine.block_pool import EVICT, BlockPool, PageState, tag_runs
from engine.cache_rows import CacheRows, Match, SaltFp
from engine.ledger.recorder import Recorder
from engine.page_keys import Identity

_NO_KEYS, _NO_PAGES, _NO_TAGS = np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros(0, np.int64)


class StaleMatch(Exception):
    """What was matched is no longer in the cache: something was evicted between match and lock."""


@dataclass(eq=False)
class CacheLock:
    """A request's lock of cached pages. `taken` is False where the lock was left out; `open` until it is undone."""

    req: int
    match: Match
    pos: int
    node: _Node
    taken: bool = False
    open: bool = True


@dataclass(frozen=True, eq=False)
class Inserted:
    """What became of a request's pages: `new` ones are the cache's now (from place `pos` of the request's table).

    `duplicates` (int32 [m], under `duplicate_tags`) hold what the cache already had: they are still the request's, to
    be freed by it. `lock` is there where it was asked for.
    """

    new: Match
    pos: int
    duplicates: np.ndarray
    duplicate_tags: np.ndarray
    lock: CacheLock | None


class _Node:
    """A run of pages. Its arrays are never changed in place: rows and matches hold slices of them."""

    __slots__ = ("children", "identity", "keys", "lock_ref", "pages", "parent", "serial", "tags", "used")

    def __init__(self, parent: _Node | None, serial: int, run: Match, identity: Identity | None) -> None:
        self.parent, self.serial, self.identity = parent, serial, identity
        self.keys, self.pages, self.tags = run.keys, run.pages, run.tags
        self.children: dict[int, _Node] = {}
        self.lock_ref = self.used = 0

    def is_idle(self) -> bool:
        """Whether it may be evicted."""
        return not self.children and self.lock_ref == 0 and self.parent is not None

    def run(self, start: int, stop: int | None = None) -> Match:
        """A slice of its pages."""
        keys = self.keys[start:stop]
        return Match(keys, self.pages[start:stop], self.tags[start:stop], len(keys))


OnEvict = Callable[[Match, Identity | None], None]


class RadixCache:
    """Prefix cache over one pool. `on_evict(run, identity)` sees what is evicted while its pages still hold it.

    `salt_fp` gives the `salt_fp` column of an identity. Not thread-safe: one control plane calls it.
    """

    def __init__(
        self,
        pool: BlockPool,
        recorder: Recorder,
        *,
        tier: str = "device",
        component: str = "kv",
        salt_fp: SaltFp | None = None,
        on_evict: OnEvict | None = None,
    ) -> None:
        self.pool, self._recorder, self.on_evict = pool, recorder, on_evict
        self._rows = CacheRows(recorder, tier, component, salt_fp)
        self._calls = self._serial = 0
        self._root = _Node(None, 0, Match(_NO_KEYS, _NO_PAGES, _NO_TAGS, 0), None)
        self._pages = self._protected = 0
        self._idle: list[tuple[int, int, _Node]] = []  # heap; an entry counts while its node is idle and as it says
        self._idle_limit = 64

    @property
    def cached_pages(self) -> int:
        """Pages in the tree."""
        return self._pages

    @property
    def protected_pages(self) -> int:
        """Pages that a lock keeps from being evicted."""
        return self._protected

    @property
    def evictable_pages(self) -> int:
        """Pages that `evict` can free now."""
        return self._pages - self._protected

    def match_prefix(self, keys: np.ndarray) -> Match:
        """The longest cached beginning of a key chain (int64 [n]). Safe to read only once locked."""
        return self._matched(keys, *self._walk(keys))

    def cached_tokens(self, match: Match) -> int:
        """Tokens that need not be computed."""
        return len(match) * self.pool.page_tokens

    def lock(self, match: Match, req: int, identity: Identity) -> CacheLock:
        """Take what was matched for a request: `hit` rows with its identity, `share` rows, and no eviction until
        `unlock`. Raises StaleMatch where it is no longer cached so."""
        node = self._node_of(match)
        lock = CacheLock(req, match, 0, node)
        with self._recorder.lock:
            if len(match):
                self._rows.write("hit", self.pool.name, match, req=req, identity=identity, counted=True)
            self._take_lock(lock)
        self._touch(node)
        return lock

    def unlock(self, lock: CacheLock) -> None:
        """Let go. Raises ValueError for a lock that was undone before."""
        if not lock.open:
            raise ValueError(f"request {lock.req} unlocks {len(lock.match)} cached pages a second time")
        lock.open = False
        if lock.taken:
            if len(lock.match):
                self.pool.unshare(lock.req, lock.match.pages, lock.match.tags, pos=lock.pos)
            self._count_locks(lock.node, -1)
        self._touch(lock.node)

    def insert(
        self, req: int, identity: Identity, keys: np.ndarray, pages: np.ndarray, tags: np.ndarray, *, keep: bool = False
    ) -> Inserted:
        """File the full pages of a request's table: `keys` int64, `pages` int32, `tags` int64, all [n], from place 0.

        What the cache has already stays as it is; the rest becomes the cache's, with `insert` rows. With `keep` the
        new pages come back locked, for a request that goes on using them. Raises NotOwned where a page to be filed is
        not the request's, and files none.
        """
        if not len(keys) == len(pages) == len(tags):
            raise ValueError(f"{len(keys)} keys, {len(pages)} pages and {len(tags)} tags: one of each per full page")
        path, inside = self._walk(keys)
        here = self._matched(keys, path, inside)
        start, node = len(here), path[-1] if path else self._root
        new = Match(
            keys[start:].copy(), pages[start:].astype(np.int32), tags[start:].astype(np.int64), len(keys) - start
        )
        if len(new):
            with self._recorder.lock:
                self.pool.cache(req, new.pages, new.tags)
                self._rows.write("insert", self.pool.name, new, req=req, identity=identity, pos=start)
            node = self._grow(self._split(node, inside), new, identity)
        self._touch(node)
        double = pages[:start] != here.pages
        lock = self._keep_lock(req, new, start, node) if keep else None
        return Inserted(new, start, pages[:start][double], tags[:start][double], lock)

    def evict(self, count: int) -> int:
        """Free at least `count` pages, or all that can be; the pages used longest ago first. Returns how many."""
        freed = 0
        while freed < count and (leaf := self._oldest()) is not None:
            drop = min(len(leaf.keys), count - freed)
            self._drop_tail(leaf, len(leaf.keys) - drop)
            freed += drop
        return freed

    def audit(self) -> tuple[str, ...]:
        """What is wrong between the tree and the pool; empty when all is well."""
        nodes = list(self._nodes())
        pages = np.concatenate([_NO_PAGES, *(node.pages for node in nodes)])
        tags = np.concatenate([_NO_TAGS, *(node.tags for node in nodes)])
        kept = self.pool.pages_in(PageState.CACHED, PageState.SHARED)
        free_to_go = np.concatenate([_NO_PAGES, *(node.pages for node in nodes if not node.lock_ref)])
        protected = sum(len(node.keys) for node in nodes if node.lock_ref)
        loose = [node for node in nodes if node.is_idle() and (node.used, node.serial, node) not in self._idle]
        found = [
            ("pages are in two places of the tree", len(np.unique(pages)) != len(pages)),
            ("pages are in the tree and not the cache's in the pool", len(np.setdiff1d(pages, kept)) > 0),
            ("pages are the cache's in the pool and not in the tree", len(np.setdiff1d(kept, pages)) > 0),
            ("pages have another tag in the pool", bool((self.pool.owner_tags(pages) != tags).any())),
            ("shared pages could be evicted", np.isin(free_to_go, self.pool.pages_in(PageState.SHARED)).any()),
            ("pages are counted wrongly", (len(pages), protected) != (self._pages, self._protected)),
            ("nodes have fewer locks than their children", any(_too_loose(node) for node in nodes)),
            ("leaves could be evicted and are not known to be", bool(loose)),
        ]
        return tuple(words for words, wrong in found if wrong)

    def _take_lock(self, lock: CacheLock) -> None:
        """Lock pages and path. A lookup that leaves this out is a missing lock (M7)."""
        if len(lock.match):
            self.pool.share(lock.req, lock.match.pages, lock.match.tags, pos=lock.pos)
        self._count_locks(lock.node, +1)
        lock.taken = True

    def _keep_lock(self, req: int, new: Match, pos: int, node: _Node) -> CacheLock:
        lock = CacheLock(req, new, pos, node)
        self._take_lock(lock)
        return lock

    def _walk(self, keys: np.ndarray) -> tuple[list[_Node], int]:
        """The nodes along a key chain, and how many pages of the last one are on it."""
        path: list[_Node] = []
        node, depth, inside = self._root, 0, 0
        while depth < len(keys) and inside == len(node.keys):
            child = node.children.get(int(keys[depth]))
            if child is None:
                break
            node, inside = child, _common(child.keys, keys[depth:])
            path.append(node)
            depth += inside
        return path, inside

    def _matched(self, keys: np.ndarray, path: list[_Node], inside: int) -> Match:
        if not path:
            return Match(_NO_KEYS, _NO_PAGES, _NO_TAGS, len(keys))
        runs = [(node.pages, node.tags) for node in path[:-1]] + [(path[-1].pages[:inside], path[-1].tags[:inside])]
        pages, tags = runs[0] if len(runs) == 1 else (np.concatenate(each) for each in zip(*runs, strict=True))
        return Match(keys[: len(pages)], pages, tags, len(keys))

    def _node_of(self, match: Match) -> _Node:
        """The node that ends where a match does, made by a split where there is none. Raises StaleMatch."""
        if not len(match):
            return self._root
        path, inside = self._walk(match.keys)
        place = 0
        for node in path:
            pages, tags = match.pages[place : place + len(node.keys)], match.tags[place : place + len(node.keys)]
            count = len(pages) if node is not path[-1] else inside
            if not (np.array_equal(node.pages[:count], pages) and np.array_equal(node.tags[:count], tags)):
                break
            place += count
        if place != len(match):
            raise StaleMatch(f"pool {self.pool.name}: {len(match) - place} of {len(match)} matched pages are gone")
        return self._split(path[-1], inside)

    def _split(self, node: _Node, at: int) -> _Node:
        """The node that holds the first `at` pages; the rest stays in `node`, to which locks of all of it point."""
        if at == len(node.keys):
            return node
        assert node.parent is not None
        head = self._new_node(node.parent, node.run(0, at), node.identity)
        head.lock_ref, head.used = node.lock_ref, node.used
        node.parent.children[int(node.keys[0])] = head
        rest = node.run(at)
        node.keys, node.pages, node.tags, node.parent = rest.keys, rest.pages, rest.tags, head
        head.children[int(rest.keys[0])] = node
        return head

    def _grow(self, node: _Node, new: Match, identity: Identity) -> _Node:
        leaf = self._new_node(node, new, identity)
        node.children[int(new.keys[0])] = leaf
        self._pages += len(new)
        return leaf

    def _new_node(self, parent: _Node, run: Match, identity: Identity | None) -> _Node:
        self._serial += 1
        return _Node(parent, self._serial, run, identity)

    def _count_locks(self, node: _Node | None, by: int) -> None:
        while node is not None and node.parent is not None:
            if node.lock_ref == 0 or node.lock_ref + by == 0:
                self._protected += by * len(node.keys)
            node.lock_ref += by
            node = node.parent

    def _touch(self, node: _Node) -> None:
        """Mark a node and all above it as used now."""
        self._calls += 1
        above: _Node | None = node
        while above is not None:
            above.used = self._calls
            above = above.parent
        self._note_idle(node)

    def _note_idle(self, node: _Node) -> None:
        if node.is_idle():
            heappush(self._idle, (node.used, node.serial, node))
            if len(self._idle) > self._idle_limit:
                self._idle = [entry for entry in self._idle if _holds(entry)]
                heapify(self._idle)
                self._idle_limit = max(64, 2 * len(self._idle))

    def _oldest(self) -> _Node | None:
        """The idle leaf that was used longest ago."""
        while self._idle and not _holds(self._idle[0]):
            heappop(self._idle)
        return self._idle[0][2] if self._idle else None

    def _drop_tail(self, leaf: _Node, keep: int) -> None:
        """Evict a leaf's pages from place `keep` on."""
        gone, parent = leaf.run(keep), leaf.parent
        assert parent is not None
        if self.on_evict is not None:
            self.on_evict(gone, leaf.identity)
        with self._recorder.lock:
            self._rows.write("evict", self.pool.name, gone, req=None, identity=leaf.identity)
            for tag, start, stop in tag_runs(gone.tags):
                self.pool.free(None, tag, gone.pages[start:stop], EVICT)
        self._pages -= len(gone)
        rest = leaf.run(0, keep)
        if keep == 0:
            del parent.children[int(leaf.keys[0])]
            leaf.parent = None
            self._note_idle(parent)
        leaf.keys, leaf.pages, leaf.tags = rest.keys, rest.pages, rest.tags

    def _nodes(self) -> Iterator[_Node]:
        waiting = list(self._root.children.values())
        while waiting:
            node = waiting.pop()
            waiting += node.children.values()
            yield node


def _common(one: np.ndarray, other: np.ndarray) -> int:
    """Length of the common beginning of two key runs."""
    count = min(len(one), len(other))
    differs = one[:count] != other[:count]
    at = int(differs.argmax())
    return at if differs[at] else count


def _holds(entry: tuple[int, int, _Node]) -> bool:
    used, _, node = entry
    return node.used == used and node.is_idle()


def _too_loose(node: _Node) -> bool:
    return node.lock_ref < sum(child.lock_ref for child in node.children.values())
