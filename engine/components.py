"""Pools beside `kv` on one worker: what each holds of a request, from its reserve to its free.

`index` and `draft` have a page wherever `kv` has one, `swa` the last `WINDOW_PAGES` of those, `state` one page that
every pass rewrites in place, `slot` one page of handoff metadata that is read once. A table is placed like that of
`kv`: its page i stands at place `first + i`.

Invariant: a request has pages of every pool or of none, and each pool's pages keep that pool's own tags.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from engine.block_pool import BlockPool, PoolAudit, tag_runs
from engine.executor import PoolWork, TagMismatch
from engine.ledger.recorder import Recorder
from engine.ledger.tag import split_tag
from engine.request import PageTable, Request
from engine.transfer import Grant, PoolGrant

WINDOW_PAGES = 4
ALONG, WINDOW, STATE, SLOT = ("index", "draft"), "swa", "state", "slot"
WHOLE = (STATE, SLOT)
"""Their pages hold no tokens: they are there or not."""
ORDER = ("index", WINDOW, STATE, "draft", SLOT)
"""In which pools are written and sent: the metadata last."""


def _scrub_nothing(pool: str, pages: np.ndarray) -> None:
    del pool, pages


def _accept(request: Request, table: PageTable, step: int, check: bool) -> tuple[TagMismatch, ...]:
    del request, table, step, check
    return ()


@dataclass(frozen=True)
class Hooks:
    """What only those can do who have the bytes: zero pages, and read a slot (checking its header first, where asked;
    where that fails nothing was read)."""

    scrub: Callable[[str, np.ndarray], None] = _scrub_nothing
    accept: Callable[[Request, PageTable, int, bool], tuple[TagMismatch, ...]] = _accept


@dataclass
class Components:
    """The pools beside `kv` of one worker; none at all in most."""

    recorder: Recorder
    given: Sequence[BlockPool] = ()
    hooks: Hooks = Hooks()
    promised: Counter[str] = field(default_factory=Counter)  # pages by which started requests may still grow

    def __post_init__(self) -> None:
        named = {pool.name: pool for pool in self.given}
        self.pools = {name: named[name] for name in ORDER if name in named}

    def __bool__(self) -> bool:
        return bool(self.pools)

    def places(self, name: str, tokens: int) -> tuple[int, int]:
        """First place and the one behind the last that a pool has of `tokens` tokens."""
        if name in WHOLE:
            return 0, 1
        stop = self.pools[name].pages_for(tokens)
        return (max(stop - WINDOW_PAGES, 0) if name == WINDOW else 0), stop

    def tokens_in(self, name: str, table: PageTable, tokens: int) -> int:
        """How many of a request's `tokens` a table holds, counted in slots; a page that holds none counts as full."""
        size = self.pools[name].page_tokens
        return size * len(table.pages) if name in WHOLE else tokens - table.first * size

    def fit(self, tokens: int, final_tokens: int | None = None) -> bool:
        """Whether every pool has the pages of a request of `tokens` tokens that grows to `final_tokens`, beside what
        those that have started may still grow by."""
        for name, pool in self.pools.items():
            first, stop = self.places(name, tokens)
            low, high = self.places(name, max(tokens, final_tokens or 0))
            wanted = max(stop - first, min(high - low, pool.usable_pages))
            if wanted + self.promised[name] > pool.free_pages:
                return False
        return True

    def reserve(self, request: Request, tokens: int, final_tokens: int | None = None) -> None:
        """Give a request its pages of every pool. Raises MemoryError where they do not fit."""
        for name, pool in self.pools.items():
            first, stop = self.places(name, tokens)
            pages, tag = pool.reserve(request.req, stop - first)
            table = PageTable(name, first, pages, np.full(stop - first, tag, np.int64))
            low, high = self.places(name, max(tokens, final_tokens or 0))
            table.promised = max(min(high - low, pool.usable_pages) - len(pages), 0)
            self.promised[name] += table.promised
            request.others[name] = table

    def grows_no_more(self, request: Request) -> None:
        """What was kept free for its growth is for others."""
        for name, table in request.others.items():
            self.promised[name] -= table.promised
            table.promised = 0

    def can_grow(self, request: Request, place: int) -> bool:
        """Whether every pool has the page that a request needs at `place`."""
        return all(
            name in WHOLE or pool.free_pages > 0 or (name == WINDOW and self._leaving(request, place) > 0)
            for name, pool in self.pools.items()
        )

    def grow(self, request: Request, place: int) -> None:
        """A request's table goes on at `place`; what leaves the window goes back first."""
        for name, table in request.others.items():
            if name in WHOLE:
                continue
            leaving = self._leaving(request, place) if name == WINDOW else 0
            if leaving:
                self._leave_window(request, table, leaving)
            page, tag = self.pools[name].append(request.req, place)
            table.pages = np.append(table.pages, np.int32(page))
            table.tags = np.append(table.tags, np.int64(tag))
            table.bound += 1
            if table.promised:
                table.promised -= 1
                self.promised[name] -= 1

    def note_full(self, request: Request, place: int) -> None:
        """The appended page at `place` is full."""
        for name, table in request.others.items():
            if name in WHOLE:
                continue
            at, size = place - table.first, self.pools[name].page_tokens
            self.recorder.pages(
                "write", name, request.req, int(table.tags[at]), table.pages[at : at + 1], pos=place, tokens=size,
                since_seq=split_tag(int(table.tags[at])).seq,
            )  # fmt: skip

    def grant_rows(self, request: Request, columns: Mapping[str, Any]) -> tuple[PoolGrant, ...]:
        """One `grant` row for each pool under the transfer of `columns`, and what is told to the writer."""
        for name, table in request.others.items():
            count = len(table.pages)
            tokens = None if name in WHOLE else self.tokens_in(name, table, request.prompt_tokens)
            self.recorder.record(
                "transfers", "grant", **columns, dst_pool=name, dst_pages=table.pages, dst_tag=int(table.tags[0]),
                asked=count, n=count, tokens=tokens, pos=table.first,
            )  # fmt: skip
        return tuple(
            PoolGrant(name, int(table.tags[0]), table.pages, self.pools[name].pages)
            for name, table in request.others.items()
        )

    def receive(self, request: Request, xfer: int, covered: Mapping[str, int] | None) -> dict[str, int]:
        """One `receipt` row for each pool, with what it is believed to hold (None: all); what each has to hold."""
        wanted = {}
        for name, table in request.others.items():
            wanted[name] = self.tokens_in(name, table, request.prompt_tokens)
            believed = wanted[name] if covered is None else covered.get(name, 0)
            self.recorder.pages(
                "receipt", name, request.req, int(table.tags[0]), table.pages, pos=table.first, xfer=xfer,
                tokens=None if name in WHOLE and believed else believed,
            )  # fmt: skip
        return wanted

    def accept(self, request: Request, step: int, check: bool) -> tuple[TagMismatch, ...]:
        """Read the handoff metadata, where there is any; what its header said that was wrong."""
        slot = request.others.get(SLOT)
        return self.hooks.accept(request, slot, step, check) if slot is not None else ()

    def bind(self, request: Request, written: int) -> None:
        """Decode starts to attend to `written` tokens; the metadata was read with its bind, and its page goes back."""
        for name, table in request.others.items():
            tokens = None if name in WHOLE else self.tokens_in(name, table, written)
            self._bind(request, table, 0, len(table.pages), **({} if tokens is None else {"tokens": tokens}))
        slot = request.others.pop(SLOT, None)
        if slot is not None:
            self._give_back(request, slot, "finish")

    def computed(self, request: Request, start: int, stop: int, last: bool, since_seq: int) -> None:
        """Rows of one prefill pass over tokens [start, stop): writes, then binds of what is attended to from now on.
        The metadata is written by the last pass of a prompt, and not attended to."""
        for name, table in request.others.items():
            span = self._written(name, table, start, stop, last)
            if span is None:
                continue
            size = self.pools[name].page_tokens
            lo, hi = span[0] // size, -(-span[1] // size)
            columns = {} if name in WHOLE else {"tok_off": span[0] % size, "tokens": span[1] - span[0]}
            tag = int(table.tags[lo])
            self.recorder.pages(
                "write",
                name,
                request.req,
                tag,
                table.pages[lo:hi],
                pos=table.first + lo,
                since_seq=since_seq,
                **columns,
            )
            if name == SLOT or (name == STATE and table.bound):
                continue
            self._bind(request, table, lo, hi, **columns)

    def works(self, request: Request, start: int, stop: int, last: bool) -> tuple[PoolWork, ...]:
        """What a prefill pass over tokens [start, stop) does in each pool."""
        found = []
        for name, table in request.others.items():
            span = self._written(name, table, start, stop, last)
            if span is not None:
                reads = 0 if name == SLOT else span[1]
                found.append(PoolWork(name, table.first, table.pages, table.tags, span[0], span[1], reads))
        return tuple(found)

    def reads(self, request: Request, position: int) -> tuple[PoolWork, ...]:
        """What a decode pass at `position` does in each pool: it reads what is before, and writes one slot."""
        found = []
        for name, table in request.others.items():
            size = self.pools[name].page_tokens
            lo = 0 if name in WHOLE else position - table.first * size
            found.append(
                PoolWork(name, table.first, table.pages, table.tags, lo, lo + 1, size if name in WHOLE else lo)
            )
        return tuple(found)

    def unbind(self, request: Request, cause: str) -> None:
        """A request reads no more of what it has bound."""
        for name, table in request.others.items():
            for tag, start, stop in tag_runs(table.tags[: table.bound]):
                self.recorder.pages("unbind", name, request.req, tag, table.pages[start:stop], cause=cause)
            table.bound = 0

    def free(self, request: Request, cause: str, scrub: bool = False) -> None:
        """Every page goes back."""
        self.grows_no_more(request)
        for table in reversed(request.others.values()):
            if scrub:
                self.hooks.scrub(table.pool, table.pages)
                self.pools[table.pool].scrub(table.pages)
            self._give_back(request, table, cause)
        request.others = {}

    def hold(self, request: Request, cause: str, deadline: int) -> None:
        """Keep every page until its writers have drained."""
        for name, table in request.others.items():
            self.pools[name].hold(request.req, int(table.tags[0]), table.pages, cause, deadline=deadline)

    def quarantine(self, request: Request) -> None:
        """Take every page out of use."""
        for name, table in request.others.items():
            self.pools[name].quarantine(request.req, int(table.tags[0]), table.pages)

    def room_for(self, tables: Mapping[str, PageTable]) -> bool:
        """Whether every pool has as many pages as some tables, and one to grow into."""
        return all(self.pools[name].free_pages > len(table.pages) for name, table in tables.items())

    def take_back(self, request: Request, tables: Mapping[str, PageTable], final_tokens: int) -> None:
        """Give a request pages in the places of tables that it has given up. Raises MemoryError."""
        for name, old in tables.items():
            pool, (low, high) = self.pools[name], self.places(name, final_tokens)
            pages, tag = pool.reserve(request.req, len(old.pages))
            table = PageTable(name, old.first, pages, np.full(len(pages), tag, np.int64), bound=old.bound)
            table.promised = max(min(high - low, pool.usable_pages) - len(pages), 0)
            self.promised[name] += table.promised
            request.others[name] = table

    def audit(self, requests: Mapping[int, Request]) -> dict[str, PoolAudit]:
        """Account for the pages of every pool, and record the outcomes."""
        return {
            name: pool.audit(
                {req: one.others[name].pages for req, one in requests.items() if name in one.others}, record=True
            )
            for name, pool in self.pools.items()
        }

    def in_transfer(self, name: str, requests: Iterable[Request]) -> int:
        """Pages of a pool that requests have."""
        return sum(len(request.others[name].pages) for request in requests if name in request.others)

    def _written(self, name: str, table: PageTable, start: int, stop: int, last: bool) -> tuple[int, int] | None:
        """Slots, counted from the first of a table, that a prefill pass over tokens [start, stop) fills."""
        size = self.pools[name].page_tokens
        if name in WHOLE:
            return (0, size) if name == STATE or last else None
        base = table.first * size
        return (max(start - base, 0), stop - base) if stop > base else None

    def _bind(self, request: Request, table: PageTable, lo: int, hi: int, **columns: int) -> None:
        place = table.first + lo
        self.recorder.pages(
            "bind", table.pool, request.req, int(table.tags[lo]), table.pages[lo:hi], pos=place, **columns
        )
        table.bound = max(table.bound, hi)

    def _leaving(self, request: Request, place: int) -> int:
        """Pages at the head of the window that leave it when the table goes on at `place`."""
        return max(place + 1 - WINDOW_PAGES - request.others[WINDOW].first, 0)

    def _leave_window(self, request: Request, table: PageTable, count: int) -> None:
        for tag, start, stop in tag_runs(table.tags[:count]):
            pages = table.pages[start:stop]
            self.recorder.pages("unbind", table.pool, request.req, tag, pages, cause="left_window")
            self.pools[table.pool].free(request.req, tag, pages, "left_window")
        table.first, table.pages, table.tags = table.first + count, table.pages[count:], table.tags[count:]
        table.bound -= count

    def _give_back(self, request: Request, table: PageTable, cause: str) -> None:
        for tag, start, stop in reversed(list(tag_runs(table.tags))):
            self.pools[table.pool].free(request.req, tag, table.pages[start:stop], cause)


def token_capacity(pages: Mapping[str, int], page_tokens: int) -> int:
    """Tokens of the longest prompt that pools of so many usable pages can hold; a window that is whole holds any."""
    bounding = [
        count for name, count in pages.items() if not (name in WHOLE or (name == WINDOW and count >= WINDOW_PAGES))
    ]
    return min(bounding) * page_tokens


def granted(message: Iterable[Mapping[str, Any]]) -> tuple[PoolGrant, ...]:
    """The grants beside that of `kv` in a message."""
    return tuple(PoolGrant(one["pool"], one["tag"], np.array(one["pages"], np.int32), one["of"]) for one in message)


def told(grants: Iterable[PoolGrant]) -> list[dict[str, Any]]:
    """The inverse of `granted`."""
    return [{"pool": one.pool, "tag": one.tag, "pages": one.pages.tolist(), "of": one.pool_pages} for one in grants]


def sent(grant: Grant, request: Request) -> Iterator[tuple[PoolGrant, PageTable]]:
    """Pools that both ends have, with their pages at either."""
    for one in grant.others:
        if one.pool in request.others:
            yield one, request.others[one.pool]
