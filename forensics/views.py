"""Views: for each page and the tag under which it is read, the stretch of its history that a reader can tell.

Invariant: a view is a superset of every event that the verdict of one of its reads (or of a transfer that reads its page
as a source) rests on, and every event in it is in the page's history: what is left out is hidden from those reads by a
write of the whole page that none of it overlaps, or begins after they and the life of the tag are over, and is not under
the tag. So a read comes to the same verdict on its view as on the page's whole history.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forensics.content import EventRun
from forensics.laid_out import DENSE, NOWHERE, PAGE_BITS, Runs, page_number
from forensics.last_writes import Operations, last_writes
from forensics.life_table import UNTAGGED, LifeTable, Place
from forensics.ranking import distinct, order_of, places, ranked
from forensics.reading import SLOT, ReadRun
from forensics.rows import Ints, WorkerKey

WHOLE = -3
"""Stands for the tag of a view that is the whole history of its page."""
MOST = 8
"""Events in a view, on the average of a page (its own events spread over all its views, too); beyond it is viewed whole."""

NEVER, FOREVER = -2, 1 << 62
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Views:
    """One row per view, by place, tag and page: its `page`, `group` (as in `Touches`) and `tag`, its events [start, stop) of
    `event`, and (lo, hi) in seq.

    `event`: places in `Runs.event` by page and lo. `of_read`, `of_source`: the view of each of `Runs.read` and
    `Runs.source`. `life`, `event_life`: of each view and of each of `event`, its life's row in `LifeTable.columns` (-1: none).
    """

    page: Ints
    tag: Ints
    start: Ints
    stop: Ints
    lo: Ints
    hi: Ints
    event: Ints
    of_read: Ints
    of_source: Ints
    life: Ints
    event_life: Ints
    group: Ints


def source_views(runs: Runs, views: Views, touch: Ints) -> Ints:
    """The view that the bytes of each of `Runs.event` came from; NOWHERE where they came from none."""
    found = np.full(len(touch), NOWHERE, np.int64)
    at = np.flatnonzero(runs.has_source[runs.event.run[touch]])
    landed = touch[at]
    found[at] = views.of_source[runs.source.bounds[runs.event.run[landed]] + runs.event.index(landed)]
    return found


def views(runs: Runs, lives: LifeTable, *, page_by_page: bool = False) -> Views:
    """The views of every read and of every transfer's source; with `page_by_page`, every one whole."""
    count = len(runs.pages)
    touched = np.zeros(count, bool)
    touched[runs.read.group] = touched[runs.source.group] = True
    builder = _Builder(runs, lives)
    if page_by_page:
        return builder.views(touched)
    whole = touched & _needed_whole(runs)
    found = builder.views(whole)
    lengths = (found.stop - found.start).astype(np.float64)
    viewed = found.group
    repeated = np.bincount(viewed, weights=lengths, minlength=count)
    own = np.bincount(runs.event.group, minlength=count)
    excess = repeated > MOST * (np.bincount(viewed, minlength=count) + own)
    return builder.views(whole | excess) if excess.any() else found


def _needed_whole(runs: Runs) -> Mask:
    """Of each page: one request reads it under several tags, it stands beside those of another pool, or is a tier's."""
    number: dict[tuple[WorkerKey, int], int] = {}
    pools: dict[tuple[WorkerKey, int], set[str]] = defaultdict(set)
    for key, run in runs.reads:
        number.setdefault((key, run.read.req), len(number))
        if run.read.pool != SLOT:
            pools[key, run.read.req].add(run.read.pool)
    beside = {key for (key, _), named in pools.items() if len(named) > 1}
    is_whole = np.array([key[1] == 0 or (key in beside and pool != SLOT) for key, pool in runs.places], bool)
    needed = is_whole[runs.pages >> PAGE_BITS] if len(runs.places) else np.zeros(len(runs.pages), bool)
    needed[_read_again(runs, np.array([number[key, run.read.req] for key, run in runs.reads], np.int64))] = True
    return needed


