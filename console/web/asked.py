"""What one request asks to see: the view of its address over the desk, with its times worked out.

Invariant: an address that cannot be read is refused with words, never guessed at. What `now` means, the core says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from urllib.parse import parse_qsl, quote, urlencode

from console.core.desk import Desk
from console.core.ledger_names import ALL_LEDGERS
from console.core.looking import Looking, looking, now_words, range_now
from console.core.nearest import Nearest, nearest_of, shifted
from console.core.own_time import at_own_time, given_back, gone_to, opened_by_address, own_words
from console.core.page_map import Area, incident_area, whole_area
from console.core.page_view import pool_fault, pool_looked_at
from console.core.places import MERGED, Place
from console.core.printable import printable
from console.core.ranged import in_range
from console.core.rollup import Rollup
from console.core.snapshot import Snapshot
from console.core.sorting import sort_fault
from console.core.source_states import SourceState
from console.core.standing_rows import with_standing
from console.core.time_moves import extent
from console.core.time_range import ALL, Span, parse_range
from console.core.triage import Entry
from console.core.view import Cue, Mode, View
from console.core.view_link import BadLink, absolute, asks_absolute, from_link, to_link, to_query
from console.web.feed import AnyFeed
from console.web.kept import Kept, Pinned
from console.web.replaying import Replaying, replaying

BESIDE = frozenset({"theme", "before", "after", "next", "of"})
"""What an address may hold that is no part of the view: how a chart is coloured, where a list of events goes on."""


class PageNotFound(Exception):
    """There is no such incident, pool or stretch; the message says what there is."""


class OutsideRecord(PageNotFound):
    """A pool has no rows in the range; `whole` is where it has."""

    def __init__(self, whole: Area) -> None:
        super().__init__("Nothing of this pool is recorded in that range of time and pages.")
        self.whole = whole


@dataclass(frozen=True)
class Asked:
    """`span`: the view's range now. `beside`: what the address says that is no part of the view. `mark`: of the desk.
    `now_us`: what `now` means in a range; `clock_us`: the time of the wall.
    `said`: what people said of incidents. `kept`: what was worked out of the snapshot; None as long as there is none.
    `newest_us`: how far the record goes, where less of it is shown. `replaying`: where a replay stands; its desk shows the
    record as it was there. `ledgers`: names of all that can be looked at, where several are served; `states`: how each stands,
    where all are looked at.
    """

    desk: Desk
    mark: str
    view: View
    span: Span
    now_us: int
    clock_us: int
    beside: Mapping[str, str] = field(default_factory=dict)
    kept: Kept | None = None
    replaying: Replaying | None = None
    ledgers: tuple[str, ...] = ()
    states: tuple[SourceState, ...] = ()
    said: tuple[Entry, ...] = ()
    newest_us: int | None = None

    @property
    def moment_us(self) -> int:
        """The moment whose state is shown, us UTC."""
        return self.view.moment_us(self.clock_us)

    @property
    def looking(self) -> Looking:
        """The view as the core's figures take it. What is wrong with it was refused before."""
        words = "" if self.rollup is None else now_words(self.rollup, self.view, self.now_us)
        return Looking(self.view, self.span, self.now_us, now_words=words)

    @cached_property
    def rollup(self) -> Rollup | None:
        """What figures and tables are made of, and how its incidents stand."""
        known = self.desk.rollup
        return None if known is None else with_standing(known, self.said, self.moment_us)

    def counted(self, place: Place) -> Rollup | None:
        """The same with the figures of `place` counted of the range. Raises FilterError, QueryStopped."""
        if self.rollup is None:
            return None
        return in_range(place, self.rollup, self.desk.record, self.looking)

    def link(self, **changes: object) -> str:
        """The address of the view with changes."""
        return to_link(replace(self.view, **changes))  # type: ignore[arg-type]

    def at(self, place: Place) -> View:
        """The view of another screen: range, filter, what is pointed at and whether it stands still go along."""
        seen = self.view
        view = View(
            place, seen.range, seen.back, seen.cursor_us, seen.mark_us, seen.as_of_us, seen.filter, mode=seen.mode,
            replay=seen.replay, ledger=seen.ledger,
        )  # fmt: skip
        return gone_to(view, place)

    def tab(self, place: Place) -> str:
        """The address of another screen."""
        return to_link(self.at(place))

    def opened(self, incident_id: str, rid: str | None = None, source: str = "") -> View:
        """The view of an incident, at its own time; in the ledger `source` where several are looked at."""
        view = replace(self.at(Place.INCIDENT), incident=incident_id, rid=rid)
        if source:  # the filter was of all ledgers; its own ledger knows its time
            return replace(view, ledger=source, filter="")
        return view if self.rollup is None else at_own_time(view, self.rollup.span)

    @cached_property
    def nearest(self) -> Nearest | None:
        """What lies nearest to the range, where nothing of what the screen draws lies in it."""
        shown = None if self.kept is None else self.kept.snapshot
        if self.rollup is None:
            return None
        return nearest_of(self.view.place, self.rollup, shown, self.looking)

    @property
    def nearest_links(self) -> list[tuple[str, str]]:
        """The ways there: what each is called, and its address."""
        near, ways = self.nearest, ((-1, "the one before"), (1, "the one after"))
        found = [(words, shifted(self.view, near, by)) for by, words in ways] if near else []
        return [(words, to_link(view)) for words, view in found if view is not None]

    @property
    def left(self) -> str:
        """The address of the list that an incident was opened from, with the range of then."""
        return to_link(given_back(self.at(Place.INCIDENTS)))

    def open(self, incident_id: str, source: str = "") -> str:
        """The address of an incident."""
        return to_link(self.opened(incident_id, source=source))

    def in_ledger(self, name: str) -> str:
        """The address of the same screen of another ledger, or of all of them."""
        place = Place.INCIDENTS if self.view.place is Place.INCIDENT else self.view.place
        if name == ALL_LEDGERS and place not in MERGED:
            place = Place.OVERVIEW
        seen = self.view
        return to_link(View(place, seen.range, filter=seen.filter, ledger=name))

    @property
    def of_ledger(self) -> str:
        """What an address of a form that has no view says of the ledger."""
        return "" if self.view.ledger is None else "?" + to_query(View(ledger=self.view.ledger))

    def around(self, incident_id: str) -> str:
        """The address of the page map around an incident."""
        seen = self.view
        view = View(
            Place.PAGES,
            cursor_us=seen.cursor_us,
            as_of_us=seen.as_of_us,
            mode=seen.mode,
            replay=seen.replay,
            ledger=seen.ledger,
        )
        return to_link(replace(view, incident=incident_id))

    @property
    def stands(self) -> str:
        """Why the page does not follow the record: `range`, `paused`, `held` (an incident is open), or nothing."""
        if self.view.replay is not None:
            return ""
        if self.view.place is Place.INCIDENT and own_words(self.view):
            return "held" if self.desk.shown is not None else ""
        if not self.view.range.follows and self.view.as_of_us is None:
            return "range"
        if self.view.mode is Mode.PAUSED:
            return "paused"
        return "held" if self.view.place is Place.INCIDENT and self.desk.shown is not None else ""

    @property
    def carried_pairs(self) -> list[tuple[str, str]]:
        """What of the query goes along with a form whatever is looked at there: a replay or a pause, and the ledger."""
        seen, kept = self.view, View(ledger=self.view.ledger)
        if seen.replay is not None or seen.as_of_us is not None:
            kept = replace(kept, mode=seen.mode, replay=seen.replay, cursor_us=seen.cursor_us, as_of_us=seen.as_of_us)
        return parse_qsl(to_query(kept))

    @property
    def replay_link(self) -> str:
        """The address that plays the record from what is pointed at."""
        first = None if self.rollup is None else self.rollup.first_us
        return to_link(replace(self.view.on(Cue.PLAY), cursor_us=self.view.cursor_us or first))


