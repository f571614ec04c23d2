"""The host tier: a second pool of the same worker, under the same keys, to which cached pages are copied and back.

Invariant: a key is in the tier only once its bytes have been copied there, and a load gives only what was copied back,
the beginning of what was asked for and never more. Every copy is a transfer whose peer is the worker itself; the pages
it reads are locked while it does.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from engine.block_pool import EVICT, BlockPool, PageState, tag_runs
from engine.cache_rows import CacheRows, Match, SaltFp
from engine.ledger.recorder import Recorder
from engine.ledger.tag import make_tag
from engine.page_keys import Identity

BATCH_PAGES = 256
"""Pages per post and done: the resolution of every verdict on a late copy."""

Copy = Callable[[str, np.ndarray, str, np.ndarray, int], int]
"""copy(src_pool, src_pages, dst_pool, dst_pages, dst_tag) -> bytes; the headers it writes carry `dst_tag`.

Raises OSError where nothing can be said of what arrived."""


@dataclass(frozen=True)
class _Route:
    """One direction of copying, and the request it is for."""

    src: BlockPool
    dst: BlockPool
    req: int | None


class HostTier:
    """A tier over `pool`, which it alone allocates from; `device` is the pool that its content comes from.

    Its pages are reserved for the request that computed them, as in the device's pool. Not thread-safe.
    """

    def __init__(
        self,
        pool: BlockPool,
        device: BlockPool,
        recorder: Recorder,
        copy: Copy,
        *,
        tier: str = "host",
        component: str = "kv",
        salt_fp: SaltFp | None = None,
        batch_pages: int = BATCH_PAGES,
    ) -> None:
        self.pool, self.device = pool, device
        self._recorder, self._copy, self._batch_pages = recorder, copy, batch_pages
        self._rows = CacheRows(recorder, tier, component, salt_fp)
        self._page_of: OrderedDict[int, int] = OrderedDict()  # key -> host page, the one used longest ago first

    @property
    def stored_pages(self) -> int:
        """Pages that the tier has."""
        return len(self._page_of)

    def match(self, keys: np.ndarray) -> int:
        """How many keys (int64 [n]) from the first on the tier has. Changes nothing."""
        for count, key in enumerate(keys.tolist()):
            if key not in self._page_of:
                return count
        return len(keys)

    def offload(self, keys: np.ndarray, pages: np.ndarray, tags: np.ndarray, identity: Identity | None = None) -> int:
        """Copy device pages (int32 [n], under `tags` int64 [n], complete) to the tier under `keys`; returns how many.

        What the tier has already is only marked as used. Fewer than are missing are copied where the tier is too
        small or a copy fails; the `offload` rows say so. Raises NotOwned where a page has another tag.
        """
        _require_equal(keys, pages)
        self.device.require_owned(pages, tags)
        missing = np.array([key not in self._page_of for key in keys.tolist()], bool)
        present = keys[~missing]
        self._mark_used(present)
        asked = int(missing.sum())
        if not asked:
            return 0
        room = min(asked, self._room_beside(len(present)))
        self._make_room(room)
        keys, pages, tags = keys[missing][:room], pages[missing][:room], tags[missing][:room]
        runs: list[Match] = []
        for _, start, stop in tag_runs(tags):
            copied = self._offload_run(keys[start:stop], pages[start:stop], tags[start:stop])
            end = start + copied
            runs.append(Match(keys[start:end], pages[start:end], tags[start:end], copied))
            if end < stop:
                break
        stored = sum(map(len, runs))
        self._offload_rows(runs, asked - stored, identity)
        # The pages before them are marked last: what can no longer be reached from a prompt's start is of no use.
        self._mark_used(keys[:stored])
        self._mark_used(present)
        return stored

    def load(self, keys: np.ndarray, pages: np.ndarray, tag: int, identity: Identity, *, pos: int = 0) -> int:
        """Copy what the tier has under `keys` into a request's pages (int32 [n], all under `tag`); returns how many.

        It is the beginning of what was asked for; the other pages stay unwritten. `pos` is the first page's place in
        the request's table. `hit` rows carry the taker's identity. Raises NotOwned where a page has another tag.
        """
        _require_equal(keys, pages)
        self.device.require_owned(pages, tag)
        if not len(keys):
            return 0
        req = self.device.owner_of(int(pages[0]))
        assert req is not None
        held = np.array([self._page_of[key] for key in keys[: self.match(keys)].tolist()], np.int32)
        source = Match(keys[: len(held)], held, self.pool.owner_tags(held), len(keys))
        self._rows.write("hit", self.pool.name, source, req=req, identity=identity, pos=pos, counted=len(held) > 0)
        locked = self._lock_source(req, source, pos)
        loaded = 0
        for host_tag, start, stop in tag_runs(source.tags):
            route = _Route(self.pool, self.device, req)
            moved = self._move(route, held[start:stop], host_tag, pages[start:stop], tag, pos + start)
            loaded += moved
            if moved < stop - start:
                break
        if locked:
            self.pool.unshare(req, source.pages, source.tags, pos=pos)
        self._mark_used(source.keys)
        tags = np.full(loaded, tag, np.int64)
        run = Match(keys[:loaded], pages[:loaded], tags, len(keys))
        self._rows.write("load", self.device.name, run, req=req, identity=identity, pos=pos, counted=True)
        return loaded

    def evict(self, count: int) -> int:
        """Free `count` pages, or all that can be; the pages used longest ago first. Returns how many."""
        shared = set(self.pool.pages_in(PageState.SHARED).tolist()) if self.pool.counts()["shared"] else set()
        oldest = list(islice(((k, p) for k, p in self._page_of.items() if p not in shared), count))
        if not oldest:
            return 0
        # The deepest pages are the oldest; rows name pages in the order of their chain.
        keys, pages = (
            np.array(each, kind)
            for each, kind in zip(zip(*oldest[::-1], strict=True), (np.int64, np.int32), strict=True)
        )
        gone = Match(keys, pages, self.pool.owner_tags(pages), len(keys))
        with self._recorder.lock:
            self._rows.write("evict", self.pool.name, gone, req=None, identity=None)
            for tag, start, stop in tag_runs(gone.tags):
                self.pool.free(None, tag, pages[start:stop], EVICT)
        for key, _ in oldest:
            del self._page_of[key]
        return len(oldest)

    def audit(self) -> tuple[str, ...]:
        """What is wrong between the tier and its pool; empty when all is well."""
        pages = np.array(sorted(self._page_of.values()), np.int64)
        kept = self.pool.pages_in(PageState.CACHED, PageState.SHARED)
        used = self.pool.counts()["used"]
        found = [
            ("pages of the tier are not those that its pool keeps", not np.array_equal(pages, kept)),
            ("pages were reserved and never filed", used > 0),
        ]
        return tuple(words for words, wrong in found if wrong)

    def _offload_rows(self, runs: list[Match], missing: int, identity: Identity | None) -> None:
        if not runs:
            runs = [Match(*(np.zeros(0, np.int64),) * 3, 0)]
        runs[-1] = replace(runs[-1], asked=runs[-1].asked + missing)
        for run in runs:
            req = self.device.owner_of(int(run.pages[0])) if len(run) else None
            self._rows.write("offload", self.device.name, run, req=req, identity=identity, counted=True)

    def _room_beside(self, present: int) -> int:
        """Pages that an offload can have beside those of its keys that the tier has already."""
        return self.pool.usable_pages - self.pool.counts()["shared"] - present

    def _make_room(self, count: int) -> None:
        if count > self.pool.free_pages:
            self.evict(count - self.pool.free_pages)

    def _lock_source(self, req: int, source: Match, pos: int) -> bool:
        """Lock the pages that a load reads. Leaving it out lets them be evicted while they are read (M5)."""
        if not len(source):
            return False
        self.pool.share(req, source.pages, source.tags, pos=pos)
        return True

    def _offload_run(self, keys: np.ndarray, pages: np.ndarray, tags: np.ndarray) -> int:
        """Copy pages of one tag and file them; pages whose copy failed go back to the pool."""
        owner = self.device.owner_of(int(pages[0]))
        assert owner is not None
        host, tag = self.pool.reserve(owner, len(pages))
        copied = self._move(_Route(self.device, self.pool, owner), pages, int(tags[0]), host, tag, 0)
        if copied < len(host):
            self.pool.free(None, tag, host[copied:], "error")
        if copied:
            self.pool.cache(owner, host[:copied], np.full(copied, tag, np.int64))
        self._page_of.update(zip(keys[:copied].tolist(), host[:copied].tolist(), strict=True))
        return copied

    def _move(
        self, route: _Route, src_pages: np.ndarray, src_tag: int, dst_pages: np.ndarray, dst_tag: int, pos: int
    ) -> int:
        """Copy pages in bounded batches, each with its post and its done; stops at a failure. Returns how many."""
        recorder, xfer = self._recorder, 0
        for chunk, start in enumerate(range(0, len(src_pages), self._batch_pages)):
            src, dst = (each[start : start + self._batch_pages] for each in (src_pages, dst_pages))
            columns = {
                "req": route.req, "dir": "push", "chunk": chunk, "peer": recorder.worker,
                "src_pool": route.src.name, "dst_pool": route.dst.name, "src_pages": src, "dst_pages": dst,
                "src_tag": src_tag, "dst_tag": dst_tag, "pos": pos + start, "n": len(src),
            }  # fmt: skip
            with recorder.lock:
                xfer = xfer or make_tag(recorder.ordinal, recorder.epoch, recorder.seq + 1)
                recorder.record("transfers", "post", xfer=xfer, **columns)
            try:
                size = self._copy(route.src.name, src, route.dst.name, dst, dst_tag)
            except OSError as error:
                recorder.record("transfers", "fail", xfer=xfer, **columns, status=str(error))
                return start
            recorder.record("transfers", "done", xfer=xfer, **columns, bytes=size)
        return len(src_pages)

    def _mark_used(self, keys: np.ndarray) -> None:
        # From the end, so that within a chain the deepest page is the first to go.
        for key in reversed(keys.tolist()):
            self._page_of.move_to_end(key)


def _require_equal(keys: np.ndarray, pages: np.ndarray) -> None:
    if len(keys) != len(pages):
        raise ValueError(f"{len(keys)} keys and {len(pages)} pages: one key per page")
