"""Views: for each page and the tag under which it is read, the stretch of its history that a reader can tell.

Invariant: a view is a superset of every event that the verdict of one of its reads (or of a transfer that reads its page
as a source) rests on, and every event in it is in the page's history: what is left out is hidden from those reads by a
write of the whole page that none of it overlaps, or begins after they and the life of the tag are over, and is not under
the tag. So a read comes to the same verdict on its view as on the page's whole history.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from forensics.content import EventRun
from forensics.life_table import UNTAGGED, LifeTable, Place
from forensics.reading import SLOT, ReadRun
from forensics.rows import Ints, WorkerKey

WHOLE = -3
"""Stands for the tag of a view that is the whole history of its page."""
MOST = 8
"""Events in a view, on the average of a page (its own events spread over all its views, too); beyond it is viewed whole."""

NOWHERE = -1
FOREVER = 1 << 62
PAGE_BITS = 32

DENSE = 64
"""Numbers of pages that are looked up in a table: up to so many for each page that is there."""

Mask = NDArray[np.bool_]


def page_number(pages: Ints) -> Ints:
    """The number of each page (as in `Touches`) in its pool."""
    return pages & ((1 << PAGE_BITS) - 1)


@dataclass(frozen=True)
class Touches:
    """Every page that runs touch, one by one: `run`, `index` (place in the run), and `page` as place << 32 + page."""

    run: Ints
    index: Ints
    page: Ints


class Runs:
    """The runs of a ledger with numbers for their places and tags, and their pages laid out."""

    def __init__(self, events: list[EventRun], reads: list[tuple[WorkerKey, ReadRun]]) -> None:
        self.events, self.reads = events, reads
        self.places: list[Place] = []
        self._ids: dict[Place, int] = {}
        of_events = [self.place(run.event.page[:2]) for run in events]
        of_reads = [self.place((key, run.read.pool)) for key, run in reads]
        of_sources = [
            NOWHERE if run.event.source is None or run.sources is None else self.place(run.event.source.page[:2])
            for run in events
        ]
        self.event = _laid_out(of_events, [run.pages for run in events])
        self.read = _laid_out(of_reads, [run.pages for _, run in reads])
        self.has_source = np.array(of_sources, np.int64) != NOWHERE
        empty = np.empty(0, np.int64)
        lists = [
            empty if at == NOWHERE or run.sources is None else run.sources[run.index]
            for at, run in zip(of_sources, events, strict=True)
        ]
        self.source = _laid_out(of_sources, lists)

    def place(self, place: Place) -> int:
        """The number of a place."""
        if place not in self._ids:
            self._ids[place] = len(self.places)
            self.places.append(place)
        return self._ids[place]


def _laid_out(places: list[int], lists: Sequence[Ints]) -> Touches:
    lengths = [len(pages) for pages in lists]
    run = np.repeat(np.arange(len(lists)), lengths)
    pages = np.concatenate([np.empty(0, np.int64), *lists])
    index = np.arange(len(run)) - np.repeat(np.cumsum([0, *lengths])[:-1], lengths)
    return Touches(run, index, (np.repeat(np.array(places, np.int64), lengths) << PAGE_BITS) + pages)


@dataclass(frozen=True)
class Views:
    """One row per view: its `page` (as in `Touches`) and `tag`, its events [start, stop) of `event`, and (lo, hi) in seq.

    `event`: places in `Runs.event` by page and lo. `of_read`, `of_source`: the view of each of `Runs.read` and
    `Runs.source`. `life`: per view and (`event_life`) per `event`, the row of its life in the lives of its place; -1: none.
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


def views(runs: Runs, lives: LifeTable, *, page_by_page: bool = False) -> Views:
    """The views of every read and of every transfer's source; with `page_by_page`, every one whole."""
    if page_by_page:
        return _Builder(runs, lives, np.concatenate([runs.read.page, runs.source.page])).views()
    whole = _needed_whole(runs)
    found = _Builder(runs, lives, whole).views()
    pages, viewed, count = np.unique(found.page, return_inverse=True, return_counts=True)
    repeated = np.bincount(viewed, weights=found.stop - found.start)
    events = runs.event.page[found.event]
    own = np.searchsorted(events, pages, "right") - np.searchsorted(events, pages, "left")
    excess = pages[repeated > MOST * (count + own)]
    return _Builder(runs, lives, np.union1d(whole, excess)).views() if len(excess) else found


def _rank(values: Ints) -> Ints:
    return np.unique(values, return_inverse=True)[1].astype(np.int64)