def _read_again(runs: Runs, request_of: Ints) -> Ints:
    """Pages (groups) that one request (of each run of reads) reads under several tags."""
    known, tag_of = ranked(np.array([_tag(run) for _, run in runs.reads], np.int64))
    tags = distinct(request_of * max(len(known), 1) + tag_of) // max(len(known), 1)
    several = np.isin(request_of, tags[1:][tags[1:] == tags[:-1]])[runs.read.run]
    run, page = runs.read.run[several], runs.read.group[several]
    keys = request_of[run] * max(len(runs.pages), 1) + page
    order = order_of(keys)
    keys, page, tag = keys[order], page[order], tag_of[run][order]
    return page[1:][(keys[1:] == keys[:-1]) & (tag[1:] != tag[:-1])]


def _tag(run: ReadRun) -> int:
    return UNTAGGED if run.read.tag is None else run.read.tag


class _Seqs:
    """The places of seqs among all that occur."""

    def __init__(self, seqs: list[Ints]) -> None:
        known = distinct(np.concatenate([np.array([NEVER, -1, FOREVER], np.int64), *seqs]))
        self._known, self.count = known, len(known)
        self._beyond = int(known[-2]) + 1
        self._table: Ints | None = None
        if self._beyond < DENSE * (sum(len(one) for one in seqs) + 1):
            self._table = np.zeros(self._beyond - NEVER + 1, np.int64)
            self._table[np.minimum(known, self._beyond) - NEVER] = np.arange(len(known))

    def of(self, seqs: Ints) -> Ints:
        """The place of each, one of those that occur."""
        if self._table is None:
            return np.searchsorted(self._known, seqs)
        return self._table[np.minimum(seqs, self._beyond) - NEVER]


