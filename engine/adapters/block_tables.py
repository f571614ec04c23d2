"""Block tables of requests as `pages` and `cache` rows: reserve, share, write, bind, unbind, free.

Invariant: a block has the tag of the row that last gave it to a request, until it is given away anew; one whose
content a prefix cache may still hand out is not freed before that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from engine.ledger.recorder import Recorder

POOL, TIER = "kv", "device"


@dataclass(eq=False)
class Life:
    """A request on this worker. `pages`, `tags`: its block table; the first `hits` of them are another's, shared.

    `computed`: tokens of it whose KV is there; `until`: so many are computed before it decodes. `cached`: tokens that it
    found. `last_us`: when its last token left, None = none did.
    """

    req: int
    rid: str
    who: dict[str, Any]
    pages: list[int] = field(default_factory=list)
    tags: list[int] = field(default_factory=list)
    hits: int = 0
    computed: int = 0
    until: int = 0
    cached: int = 0
    admitted: bool = False
    is_bound: bool = False
    decoding: bool = False
    paused: bool = False
    skipped: bool = False
    has_token: bool = False
    ended: bool = False
    cause: str = "finish"
    last_us: int | None = None


class BlockTables:
    """The blocks of one pool, `page_tokens` tokens each."""

    def __init__(self, recorder: Recorder, blocks: int, page_tokens: int) -> None:
        self.page_tokens = page_tokens
        self._recorder = recorder
        self._tag, self._req, self._key = [0] * blocks, [0] * blocks, [0] * blocks

    def is_filed(self, page: int) -> bool:
        """Whether a prefix cache may hand out what a block holds."""
        return self._key[page] != 0

    def extend(self, life: Life, pages: Sequence[int], op: str = "reserve") -> None:
        """Give blocks to a request, at the end of its table; who had them before has them no more."""
        if not pages:
            return
        if used := [page for page in pages if self._tag[page]]:
            self._evict(used)
        named = np.array(pages, np.int32)
        give = self._recorder.append if op == "append" else self._recorder.reserve
        tag = give(POOL, life.req, named, pos=len(life.pages))
        for page in pages:
            self._tag[page], self._req[page] = tag, life.req
        life.pages += list(pages)
        life.tags += [tag] * len(pages)

    def share(self, life: Life, pages: Sequence[int]) -> None:
        """A request begins its table with blocks of others that a prefix cache has found for it."""
        for tag, start, stop in _runs([self._tag[page] for page in pages]):
            named = np.array(pages[start:stop], np.int32)
            keys = [self._key[page] for page in pages[start:stop]]
            columns = {"tier": TIER, "component": POOL, "req": life.req, "pool": POOL, "tag": tag, "pos": start}
            self._recorder.record("cache", "hit", **columns, **life.who, keys=keys, pages=named, n=len(named))
            self._recorder.pages("share", POOL, life.req, tag, named, pos=start)
        life.pages, life.tags, life.hits = list(pages), [self._tag[page] for page in pages], len(pages)

    def file(self, life: Life, pages: Sequence[int], keys: Sequence[int], pos: int) -> None:
        """A prefix cache may hand out what blocks of a request hold, or will when their pass has run."""
        for page, key in zip(pages, keys, strict=True):
            self._key[page] = key
        for tag, start, stop in _runs([self._tag[page] for page in pages]):
            named = np.array(pages[start:stop], np.int32)
            columns = {"tier": TIER, "component": POOL, "req": life.req, "pool": POOL, "tag": tag, "pos": pos + start}
            self._recorder.record(
                "cache", "insert", **columns, **life.who, keys=list(keys[start:stop]), pages=named, n=len(named)
            )

    def write(self, life: Life, start: int, stop: int, since_seq: int) -> None:
        """A pass has written tokens [start, stop) of a request."""
        for tag, pages, place in self._spans(life, start, stop):
            self._recorder.pages("write", POOL, life.req, tag, pages, **place, since_seq=since_seq)

    def bind(self, life: Life, start: int, stop: int) -> None:
        """A pass attends to tokens [start, stop) of a request."""
        for tag, pages, place in self._spans(life, start, stop):
            self._recorder.pages("bind", POOL, life.req, tag, pages, **place)

    def unbind(self, life: Life, cause: str) -> None:
        """A request reads its table no more."""
        for tag, start, stop in _runs(life.tags):
            pages = np.array(life.pages[start:stop], np.int32)
            self._recorder.pages("unbind", POOL, life.req, tag, pages, cause=cause)
            if start < life.hits:
                self._recorder.pages("unshare", POOL, life.req, tag, pages)

    def clear(self, life: Life, cause: str, pages: Sequence[int]) -> None:
        """A request has no table any more; of its blocks, `pages` are free."""
        self.unbind(life, cause)
        self.free(pages, cause)
        life.pages, life.tags, life.hits, life.computed = [], [], 0, 0
        life.is_bound = life.decoding = False

    def hold(self, life: Life, cause: str) -> None:
        """A request's own blocks are kept although it has ended."""
        own = life.tags[life.hits :]
        for tag, start, stop in _runs(own):
            pages = np.array(life.pages[life.hits + start : life.hits + stop], np.int32)
            self._recorder.pages("hold", POOL, life.req, tag, pages, cause=cause)

    def free(self, pages: Sequence[int], cause: str) -> None:
        """Blocks go back to the pool, and nobody may be given what they hold."""
        for (tag, req), start, stop in _runs([(self._tag[page], self._req[page]) for page in pages]):
            if tag:
                self._recorder.pages("free", POOL, req, tag, np.array(pages[start:stop], np.int32), cause=cause)
        for page in pages:
            self._tag[page] = self._key[page] = 0

    def tagged(self, pages: Sequence[int]) -> Iterator[tuple[int, int, list[int]]]:
        """(tag, place of the first, blocks) for runs of blocks of one tag."""
        for tag, start, stop in _runs([self._tag[page] for page in pages]):
            yield tag, start, list(pages[start:stop])

    def _evict(self, pages: list[int]) -> None:
        filed = [page for page in pages if self._key[page]]
        for tag, start, stop in _runs([self._tag[page] for page in filed]):
            run = filed[start:stop]
            self._recorder.record(
                "cache", "evict", tier=TIER, component=POOL, pool=POOL, tag=tag, keys=[self._key[page] for page in run],
                pages=np.array(run, np.int32), n=len(run),
            )  # fmt: skip
        self.free(pages, "evict")

    def _spans(self, life: Life, start: int, stop: int) -> Iterator[tuple[int, np.ndarray, dict[str, int]]]:
        """(tag, blocks, columns that place them) of tokens [start, stop)."""
        size = self.page_tokens
        first, last = start // size, -(-stop // size)
        for tag, low, high in _runs(life.tags[first:last]):
            begin, end = max(start, (first + low) * size), min(stop, (first + high) * size)
            place = {"pos": first + low, "tok_off": begin - (first + low) * size, "tokens": end - begin}
            yield tag, np.array(life.pages[first + low : first + high], np.int32), place


def _runs(values: Sequence[Any]) -> Iterator[tuple[Any, int, int]]:
    """(value, start, stop) of stretches of equal values."""
    start = 0
    for i in range(1, len(values) + 1):
        if i == len(values) or values[i] != values[start]:
            yield values[start], start, i
            start = i
