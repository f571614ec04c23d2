"""What passes of one worker touch beside the `kv` pages of its first rank: other components, ranks and parts of pages.

Invariant: as of `engine.simulation.executor`: a pass writes its slots and reads its table when it begins, and what it
finds is judged by bytes alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from engine.components import STATE, WHOLE
from engine.executor import DecodeWork, PoolWork, PrefillWork, TagMismatch
from engine.request import PageTable, Request
from engine.simulation.memory import PageStore, Write
from engine.simulation.people import People
from engine.simulation.reading import (
    Filled,
    Reader,
    contents_at,
    look,
    mismatches,
    no_slots,
    one_slot_each,
    own_contents,
)
from engine.simulation.truth import SimTruth
from engine.simulation.world import Task

Work = PrefillWork | DecodeWork
NOTHING = np.zeros(0, np.int64)


@dataclass
class Growth:
    """What one decode run fills: a slot a pass of each of `pages` int32 [n], from `lo` int64 [n] on."""

    pages: np.ndarray
    lo: np.ndarray
    stamps: np.ndarray
    contents: np.ndarray
    tags: np.ndarray
    tainted: np.ndarray


@dataclass
class Plane:
    """One pool in the memory of one rank, of its pages one part, and who reads in it. Tags are by `shift` more than those
    of the first rank. `rank` None: the worker has one."""

    pool: str
    store: PageStore
    truth: SimTruth
    rank: int | None = None
    part: int = 0
    shift: int = 0
    readers: dict[int, Reader] = field(default_factory=dict)  # bound in the last decode run, by stamp
    growth: Growth | None = None


class Planes:
    """Every plane of one worker; none in most."""

    def __init__(self, task: Task, people: People, planes: Sequence[Plane] = ()) -> None:
        self._task, self._people, self._planes = task, people, tuple(planes)
        for plane in self._planes:
            plane.store.changed = self._changed_in(plane)
            plane.store.approached = self._approached_in(plane)
            plane.store.landed = self._landed_in(plane)

    def __bool__(self) -> bool:
        return bool(self._planes)

    def __iter__(self) -> Iterator[Plane]:
        return iter(self._planes)

    def prefill(self, work: PrefillWork, check: bool, step: int, now: int) -> tuple[TagMismatch, ...]:
        """A chunk's bytes, now that its pass ends, and what it found where it read."""
        person, wrong = self._people[work.stamp], []
        for plane, one in self._touched(work):
            size = plane.store.page_tokens
            known = NOTHING if one.pool in WHOLE else person.contents(size)
            first, stop = one.lo // size, -(-one.hi // size)
            contents = contents_at(work.stamp, known, one.first + first, one.first + stop)
            tainted = person.tainted_since is not None
            plane.store.write(
                Write(
                    one.pages[first:stop], one.lo % size, one.hi - one.lo, work.stamp, contents, one.tags[first:stop],
                    tainted,
                ),
                now,
            )  # fmt: skip
            reader = Reader(work.stamp, known, one.pages, one.tags, first=one.first)
            wrong += self._look(plane, reader, one.reads, check, step, now) if one.reads else []
        return tuple(wrong)

    def bind(self, works: Sequence[DecodeWork]) -> None:
        """Keep track of who reads which pages."""
        before = [plane.readers for plane in self._planes]
        for plane in self._planes:
            plane.readers = {}
        for work in works:
            for plane, one in self._touched(work):
                size = plane.store.page_tokens
                known = NOTHING if one.pool in WHOLE else self._people[work.stamp].contents(size)
                plane.store.readers[one.pages] += 1
                plane.readers[work.stamp] = Reader(work.stamp, known, one.pages, one.tags, first=one.first)
        for plane, readers in zip(self._planes, before, strict=True):
            for stamp, old in readers.items():
                plane.store.readers[old.pages] -= 1
                new = plane.readers.get(stamp)
                if new is not None and not old.stale and np.array_equal(old.pages, new.pages):
                    new.look(old.looked_us, old.until_us)

    def forget(self, stamp: int) -> None:
        """A request's tables are read no more."""
        for plane in self._planes:
            reader = plane.readers.pop(stamp, None)
            if reader is not None:
                plane.store.readers[reader.pages] -= 1

    def read(
        self, work: DecodeWork, check: bool, step: int, until: int, batch: Sequence[DecodeWork]
    ) -> tuple[TagMismatch, ...]:
        """Look at what one request's pass, which ends at `until`, finds, where it can have changed since its last one."""
        wrong = []
        for plane, one in self._touched(work):
            reader = plane.readers[work.stamp]
            if reader.stale:
                reader.look(self._task.world.now, until)
                now = self._task.world.now
                wrong += self._look(plane, reader, one.reads, check, step, now, partial(self._filled, plane, batch))
        return tuple(wrong)

    def accept(self, request: Request, table: PageTable, step: int, check: bool) -> tuple[TagMismatch, ...]:
        """Read a slot, unless its header is wrong and that is checked."""
        now, wrong = self._task.world.now, []
        for plane in self._planes:
            if plane.pool == table.pool:
                reader = Reader(request.stamp, NOTHING, table.pages, table.tags + plane.shift)
                size = plane.store.page_tokens
                plane.store.settle(table.pages, now)
                found = self._mismatches(plane, reader, size) if check else []
                if not found:
                    found_now = look(plane.store, reader, size, now)
                    plane.truth.read(found_now, request.stamp, step, now, plane.pool, plane.part)
                wrong += found
        return tuple(wrong)

    def begin(self, works: Sequence[DecodeWork]) -> None:
        """A decode run over `works` begins: one slot of each a pass."""
        self.end()
        touched: dict[int, list[tuple[DecodeWork, PoolWork]]] = {}
        for work in works:
            for plane, one in self._touched(work):
                touched.setdefault(id(plane), []).append((work, one))
        for plane in self._planes:
            if id(plane) in touched:
                plane.growth = self._growth(plane, touched[id(plane)])

    def end(self) -> None:
        """The run under way has ended."""
        for plane in self._planes:
            plane.growth = None

    def grow(self, done: int, fresh: int, now: int) -> None:
        """`fresh` more passes of the run have begun, after `done`."""
        for plane in self._planes:
            one = plane.growth
            if one is None:
                continue
            if plane.pool == STATE:
                self._rewrite(plane.store, one, now)
            else:
                plane.store.grow(one.pages, one.lo + done, fresh, one.stamps, one.contents, one.tags, one.tainted, now)

    def copy(self, src_pool: str, src_pages: np.ndarray, dst_pool: str, dst_pages: np.ndarray, dst_tag: int) -> None:
        """The same copy as in the first part of the first rank, in the others."""
        now = self._task.world.now
        sources = {(plane.rank, plane.part): plane.store for plane in self._planes if plane.pool == src_pool}
        for plane in self._planes:
            source = sources.get((plane.rank, plane.part))
            if plane.pool == dst_pool and source is not None and (plane.rank or plane.part):
                source.settle(src_pages, now)
                plane.store.settle(dst_pages, now)
                plane.store.put(dst_pages, source.image(src_pages), dst_tag + plane.shift, source.tokens[src_pages])

    def first(self) -> dict[str, PageStore]:
        """The pools beside `kv` of the first rank, of their pages the first part."""
        return {plane.pool: plane.store for plane in self._planes if not (plane.rank or plane.part)}

    def write(self, pool: str, write: Write, now: int) -> None:
        """Somebody writes to every rank and part of a pool that is here."""
        for plane in self._planes:
            if plane.pool == pool:
                plane.store.write(replace(write, tag=write.tag + plane.shift), now)

    def scrub(self, pool: str, pages: np.ndarray) -> None:
        """Zero pages."""
        for plane in self._planes:
            if plane.pool == pool:
                plane.store.zero(pages, self._task.world.now)

    def _touched(self, work: Work) -> Iterator[tuple[Plane, PoolWork]]:
        given = {one.pool: one for one in (*work.others, _main(work))}
        for plane in self._planes:
            one = given.get(plane.pool)
            if one is not None:
                yield plane, (one if not plane.shift else replace(one, tags=one.tags + plane.shift))

    def _growth(self, plane: Plane, touched: list[tuple[DecodeWork, PoolWork]]) -> Growth:
        size = plane.store.page_tokens
        at = [one.lo // size for _, one in touched]
        stamps = np.array([work.stamp for work, _ in touched], np.int64)
        places = np.array([one.first + i for (_, one), i in zip(touched, at, strict=True)], np.int64)
        return Growth(
            np.array([one.pages[i] for (_, one), i in zip(touched, at, strict=True)], np.int32),
            np.array([one.lo % size for _, one in touched], np.int64),
            stamps,
            own_contents(stamps, places),
            np.array([one.tags[i] for (_, one), i in zip(touched, at, strict=True)], np.int64),
            np.array([self._people[work.stamp].tainted_since is not None for work, _ in touched], np.bool_),
        )

    @staticmethod
    def _rewrite(store: PageStore, growth: Growth, now: int) -> None:
        """Whole pages in place."""
        pages = growth.pages
        store.settle(pages, now)
        store.race(pages)
        for i in range(len(pages)):
            part = slice(i, i + 1)
            store.fill(pages[part], int(growth.stamps[i]), growth.contents[part], bool(growth.tainted[i]))
        store.tag[pages], store.tokens[pages] = growth.tags, store.page_tokens
        if store.readers[pages].max(initial=0) > 1:
            store.tell(pages)

    def _filled(self, plane: Plane, works: Sequence[DecodeWork]) -> Filled:
        """What a decode pass over `works` writes in a plane, but for states, which it rewrites as a whole once it has read them."""
        if plane.pool == STATE:
            return no_slots()
        size = plane.store.page_tokens
        ones = [one for work in works for at, one in self._touched(work) if at is plane]
        return one_slot_each([int(one.pages[one.lo // size]) for one in ones], [one.lo % size for one in ones])

    def _look(
        self, plane: Plane, reader: Reader, tokens: int, check: bool, step: int, now: int,
        filling: Callable[[], Filled] = no_slots,
    ) -> list[TagMismatch]:  # fmt: skip
        found = look(plane.store, reader, tokens, now, filling)
        plane.truth.read(found, reader.stamp, step, now, plane.pool, plane.part)
        return self._mismatches(plane, reader, tokens) if check else []

    @staticmethod
    def _mismatches(plane: Plane, reader: Reader, tokens: int) -> list[TagMismatch]:
        return [
            TagMismatch(
                int(reader.pages[i]),
                i,
                int(reader.tags[i]),
                int(plane.store.tag[reader.pages[i]]),
                plane.pool,
                plane.rank,
            )
            for i in mismatches(plane.store, reader, tokens)
        ]

    def _changed_in(self, plane: Plane) -> Callable[[np.ndarray], None]:
        """Bytes came to bound pages: their readers look again at their next pass, and that is to be soon."""

        def changed(pages: np.ndarray) -> None:
            touched = set(pages.tolist())
            for reader in plane.readers.values():
                reader.stale |= not touched.isdisjoint(reader.pages.tolist())
            self._task.call()

        return changed

    @staticmethod
    def _landed_in(plane: Plane) -> Callable[[np.ndarray], None]:
        """Where the run under way writes its first slots of a page, nobody can tell from outside what came last."""

        def landed(pages: np.ndarray) -> None:
            growth = plane.growth
            if growth is not None:
                first = np.isin(growth.pages, pages) & ((growth.lo == 0) | (plane.pool == STATE))
                plane.store.slots["racy"][growth.pages[first]] = True

        return landed

    def _approached_in(self, plane: Plane) -> Callable[[np.ndarray], None]:
        """What the pass under way found on pages to which a flight sets out, nobody can tell from outside."""

        def approached(pages: np.ndarray) -> None:
            for reader in plane.readers.values():
                if near := reader.torn_by(pages, self._task.world.now):
                    plane.truth.tear(reader.stamp, reader.looked_us, near, plane.pool, plane.part)

        return approached


def _main(work: Work) -> PoolWork:
    """What a pass does in `kv`, as of another pool."""
    if isinstance(work, PrefillWork):
        stop = work.start + len(work.tokens)
        return PoolWork("kv", 0, work.pages, work.tags, work.start, stop, stop)
    return PoolWork("kv", 0, work.pages, work.tags, work.position, work.position + 1, work.position)