class _Builder:
    """Seqs as places among all that occur, so that (page, seq) is one number."""

    def __init__(self, runs: Runs, lives: LifeTable) -> None:
        self.runs, self.lives = runs, lives
        self.tags = _Tags(runs)
        self.los, self.his = _of_events(runs, lambda run: run.event.lo), _of_events(runs, lambda run: run.event.hi)
        self.src_lo, self.src_hi = (
            _of_events(runs, lambda run, name=name: getattr(run.event.source, name) if run.event.source else 0)  # type: ignore[misc]
            for name in ("lo", "hi")
        )
        self.s0 = np.array([run.read.s0 for _, run in runs.reads], np.int64)
        self.s1 = np.array(
            [run.read.passes[-1].seq if run.read.passes else run.read.s0 for _, run in runs.reads], np.int64
        )
        count = len(self.los)
        rank = np.empty(count, np.int64)
        rank[np.lexsort((np.arange(count), self.his, self.los))] = np.arange(count)
        self.order = order_of(runs.event.group * max(count, 1) + rank[runs.event.run])
        self.group, self.run = runs.event.group[self.order], runs.event.run[self.order]
        self.begin = np.searchsorted(self.group, np.arange(len(runs.pages) + 1))
        tags = _of_events(runs, lambda run: run.event.tag or 0)[self.run]
        bounds = np.searchsorted(runs.pages[self.group], np.arange(len(runs.places) + 1) << PAGE_BITS)
        self.event_life = self._lives(bounds, self.group, tags)
        columns = lives.columns
        self.seqs = _Seqs(
            [self.los, self.his, self.s0, self.s1, self.src_lo, self.src_hi, columns.reserve_seq, columns.end_seq]
        )

    def views(self, whole: Mask) -> Views:
        """See `Views`; of the pages (groups) in `whole`, whole ones."""
        runs, count = self.runs, len(self.runs.pages)
        tags = self.tags
        rank = np.concatenate([tags.of_reads[runs.read.run], tags.of_sources[runs.source.run]])
        groups = np.concatenate([runs.read.group, runs.source.group])
        is_whole = whole[groups]
        if is_whole.any():
            rank[is_whole] = tags.of_whole[runs.pages[groups[is_whole]] >> PAGE_BITS]
        keys, of_key = ranked(rank * max(count, 1) + groups)
        rank, group = np.divmod(keys, max(count, 1))
        of_read, of_source = np.split(of_key, [len(runs.read.run)])
        first, last = self._span(of_read, of_source, len(keys))
        tag = tags.tag[rank]
        bounds = np.searchsorted(rank, np.searchsorted(tags.place, np.arange(len(runs.places) + 1)))
        life = self._lives(bounds, group, tag)
        start, stop, lo, hi = self._stretch(group, first, last, life)
        start, stop = self._with_own(keys, start, stop)
        is_whole = whole[group]
        return Views(
            runs.pages[group], tag, np.where(is_whole, self.begin[group], start),
            np.where(is_whole, self.begin[group + 1], stop), np.where(is_whole, NEVER, lo), np.where(is_whole, FOREVER, hi),
            self.order, of_read, of_source, life, self.event_life, group,
        )  # fmt: skip

    def _span(self, of_read: Ints, of_source: Ints, count: int) -> tuple[Ints, Ints]:
        """Per view, where its earliest reader begins and its last ends."""
        first, last = np.full(count, FOREVER, np.int64), np.full(count, -1, np.int64)
        for of, begin, end in (
            (of_read, self.s0[self.runs.read.run], self.s1[self.runs.read.run]),
            (of_source, self.src_lo[self.runs.source.run], self.src_hi[self.runs.source.run]),
        ):
            np.minimum.at(first, of, begin)
            np.maximum.at(last, of, end)
        return first, last

    def _lives(self, bounds: Ints, group: Ints, tag: Ints) -> Ints:
        """The row in `LifeTable.columns` of each page's life under `tag`; -1 where no row speaks of it. Those of place p
        are [bounds[p], bounds[p + 1])."""
        pages = page_number(self.runs.pages[group])
        found = np.full(len(group), -1, np.int64)
        for place, first, last in zip(self.runs.places, bounds.tolist(), bounds.tolist()[1:], strict=False):
            if first < last:
                found[first:last] = self.lives.rows(place, tag[first:last], pages[first:last])
        return found

    def _stretch(self, group: Ints, first: Ints, last: Ints, life: Ints) -> tuple[Ints, Ints, Ints, Ints]:
        """(start, stop, lo, hi) of each view: back to the last write of the whole page, or to the tag's reserve before it."""
        width, of = self.seqs.count + 1, self.seqs.of
        columns, is_known = self.lives.columns, life >= 0
        reserve, end = np.full(len(group), FOREVER, np.int64), np.full(len(group), -1, np.int64)
        reserve[is_known], end[is_known] = columns.reserve_seq[life[is_known]], columns.end_seq[life[is_known]]
        starts, ends = (self.group * width + of(of_run)[self.run] for of_run in (self.los, self.his))
        firm, covers = self._kinds()
        never = self.group * width + of(np.array([NEVER], np.int64))[0]
        reached = np.maximum.accumulate(np.where(firm, ends, never)) if len(self.run) else ends
        before = np.r_[-1, reached[:-1]][: len(reached)]
        # `before` of an earlier page is less than any number of this one.
        walls = np.flatnonzero(firm & covers & (before <= starts))
        lo = np.full(len(group), NEVER, np.int64)
        wall = self._last_wall(walls, group, of(first))
        is_bound = wall >= 0
        lo[is_bound] = np.minimum(self.los[wall[is_bound]], reserve[is_bound])
        hi = np.maximum(last, end)
        longest = np.maximum.accumulate(ends) if len(self.run) else ends
        # What is placed at one seq alone begins and ends there, and belongs to the view that begins with it.
        start = np.searchsorted(longest, group * width + of(np.minimum(lo, reserve)), "left")
        start = np.maximum(start, self.begin[group])
        stop = np.searchsorted(starts, group * width + of(hi), "left")
        return start, np.maximum(stop, start), lo, hi

    def _last_wall(self, walls: Ints, group: Ints, first: Ints) -> Ints:
        """The run of the last of `walls` that ended before each view's `first` (a place of a seq); -1: none."""
        is_wall = np.zeros(len(self.run), bool)
        is_wall[self.order[walls]] = True
        touches = np.flatnonzero(is_wall)  # run by run, as they are laid out
        run = self.runs.event.run[touches]
        writes = _operations(run, self.seqs.of(self.his)[run], self.runs.event.group[touches])
        found = last_writes(writes, _operations(first, first, group), len(self.runs.pages))
        return np.where(found >= 0, run[found] if len(run) else found, found)

    def _kinds(self) -> tuple[Mask, Mask]:
        """Of each event: it is no ghost; it is one of the whole page."""
        runs = self.runs.events
        most: dict[Place, int] = defaultdict(int)
        for place, tok_hi in (
            *((run.event.page[:2], run.event.tok_hi) for run in runs),
            *(((key, run.read.pool), run.read.tok_hi) for key, run in self.runs.reads),
            *((run.event.source.page[:2], run.event.tok_hi) for run in runs if run.event.source),
        ):
            most[place] = max(most[place], tok_hi)
        firm = np.array([run.event.kind != "ghost" for run in runs], bool)
        covers = np.array(
            [
                run.event.parts == 1 and run.event.tok_lo == 0 and run.event.tok_hi >= most[run.event.page[:2]]
                for run in runs
            ],
            bool,
        )
        return firm[self.run], covers[self.run]

    def _with_own(self, keys: Ints, start: Ints, stop: Ints) -> tuple[Ints, Ints]:
        """Stretched to every event under the view's own tag."""
        rank = self.tags.of_events[self.run]
        at = np.flatnonzero(rank >= 0)
        if not len(keys) or not len(at):
            return start, stop
        wanted = rank[at] * len(self.runs.pages) + self.group[at]
        view = np.minimum(places(keys, wanted), len(keys) - 1)
        is_there = keys[view] == wanted
        own, view = at[is_there], view[is_there]
        np.minimum.at(start, view, own)
        np.maximum.at(stop, view, own + 1)
        return start, stop