async def ask(feed: AnyFeed, address: str) -> Asked:
    """Read an address (path and query) over what the feed shows, or over the record as it was where the address replays it.

    Raises BadLink, BadRange, TriageError and PastFailed.
    """
    asked, known = replace(_read(feed, address), said=await asyncio.to_thread(feed.entries)), feed.desk.rollup
    fault = sort_fault(asked.rollup, asked.view) if asked.rollup is not None else ""
    if fault:
        raise BadLink(fault)
    if asked.view.as_of_us is not None:
        return await _as_of(feed, asked, asked.view.as_of_us)
    if asked.view.replay is None:
        return asked
    reach = extent(known, looking(known, replace(asked.view, replay=None), asked.clock_us).span) if known else None
    if feed.kept is None or known is None or reach is None:  # what is remembered is not what was
        return replace(asked, desk=replace(asked.desk, shown=None, live=None, remembered=None), kept=None)
    at = min(max(reach[0] if asked.view.cursor_us is None else asked.view.cursor_us, reach[0]), reach[1])
    view, whole = replace(asked.view, cursor_us=at), feed.kept
    is_end = at >= (whole.snapshot.data_us or 0)
    past = whole if is_end else await feed.past.at(whole.snapshot, at)
    desk = replace(asked.desk, view=view, shown=past.snapshot if past else None, live=None, remembered=None)
    shown_us = at if is_end else past.snapshot.taken_us if past else None
    stands = replaying(view, whole.snapshot.rollup, reach, shown_us, range_now(known, View(), asked.clock_us))
    now = range_now(known, view, asked.clock_us)
    span = view.range.resolve(now, known.span)
    return replace(asked, desk=desk, view=view, span=span, now_us=now, kept=past, replaying=stands)


