"""Where an action of the table leads from an address: to another address.

Invariant: every action that the table says works in a browser is here or in `IN_PAGE`, which the page's own script does;
what cannot be done raises one of `REFUSALS`, with words.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from console.core.actions import Action
from console.core.commands import Command, CommandError, parse_command
from console.core.desk import Desk
from console.core.export import FORMATS
from console.core.filter_language import FilterError, parse_filter, with_value
from console.core.nearest import shifted
from console.core.own_time import given_back, swapped
from console.core.page_view import next_mark
from console.core.places import MERGED, TABS, Place
from console.core.printable import printable
from console.core.rollup import Rollup
from console.core.saved_views import SavedViewError, load_views, of_ledger
from console.core.time_moves import extent, marked, moment_in, pointed, stepped, zoomed
from console.core.time_range import ALL, BadRange, parse_range
from console.core.view import SPEEDS, Cue, Mode, Sort, View
from console.core.view_link import BadLink, absolute, to_link, to_query
from console.core.what_if import WhatIfError, with_what_if_of
from console.web.asked import Asked, PageNotFound, area_asked
from console.web.charts import NotReadYet
from console.web.tables import MAIN, columns_of

IN_PAGE = frozenset(
    {
        "open",
        "down",
        "up",
        "first",
        "last",
        "ack",
        "silence",
        "unsilence",
        "note",
        "copy",
        "theme",
        "command",
        "palette",
        "help",
    }
)
"""What needs no other address."""
REFUSALS = (CommandError, FilterError, BadRange, BadLink, PageNotFound, SavedViewError, WhatIfError)


def read_command(text: str) -> Command:
    """A command as it was typed. Raises CommandError, also for what a browser does not have."""
    command = parse_command(text)
    if not command.action.web:
        raise CommandError(f":{command.action.command} works in the terminal only")
    return command


def address_after(asked: Asked, action: Action, argument: str, views: Path) -> str:
    """The address to which `action` leads; `views`: the file of saved views. Raises one of REFUSALS, NotReadYet."""
    if asked.view.place not in action.places:
        there = " or ".join(place.value.capitalize() for place in action.places)
        raise CommandError(f"this works on {there}")
    if action.id == "export":
        return _file(asked, argument)
    if action.id == "view":
        return to_link(_saved(views, argument, asked))
    if action.id == "ledger":
        return _other_ledger(asked, argument)
    if action.id not in MOVES:
        raise CommandError(f"{action.words}: the page does that, it has no address")
    return to_link(MOVES[action.id](asked, argument))


def _known(asked: Asked) -> Rollup:
    if asked.rollup is None:
        raise NotReadYet
    return asked.rollup


def _looked(asked: Asked) -> tuple[int, int]:
    reach = extent(_known(asked), asked.span)
    if reach is None:
        raise BadRange("nothing is recorded in this range; z shows the whole record")
    return reach


def _file(asked: Asked, fmt: str) -> str:
    query = to_query(replace(asked.view, place=Place.OVERVIEW))
    if fmt == "bundle":
        is_one = asked.view.place is Place.INCIDENT
        return f"/api/incidents/{asked.view.incident}/bundle?{query}" if is_one else f"/api/bundle?{query}"
    if fmt not in FORMATS:
        raise CommandError(f"there is no format {printable(fmt)}; there are: {', '.join(FORMATS)}, bundle")
    return f"/tables/{MAIN[asked.view.place]}.{fmt}?{query}"


def _other_ledger(asked: Asked, name: str) -> str:
    if name not in asked.ledgers:
        there = ", ".join(asked.ledgers) or "one ledger only"
        raise CommandError(f"there is no ledger {printable(name)}; there are: {printable(there)}")
    return asked.in_ledger(name)


def _saved(views: Path, name: str, asked: Asked) -> View:
    """A saved view, of the ledger that is looked at where it names none."""
    saved = load_views(views)
    if name in saved.faults:
        raise SavedViewError(f"{name} cannot be opened: {saved.faults[name]}")
    if name not in saved.views:
        there = ", ".join(sorted(saved.views)) or "none yet; V saves one in the terminal"
        raise SavedViewError(f"there is no saved view {printable(name)}; there are: {there}")
    return of_ledger(saved.views[name], asked.view.ledger)


def _paused(asked: Asked, _: str) -> View:
    """Paused, and pointing at the moment of it; or following again, pointing at nothing. Of several ledgers at once the page is
    held, and no moment: each has its own."""
    view = asked.view.toggled()
    if view.mode is Mode.LIVE:
        return replace(view, cursor_us=None)
    shown_us = asked.rollup.data_us if asked.rollup else None
    as_of_us = shown_us if asked.desk.merged is None else None
    return replace(view, cursor_us=shown_us if view.cursor_us is None else view.cursor_us, as_of_us=as_of_us)


def _replay(asked: Asked, text: str) -> View:
    """The record from what is pointed at, else from its beginning."""
    speeds = {f"{speed:g}": speed for speed in SPEEDS}
    if text and text.removeprefix("×") not in speeds:
        raise CommandError(f"{printable(text)} is no speed; there are: {', '.join(speeds)}")
    first, last = _looked(asked)
    if asked.desk.merged is not None:
        raise CommandError("a replay is of one ledger; L chooses it")
    view = asked.view.on(Cue.PLAY)
    if view.replay is None:
        raise CommandError("this view cannot be replayed")
    speed = speeds[text.removeprefix("×")] if text else view.replay.speed
    at = view.cursor_us if view.cursor_us is not None and first <= view.cursor_us < last else first
    return replace(view, cursor_us=at, replay=replace(view.replay, speed=speed, is_playing=True))


def _paced(by: int) -> Callable[[Asked, str], View]:
    def move(asked: Asked, _: str) -> View:
        if asked.view.replay is None:
            raise CommandError("nothing is replayed; R plays the record")
        return replace(asked.view, replay=asked.view.replay.faster(by))

    return move


def _follow(asked: Asked, _: str) -> View:
    return replace(asked.view.followed(asked.now_us, _known(asked).span), cursor_us=None)


def _ranged(asked: Asked, text: str) -> View:
    wanted = parse_range(text)
    wanted.resolve(asked.now_us, _known(asked).span)
    back = ALL if asked.view.place is Place.INCIDENT and wanted == ALL else None  # else its own time would come again
    return replace(asked.view, back=back).with_range(wanted)


def _at(asked: Asked, text: str) -> View:
    looked = _looked(asked)
    return pointed(asked.view, looked, moment_in(text, looked))


def _mark(asked: Asked, _: str) -> View:
    if asked.view.cursor_us is None:
        raise BadRange("nothing is pointed at; [ and ] point")
    return marked(asked.view, asked.view.cursor_us)


def _stepped(by: int) -> Callable[[Asked, str], View]:
    def move(asked: Asked, _: str) -> View:
        near = asked.nearest
        view = None if near is None else shifted(asked.view, near, by)
        return stepped(asked.view, _looked(asked), by) if view is None else view

    return move


def _zoomed(factor: float) -> Callable[[Asked, str], View]:
    return lambda asked, _: zoomed(asked.view, _known(asked), _looked(asked), factor)


def _filtered(asked: Asked, text: str) -> View:
    parse_filter(text)
    return replace(asked.view, filter=text.strip())


def _tenant(asked: Asked, text: str) -> View:
    return _filtered(asked, with_value(asked.view.filter, "tenant", text))


def _sorted(asked: Asked, text: str) -> View:
    wanted, name = Sort.parse(text), MAIN[asked.view.place]
    columns = columns_of(name, asked)
    if wanted.column not in columns:
        raise CommandError(f"there is no column {printable(wanted.column)}; there are: {', '.join(columns)}")
    if asked.view.sort == wanted:
        wanted = replace(wanted, descending=not wanted.descending)
    return replace(asked.view, sort=wanted)


def _incident(asked: Asked, incident_id: str) -> View:
    known = _known(asked)
    incident = known.incident(incident_id)
    if incident is None:
        there = ", ".join(i.key for i in known.incidents[:5]) or "none"
        raise PageNotFound(f"there is no incident {printable(incident_id)}; there are: {printable(there)}")
    return asked.opened(incident.id if incident.source else incident_id, source=incident.source)


def _response(asked: Asked, rid: str) -> View:
    incident = next((i for i in _known(asked).incidents if rid in i.rids), None)
    if incident is None:
        raise PageNotFound(f"no incident concerns a response {printable(rid)}")
    return asked.opened(incident.id, rid, incident.source)


def _page(asked: Asked, number: str) -> View:
    if not (number.isascii() and number.isdigit()):
        raise CommandError(f"{printable(number)} is no page; a page is a whole number")
    view = replace(asked.at(Place.PAGES), page=int(number))
    return view.with_option("rows", f"{number}-{number}")


def _desk(asked: Asked) -> Desk:
    """The desk with the incident of the address open."""
    incident = asked.desk.incident_of(asked.view.incident)
    if incident is None:
        raise PageNotFound("there is no such incident in this ledger")
    return asked.desk.open_incident(incident, asked.view.rid).select(page=asked.view.page)


def _response_by(by: int) -> Callable[[Asked, str], View]:
    def move(asked: Asked, _: str) -> View:
        desk = _desk(asked)
        if desk.reading is None:
            raise PageNotFound("no response is concerned")
        rids = list(dict.fromkeys(r.rid for r in desk.readings))
        return replace(asked.view, rid=rids[(rids.index(desk.reading.rid) + by) % len(rids)], page=None)

    return move


def _found_by(by: int) -> Callable[[Asked, str], View]:
    def move(asked: Asked, _: str) -> View:
        if asked.view.place is Place.PAGES:
            return _marked(asked, by)
        desk = _desk(asked)
        lineage = desk.lineage()
        story = desk.story(lineage)
        if lineage is None or story is None or desk.reading is None:
            raise PageNotFound("no page is named here")
        at = lineage.found.index(story.page) + by if story.page in lineage.found else 0
        if 0 <= at < len(lineage.found):
            return replace(asked.view, rid=desk.reading.rid, page=lineage.found[at])
        return _response_by(by)(asked, "")

    return move


def _marked(asked: Asked, by: int) -> View:
    """The next foreign read or late write of the pool that is seen, round."""
    if asked.kept is None:
        raise NotReadYet
    area = area_asked(asked.kept.snapshot, asked)
    page = area.first_page if asked.view.page is None else asked.view.page
    at = area.start_us if asked.view.cursor_us is None else asked.view.cursor_us
    mark = next_mark(asked.kept.snapshot.marks(area.key, area.pool), page, at, by)
    if mark is None:
        raise PageNotFound("no foreign read and no late write is known of this pool")
    inside = area.start_us <= mark.t_us <= area.end_us and area.first_page <= mark.page <= area.last_page
    view = asked.view if inside else replace(asked.view, range=ALL, incident=None).with_option("rows", None)
    return replace(view, page=mark.page, cursor_us=mark.t_us)


def _incident_by(by: int) -> Callable[[Asked, str], View]:
    def move(asked: Asked, _: str) -> View:
        known = _known(asked)
        listed = [i for i in known.incidents if i.first_seen_us is not None]
        if asked.view.place is not Place.INCIDENT:
            listed.sort(key=lambda i: i.first_seen_us or 0)
        if not listed:
            raise PageNotFound("no incident of this ledger has a time")
        times = [i.first_seen_us or 0 for i in listed]
        here = next((n for n, i in enumerate(listed) if i.key == asked.view.incident), None)
        if here is None:
            at = asked.view.cursor_us
            here = -1 if by > 0 else 0
            here = here if at is None else bisect_right(times, at) - (1 if by > 0 else 0)
        chosen = listed[(here + by) % len(listed)]
        if asked.view.place is Place.INCIDENT:
            return asked.opened(chosen.id)
        return replace(asked.view, incident=chosen.key, cursor_us=chosen.first_seen_us)

    return move


def _to(place: Place) -> Callable[[Asked, str], View]:
    def move(asked: Asked, _: str) -> View:
        if asked.desk.merged is not None and place not in MERGED:
            raise CommandError(f"{place.capitalize()} is of one ledger; L chooses it")
        return asked.at(place)

    return move


MOVES: dict[str, Callable[[Asked, str], View]] = {
    **{f"go_{place}": _to(place) for place in TABS},
    "back": lambda asked, _: given_back(asked.at(Place.INCIDENTS)),
    "incident": _incident, "response": _response, "page": _page, "pause": _paused, "follow": _follow,
    "replay": _replay, "faster": _paced(1), "slower": _paced(-1),
    "range": _ranged, "at": _at, "mark": _mark, "earlier": _stepped(-1), "later": _stepped(1), "zoom_in": _zoomed(0.5),
    "zoom_out": _zoomed(2.0), "range_back": lambda asked, _: swapped(asked.view, _known(asked).span),
    "zoom_fit": lambda asked, _: asked.view.with_range(ALL), "filter": _filtered, "tenant": _tenant,
    "sort": _sorted, "next_found": _found_by(1), "previous_found": _found_by(-1), "next_response": _response_by(1),
    "previous_response": _response_by(-1), "next_incident": _incident_by(1), "previous_incident": _incident_by(-1),
    "what_if": lambda asked, text: with_what_if_of(asked.view, text),
    "share": lambda asked, _: absolute(asked.view, asked.now_us, _known(asked).span),
}  # fmt: skip
"""The view after an action, given what it was given."""