class _Tags:
    """The tags under which pages are read, by place: `place`, `tag` of each; which one each run has (-1: none of them)."""

    def __init__(self, runs: Runs) -> None:
        reads = [(runs.place((key, run.read.pool)), _tag(run)) for key, run in runs.reads]
        sources = [
            (runs.place(run.event.source.page[:2]), _source_tag(run)) if run.event.source else (NOWHERE, 0)
            for run in runs.events
        ]
        whole = [(place, WHOLE) for place in range(len(runs.places))]
        named = sorted({*reads, *sources, *whole})
        rank = {pair: number for number, pair in enumerate(named)}
        self.place, self.tag = np.array(named, np.int64).reshape(-1, 2).T
        events = [rank.get((runs.place(run.event.page[:2]), run.event.tag or 0), -1) for run in runs.events]
        self.of_reads, self.of_sources, self.of_whole, self.of_events = (
            np.array(one, np.int64)
            for one in (
                [rank[pair] for pair in reads],
                [rank[pair] for pair in sources],
                [rank[pair] for pair in whole],
                events,
            )
        )


def _operations(of: Ints, seq: Ints, page: Ints) -> Operations:
    """What lies together and has one number in `of` is one operation."""
    begin = np.flatnonzero(np.r_[True, of[1:] != of[:-1]]) if len(of) else of
    return Operations(seq[begin], np.r_[begin, len(of)], page)


def _source_tag(run: EventRun) -> int:
    source = run.event.source
    return 0 if source is None else WHOLE if source.tag is None else source.tag


def _of_events(runs: Runs, value: Callable[[EventRun], int]) -> Ints:
    return np.array([value(run) for run in runs.events], np.int64)