def _needed_whole(runs: Runs) -> Ints:
    """Pages that one request reads under several tags, that stand beside those of another pool, or are a tier's."""
    number: dict[tuple[WorkerKey, int], int] = {}
    pools: dict[tuple[WorkerKey, int], set[str]] = defaultdict(set)
    for key, run in runs.reads:
        number.setdefault((key, run.read.req), len(number))
        if run.read.pool != SLOT:
            pools[key, run.read.req].add(run.read.pool)
    beside = {key for (key, _), named in pools.items() if len(named) > 1}
    places = [i for i, (key, pool) in enumerate(runs.places) if key[1] == 0 or (key in beside and pool != SLOT)]
    touched = np.unique(np.concatenate([runs.read.page, runs.source.page]))
    again = _read_again(runs, np.array([number[key, run.read.req] for key, run in runs.reads], np.int64))
    return np.union1d(touched[np.isin(touched >> PAGE_BITS, places)], again)


def _read_again(runs: Runs, request_of: Ints) -> Ints:
    """Pages that one request (of each run of reads) reads under several tags."""
    tag_of = _rank(np.array([_tag(run) for _, run in runs.reads], np.int64))
    tags = np.unique(np.stack([request_of, tag_of]), axis=1)[0]
    several = np.isin(request_of, tags[1:][tags[1:] == tags[:-1]])[runs.read.run]
    request, page, tag = request_of[runs.read.run[several]], runs.read.page[several], tag_of[runs.read.run[several]]
    order = np.lexsort((tag, page, request))
    request, page, tag = request[order], page[order], tag[order]
    return page[1:][(request[1:] == request[:-1]) & (page[1:] == page[:-1]) & (tag[1:] != tag[:-1])]


def _tag(run: ReadRun) -> int:
    return UNTAGGED if run.read.tag is None else run.read.tag


