"""The executor of virtual time: a cost model in place of a model, and eyes for what really lies in the pages.

Invariant: a pass writes its slots and reads its table at the moment it begins. A run of passes is cut at the end of
the pass in which anything comes in that the next one must not miss: a message, or bytes on a page that is bound.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from engine.executor import DecodeRun, DecodeWork, PassResult, PrefillWork, TagMismatch
from engine.simulation.clock import VirtualClock
from engine.simulation.cost import CostModel
from engine.simulation.headers import HeaderStore
from engine.simulation.memory import PageStore, Write
from engine.simulation.people import NO_PAGES, People
from engine.simulation.planes import Planes
from engine.simulation.reading import Filled, Reader, contents_at, look, mismatches, one_slot_each, own_contents
from engine.simulation.truth import SimTruth
from engine.simulation.world import Task

NOTHING_WRONG = PassResult(0)
COPY_BYTES_PER_US = 20_000
"""Between device and host memory."""


class SimExecutor:
    """See `Executor`. `task` is the worker's; its passes take the task's time."""

    def __init__(
        self, task: Task, clock: VirtualClock, store: PageStore, costs: CostModel, people: People, truth: SimTruth,
        page_bytes: int = 0, host: PageStore | None = None, planes: Planes | None = None,
    ) -> None:  # fmt: skip
        self._task, self._clock, self._store, self._costs = task, clock, store, costs
        self._people, self._truth = people, truth
        self._stores = {"kv": store} | ({"host": host} if host is not None else {})
        self._page_bytes, self._planes = page_bytes, planes or Planes(task, people)
        self._stores |= self._planes.first()
        self._readers: dict[int, Reader] = {}  # bound in the last decode run, by stamp
        self._growing = _Growing.nothing()
        self.lasts_us: int | None = None
        """How long the next pass takes, where a script says so; it is then a run of its own."""
        self.began: Callable[[], None] = lambda: None
        """Called when a scripted pass begins."""
        self._forgot = False  # whether a table has been forgotten since the last run
        for each in (store, *(plane.store for plane in self._planes)):
            each.before_change = self._grow
        store.changed, store.approached, store.landed = self._changed, self._approached, self._landed

    def prefill(
        self, works: Sequence[PrefillWork], *, check_tags: bool, step: int, before_write: Callable[[], None]
    ) -> list[PassResult]:
        """See `Executor`. Everything lands when the pass ends."""
        world = self._task.world
        tokens, context = sum(len(work.tokens) for work in works), max(work.start for work in works)
        scripted = self._scripted()
        self._task.work(world.now + (scripted or self._costs.prefill_us(tokens, context)))
        before_write()
        return [self._prefill(work, check_tags, step) for work in works]

    def _prefill(self, work: PrefillWork, check: bool, step: int) -> PassResult:
        """A chunk's bytes are there when its pass ends, and not before."""
        now, size = self._task.world.now, self._store.page_tokens
        person, first, stop = self._people[work.stamp], work.start // size, work.start + len(work.tokens)
        known = self._contents(work.stamp)
        contents = known if self._store.headers_only else contents_at(work.stamp, known, first, len(work.pages))
        self._store.write(
            Write(
                work.pages[first:], work.start % size, len(work.tokens), work.stamp, contents, work.tags[first:],
                person.tainted_since is not None,
            ),
            now,
        )  # fmt: skip
        reader = Reader(work.stamp, known, work.pages, work.tags)
        self._truth.read(look(self._store, reader, stop, now), work.stamp, step, now)
        wrong = self._check(reader, stop) if check else ()
        return PassResult(0, wrong + self._planes.prefill(work, check, step, now) if self._planes else wrong)

    def decode(
        self, works: Sequence[DecodeWork], *, check_tags: bool, step: int, passes: int = 1, until_us: int = 0
    ) -> DecodeRun:
        """See `Executor`."""
        world, start = self._task.world, self._task.world.now
        stale = self._bind(works)
        context = sum([work.position for work in works]) + len(works)
        found: list[tuple[TagMismatch, ...]] = [()] * len(works)
        if stale or self._planes:
            until = start + (self.lasts_us or self._costs.decode_run_us(len(works), context, 1))
            found = [self._read(work, step, check_tags, until, works) for work in works]
            if self._planes:
                found = [
                    wrong + self._planes.read(work, check_tags, step, until, works)
                    for wrong, work in zip(found, works, strict=True)
                ]
                self._planes.begin(works)
        failed = any(found)
        budget = max(self._clock.true_us(until_us) - start, 0)
        passes = 1 if failed else self._costs.decode_passes_within(len(works), context, budget, passes - 1) + 1
        scripted = self._scripted()
        passes = 1 if scripted else passes
        growing = self._growing = _Growing.of(works, passes, start, self._people, self._costs, context, self._store)
        growing.lasts_us = scripted
        if self._task.wait(growing.ends(passes)):
            growing.passes = min(passes, growing.begun(world.now))
            self._task.call()  # what called is still to be heard
            self._task.work(growing.ends(growing.passes))
        self._grow()
        self._growing = _Growing.nothing()
        self._planes.end()
        last = growing.ends(growing.passes - 1)
        results = [PassResult(0, wrong) for wrong in found] if failed else [NOTHING_WRONG] * len(works)
        return DecodeRun(results, growing.passes, self._clock.now_us() - (world.now - last))

    def copy(self, src_pool: str, src_pages: np.ndarray, dst_pool: str, dst_pages: np.ndarray, dst_tag: int) -> int:
        """See `Executor`."""
        world, source, target = self._task.world, self._stores[src_pool], self._stores[dst_pool]
        count = len(src_pages) * self._page_bytes
        self._task.work(world.now + count // COPY_BYTES_PER_US)
        source.settle(src_pages, world.now)
        target.settle(dst_pages, world.now)
        target.put(dst_pages, source.image(src_pages), dst_tag, source.tokens[src_pages])
        if self._planes:
            self._planes.copy(src_pool, src_pages, dst_pool, dst_pages, dst_tag)
        return count

    def scrub(self, pages: np.ndarray) -> None:
        """See `Executor`."""
        self._store.zero(pages, self._task.world.now)
        self._planes.scrub("kv", pages)

    def _contents(self, stamp: int) -> np.ndarray:
        """What the full pages of a request's prompt hold, int64; nothing where no content is kept."""
        return NO_PAGES if self._store.headers_only else self._people[stamp].contents(self._store.page_tokens)

    def _scripted(self) -> int | None:
        lasts, self.lasts_us = self.lasts_us, None
        if lasts is not None:
            self.began()
        return lasts

    def passed(self, stamp: int) -> tuple[int, int]:
        """Passes of the run under way that a request has had by now, and when the last of them ended (true time)."""
        growing, now = self._growing, self._task.world.now
        if stamp not in growing.stamps:
            return 0, now
        passes = min(growing.passes, growing.begun(now) - 1)
        return passes, growing.ends(passes)

    def forget(self, stamp: int) -> None:
        """See `Executor`."""
        reader = self._readers.pop(stamp, None)
        if reader is not None:
            self._store.readers[reader.pages] -= 1
            self._forgot = True
        if self._planes:
            self._planes.forget(stamp)

    def _bind(self, works: Sequence[DecodeWork]) -> bool:
        """Keep track of who reads which pages; whether any of them is to look at its table again."""
        readers, changed, stale = self._readers, self._forgot, False
        for work in works:
            reader = readers.get(work.stamp)
            if reader is None:
                reader = readers[work.stamp] = Reader(work.stamp, self._contents(work.stamp))
            if len(reader.pages) < len(work.pages):
                changed = True
                fresh = work.pages[len(reader.pages) :]
                self._store.readers[fresh] += 1
                reader.stale |= len(reader.pages) == 0 or max(self._store.readers[fresh].tolist()) > 1
                reader.pages, reader.tags = work.pages, work.tags
            stale |= reader.stale
        if len(readers) > len(works):
            changed = True
            for stamp in readers.keys() - {work.stamp for work in works}:
                self._store.readers[readers.pop(stamp).pages] -= 1
        self._forgot = False
        if changed and self._planes:
            self._planes.bind(works)
        return stale

    def _read(
        self, work: DecodeWork, step: int, check: bool, until: int, batch: Sequence[DecodeWork]
    ) -> tuple[TagMismatch, ...]:
        """Look at what one request's pass, which ends at `until`, finds, where it can have changed since its last one."""
        reader = self._readers[work.stamp]
        if not reader.stale:
            return ()
        reader.look(self._task.world.now, until)
        found = look(self._store, reader, work.position, self._task.world.now, lambda: self._filled(batch))
        self._truth.read(found, work.stamp, step, self._task.world.now)
        return self._check(reader, work.position) if check else ()

    def _filled(self, works: Sequence[DecodeWork]) -> Filled:
        size = self._store.page_tokens
        return one_slot_each(
            [int(work.pages[work.position // size]) for work in works], [work.position % size for work in works]
        )

    def _check(self, reader: Reader, kv_tokens: int) -> tuple[TagMismatch, ...]:
        return tuple(
            TagMismatch(int(reader.pages[i]), i, int(reader.tags[i]), int(self._store.tag[reader.pages[i]]))
            for i in mismatches(self._store, reader, kv_tokens)
        )

    def _grow(self) -> None:
        """Bring the slots of the run under way up to the pass that has begun by now."""
        growing, now = self._growing, self._task.world.now
        fresh = growing.due(now) - growing.done
        if fresh > 0:
            done, growing.done = growing.done, growing.done + fresh
            lo, store = [first + done for first in growing.lo], self._store
            if isinstance(store, HeaderStore):
                store.fill_slots(growing.pages, lo, fresh, growing.tags, now)
            else:
                store.grow(
                    np.array(growing.pages, np.int32), np.array(lo, np.int64), fresh, np.array(growing.stamps, np.int64),
                    growing.contents, np.array(growing.tags, np.int64), growing.tainted, now,
                )  # fmt: skip
            if self._planes:
                self._planes.grow(done, fresh, now)

    def _changed(self, pages: np.ndarray) -> None:
        """Bytes came to bound pages: their readers look again at their next pass, and that is to be soon."""
        touched = set(pages.tolist())
        for reader in self._readers.values():
            reader.stale |= not touched.isdisjoint(reader.pages.tolist())
        self._task.call()

    def _landed(self, pages: np.ndarray) -> None:
        """Where the run under way writes its first slots of a page, nobody can tell from outside what came last."""
        growing = self._growing
        if growing.passes and not self._store.headers_only:
            touched = set(pages.tolist())
            for page, lo in zip(growing.pages, growing.lo, strict=True):
                if lo == 0 and page in touched:
                    self._store.slots["racy"][page] = True

    def _approached(self, pages: np.ndarray) -> None:
        """What the pass under way found on pages to which a flight sets out, nobody can tell from outside."""
        for reader in self._readers.values():
            if near := reader.torn_by(pages, self._task.world.now):
                self._truth.tear(reader.stamp, reader.looked_us, near)


class _Growing:
    """The slots that one decode run fills."""

    def __init__(
        self, pages: Sequence[int], lo: Sequence[int], stamps: Sequence[int], contents: np.ndarray,
        tags: Sequence[int], tainted: np.ndarray, passes: int, start: int, costs: CostModel | None, context: int,
    ) -> None:  # fmt: skip
        self.pages, self.lo, self.stamps, self.contents = pages, lo, stamps, contents
        self.tags, self.tainted = tags, tainted
        self.passes, self.done = passes, 0
        self.lasts_us: int | None = None
        self._start, self._costs, self._context = start, costs, context
        self._ends: dict[int, int] = {}  # by passes

    @classmethod
    def nothing(cls) -> _Growing:
        """No run is under way."""
        return cls((), (), (), NO_PAGES, (), NO_PAGES, 0, 0, None, 0)

    @classmethod
    def of(
        cls, works: Sequence[DecodeWork], passes: int, start: int, people: People, costs: CostModel, context: int,
        store: PageStore,
    ) -> _Growing:  # fmt: skip
        """The slots of `works`: one page each."""
        size = store.page_tokens
        at = [work.position // size for work in works]
        stamps = [work.stamp for work in works]
        pages = [int(work.pages[i]) for work, i in zip(works, at, strict=True)]
        lo = [work.position % size for work in works]
        tags = [int(work.tags[i]) for work, i in zip(works, at, strict=True)]
        if store.headers_only:
            return cls(pages, lo, stamps, NO_PAGES, tags, NO_PAGES, passes, start, costs, context)
        contents = own_contents(np.array(stamps, np.int64), np.array(at, np.int64))
        tainted = np.array([people[work.stamp].tainted_since is not None for work in works], np.bool_)
        return cls(pages, lo, stamps, contents, tags, tainted, passes, start, costs, context)

    def ends(self, passes: int) -> int:
        """When that many passes have ended (true time)."""
        if self._costs is None or passes <= 0:
            return self._start
        if self.lasts_us is not None:
            return self._start + self.lasts_us * passes
        if passes not in self._ends:
            self._ends[passes] = self._start + self._costs.decode_run_us(len(self.pages), self._context, passes)
        return self._ends[passes]

    def due(self, now: int) -> int:
        """Passes of this run that have begun by now."""
        if self.passes <= 1 or now >= self.ends(self.passes - 1):
            return self.passes
        return min(self.passes, self.begun(now))

    def begun(self, now: int) -> int:
        """Passes that have begun by now, those behind the run's last as if it went on."""
        if self._costs is None:
            return 0
        if now >= self.ends(self.passes):
            return self.passes + 1
        if self.lasts_us is not None:
            return (now - self._start) // self.lasts_us + 1
        return self._costs.decode_passes_within(len(self.pages), self._context, now - self._start) + 1