async def _as_of(feed: AnyFeed, asked: Asked, at_us: int) -> Asked:
    """The same over the record as it was when its view was paused: as it was shown then, else judged anew."""
    newest = feed.desk.rollup
    if feed.kept is None or newest is None or (newest.data_us or 0) <= at_us:
        return asked
    pinned = feed.pinned(at_us)
    if pinned is None:
        pinned = Pinned(await feed.past.exactly(feed.kept.snapshot, at_us), None)
    desk = replace(asked.desk, shown=pinned.kept.snapshot, live=pinned.live, remembered=None)
    span = asked.view.range.resolve(asked.now_us, desk.rollup.span) if desk.rollup else asked.span
    return replace(asked, desk=desk, span=span, kept=pinned.kept, newest_us=newest.data_us)


def _read(feed: AnyFeed, address: str) -> Asked:
    path, _, query = address.partition("?")
    pairs = parse_qsl(query, keep_blank_values=True)
    beside = {name: value for name, value in pairs if name in BESIDE}
    rest = urlencode([pair for pair in pairs if pair[0] not in BESIDE], quote_via=quote)
    desk, clock = feed.desk, feed.now_us()
    known = desk.rollup
    view = _of_feed(from_link(f"{path}?{rest}" if rest else path), feed)
    view = view if known is None or desk.merged is not None else opened_by_address(view, known.span)
    now = clock if known is None else range_now(known, view, clock)
    span = Span() if known is None else view.range.resolve(now, known.span)
    if known is not None and asks_absolute(rest):
        view = absolute(view, now, known.span)
    return Asked(
        replace(desk, view=view), feed.mark, view, span, now, clock, beside, feed.kept, None, feed.ledgers, feed.states
    )


def _of_feed(view: View, feed: AnyFeed) -> View:
    """The view with the ledger that the feed is of, where several are served, else without. Raises BadLink where it names another."""
    if view.ledger not in (None, feed.name):
        there = ", ".join(feed.ledgers or (feed.name,))
        raise BadLink(f"there is no ledger {printable(view.ledger)} here; there are: {there}")
    if feed.name == ALL_LEDGERS and view.replay is not None:
        raise BadLink("a replay is of one ledger: name it in the place of all")
    if feed.name == ALL_LEDGERS and view.as_of_us is not None:
        raise BadLink("what was shown at a moment is of one ledger: name it in the place of all")
    return replace(view, ledger=feed.name if feed.ledgers else None)


def changed_link(address: str, range_text: str, filter_text: str) -> str:
    """The address with a range and a filter as somebody typed them. Raises BadLink and BadRange."""
    view = from_link(address)
    wanted = parse_range(range_text)
    back = ALL if view.place is Place.INCIDENT and wanted == ALL else None
    kept = replace(view if wanted.follows else view.with_range(wanted), back=back)
    return to_link(replace(kept, range=wanted if range_text.strip() else ALL, filter=filter_text.strip()))


def area_asked(shown: Snapshot, asked: Asked) -> Area:
    """The pool, time and pages that a page map is asked for. Raises PageNotFound and BadLink."""
    area = _base_area(shown, asked.view)
    first, last = _rows(asked.view.option("rows"))
    start = area.start_us if asked.span.start_us is None else asked.span.start_us
    end = area.end_us if asked.span.end_us is None else asked.span.end_us
    if asked.view.range != ALL and asked.view.incident is not None:
        whole = whole_area(shown, area.key, area.pool)
        area = replace(area, start_us=whole.start_us, end_us=whole.end_us)
    start, end = max(area.start_us, start), min(area.end_us, end)
    first, last = max(area.first_page, first or 0), area.last_page if last is None else min(area.last_page, last)
    if start >= end or first > last:
        raise OutsideRecord(whole_area(shown, area.key, area.pool))
    return Area(area.key, area.pool, start, end, first, last)


def _rows(text: str | None) -> tuple[int | None, int | None]:
    """`30-33`: the first and the last page."""
    if not text:
        return None, None
    first, dash, last = text.partition("-")
    if not dash or not all(part.isascii() and part.isdigit() for part in (first, last)):
        raise BadLink(f"rows is {text!r}; it has to be two page numbers, such as 30-33")
    return int(first), int(last)


def _base_area(shown: Snapshot, view: View) -> Area:
    """All of the pool that the view names, else what its incident concerns, else all of the gravest one's pool."""
    fault = pool_fault(shown, view)
    if fault:
        raise PageNotFound(fault)
    if view.pool is None and view.incident is not None:
        incident = shown.incident(view.incident)
        area = incident_area(shown, incident) if incident else None
        if area is None:
            raise PageNotFound(f"Incident {printable(view.incident)} is not in this ledger, or names no pages.")
        return area
    found = pool_looked_at(shown, view)
    if found is None:
        raise PageNotFound("No pool of this ledger has pages.")
    return whole_area(shown, *found)