class _Builder:
    """Seqs as places among all that occur, so that (page, seq) is one number."""

    def __init__(self, runs: Runs, lives: LifeTable, whole: Ints) -> None:
        self.runs, self.lives = runs, lives
        self.pages = np.unique(np.concatenate([runs.event.page, runs.read.page, runs.source.page]))
        self.whole = np.isin(self.pages, whole)
        self.tags = _of_events(runs, lambda run: run.event.tag or 0)
        los, his = _of_events(runs, lambda run: run.event.lo), _of_events(runs, lambda run: run.event.hi)
        self.src_lo, self.src_hi = (
            _of_events(runs, lambda run, name=name: getattr(run.event.source, name) if run.event.source else 0)  # type: ignore[misc]
            for name in ("lo", "hi")
        )
        self.s0 = np.array([run.read.s0 for _, run in runs.reads], np.int64)
        self.s1 = np.array(
            [run.read.passes[-1].seq if run.read.passes else run.read.s0 for _, run in runs.reads], np.int64
        )
        of_event = self._group(runs.event.page)
        rank = np.empty(len(los), np.int64)
        rank[np.lexsort((np.arange(len(los)), his, los))] = np.arange(len(los))
        order = np.argsort(of_event * max(len(los), 1) + rank[runs.event.run], kind="stable")
        self.order, self.group = order, of_event[order]
        self.run = runs.event.run[order]
        self.los, self.his = los, his
        self.lo, self.hi = los[self.run], his[self.run]

    def _group(self, pages: Ints) -> Ints:
        """The place of each page among `self.pages`, by looking it up where page numbers are dense."""
        start = np.searchsorted(self.pages, np.arange(len(self.runs.places) + 1) << PAGE_BITS)
        group = np.empty(len(pages), np.int64)
        at = pages >> PAGE_BITS
        for place, (first, last) in enumerate(pairwise(start.tolist())):
            here = np.flatnonzero(at == place)
            if not len(here):
                continue
            mine = page_number(self.pages[first:last])
            if mine[-1] < DENSE * len(mine):
                known = np.zeros(int(mine[-1]) + 1, np.int64)
                known[mine] = np.arange(first, last)
                group[here] = known[page_number(pages[here])]
            else:
                group[here] = np.searchsorted(self.pages, pages[here])
        return group

    def views(self) -> Views:
        """See `Views`."""
        runs = self.runs
        read_tag = np.array([_tag(run) for _, run in runs.reads], np.int64)[runs.read.run]
        src_tag = _of_events(runs, _source_tag)[runs.source.run]
        groups = self._group(np.concatenate([runs.read.page, runs.source.page]))
        tags = np.where(self.whole[groups], WHOLE, np.concatenate([read_tag, src_tag]))
        known, tag_rank = np.unique(tags, return_inverse=True)
        keys, of_key = np.unique(groups * len(known) + tag_rank, return_inverse=True)
        group, tag = keys // max(len(known), 1), known[keys % max(len(known), 1)] if len(known) else keys
        of_read, of_source = np.split(of_key.astype(np.int64), [len(runs.read.run)])
        first, last = self._span(of_read, of_source, len(keys))
        reserve, end = self._lives(group, tag)
        start, stop, lo, hi = self._stretch(group, first, last, reserve, end)
        start, stop = self._with_own(group, tag, known, keys, start, stop)
        is_whole = self.whole[group]
        starts = np.searchsorted(self.group, group)
        stops = np.searchsorted(self.group, group, "right")
        return Views(
            self.pages[group], tag, np.where(is_whole, starts, start), np.where(is_whole, stops, stop),
            np.where(is_whole, -2, lo), np.where(is_whole, FOREVER, hi), self.order, of_read, of_source,
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

    def _lives(self, group: Ints, tag: Ints) -> tuple[Ints, Ints]:
        """(reserve_seq, end_seq) of the tag at each page; (FOREVER, -1) where no row speaks of that life."""
        reserve, end = np.full(len(group), FOREVER, np.int64), np.full(len(group), -1, np.int64)
        at, page = self.pages[group] >> PAGE_BITS, page_number(self.pages[group])
        for number, place in enumerate(self.runs.places):
            lives = self.lives.of_place.get(place)
            here = np.flatnonzero(at == number)
            if lives is None or not len(here):
                continue
            rows = lives.rows(tag[here], page[here])
            known, rows = here[rows >= 0], rows[rows >= 0]
            reserve[known], end[known] = lives.columns.reserve_seq[rows], lives.columns.end_seq[rows]
        return reserve, end

    def _stretch(self, group: Ints, first: Ints, last: Ints, reserve: Ints, end: Ints) -> tuple[Ints, Ints, Ints, Ints]:
        """(start, stop, lo, hi) of each view: back to the last write of the whole page, or to the tag's reserve before it."""
        seqs = np.unique(np.concatenate([self.los, self.his, first, last, reserve, end, [-2]]))
        width = len(seqs) + 1

        def at(of: Ints, seq: Ints) -> Ints:
            return of * width + np.searchsorted(seqs, seq)

        starts, ends = (self.group * width + np.searchsorted(seqs, of_run)[self.run] for of_run in (self.los, self.his))
        firm, covers = self._kinds()
        never = self.group * width + np.searchsorted(seqs, -2)
        reached = np.maximum.accumulate(np.where(firm, ends, never)) if len(self.run) else ends
        before = np.r_[-1, reached[:-1]][: len(reached)]
        # `before` of an earlier page is less than any number of this one.
        clean = firm & covers & (before <= starts)
        walls = np.flatnonzero(clean)
        keys = ends[walls]
        wall = np.searchsorted(keys, at(group, first), "right") - 1
        known = (
            (wall >= 0) & (self.group[walls[np.maximum(wall, 0)]] == group)
            if len(walls)
            else np.zeros(len(group), bool)
        )
        lo = np.full(len(group), -2, np.int64)
        lo[known] = np.minimum(self.lo[walls[wall[known]]], reserve[known])
        hi = np.maximum(last, end)
        longest = np.maximum.accumulate(ends) if len(self.run) else ends
        # What is placed at one seq alone begins and ends there, and belongs to the view that begins with it.
        start = np.searchsorted(longest, at(group, np.minimum(lo, reserve)), "left")
        start = np.maximum(start, np.searchsorted(self.group, group))
        stop = np.searchsorted(starts, at(group, hi), "left")
        return start, np.maximum(stop, start), lo, hi

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

    def _with_own(self, group: Ints, tag: Ints, known: Ints, keys: Ints, start: Ints, stop: Ints) -> tuple[Ints, Ints]:
        """Stretched to every event under the view's own tag."""
        if not len(keys) or not len(self.run):
            return start, stop
        tags = self.tags[self.run]
        rank = np.minimum(np.searchsorted(known, tags), len(known) - 1)
        wanted = self.group * len(known) + rank
        view = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        own = np.flatnonzero((known[rank] == tags) & (keys[view] == wanted))
        np.minimum.at(start, view[own], own)
        np.maximum.at(stop, view[own], own + 1)
        return start, stop


def _source_tag(run: EventRun) -> int:
    source = run.event.source
    return 0 if source is None else WHOLE if source.tag is None else source.tag


def _of_events(runs: Runs, value: Callable[[EventRun], int]) -> Ints:
    return np.array([value(run) for run in runs.events], np.int64)
