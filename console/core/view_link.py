"""A view as an address (`/incidents?from=-6h&q=severity:critical`) and as a command line, and back.

Invariant: an address that was made here and is read here is made again byte for byte. What only the moment decides
(held by a drill-down, finished) is in no address.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qsl, quote, urlsplit

from console.core.places import Place
from console.core.time_range import ALL, DEFAULT_MARGIN, BadRange, Spans, TimeRange, moment_us, parse_range, rfc3339
from console.core.view import SPEEDS, Cue, Mode, Replay, Sort, View

OPTIONS = frozenset({"bucket", "rows", "what_if.rate", "what_if.t_hold", "what_if.pages"})
"""What one screen alone knows."""
_PLAIN = "/:.,-_~*><=@"
_SHARE = "share"
_FIELDS = (
    "from", "to", "around", "back", "at", "mark", "q", "sort", "incident", "resp", "page", "pool", "mode", "as_of", "speed", "title",
    "ledger",
)  # fmt: skip


class BadLink(ValueError):
    """An address that this console cannot open: which part, and what it knows."""


def to_link(view: View) -> str:
    """The address of a view, without host."""
    inside = view.place is Place.INCIDENT and view.incident is not None
    path = f"/{Place.INCIDENTS}/{quote(view.incident or '', safe=_PLAIN)}" if inside else f"/{view.place}"
    query = to_query(view)
    return f"{path}?{query}" if query else path


def to_query(view: View) -> str:
    """The query string of a view; its place, and an incident that is open, are in the path."""
    back = None if view.back is None else view.back.text or "all"
    seen = view.range
    if view.place is Place.INCIDENT and view.back == ALL and seen.around == f"{view.incident}±{DEFAULT_MARGIN}":
        back, seen = None, ALL  # an incident's own time is what its address alone means
    at, mark, as_of = (None if t is None else rfc3339(t) for t in (view.cursor_us, view.mark_us, view.as_of_us))
    values: dict[str, str | None] = {
        "from": seen.start, "to": seen.end, "around": seen.around, "back": back, "at": at, "mark": mark, "q": view.filter,
        "sort": view.sort.text if view.sort else None, "incident": None if view.place is Place.INCIDENT else view.incident,
        "resp": view.rid, "page": None if view.page is None else str(view.page), "pool": view.pool,
        "mode": _mode(view), "as_of": as_of, "speed": _speed(view.replay), "title": view.title, "ledger": view.ledger,
    }  # fmt: skip
    pairs = [(name, values[name]) for name in _FIELDS if values[name]] + list(view.options)
    return "&".join(f"{name}={quote(value or '', safe=_PLAIN)}" for name, value in pairs)


def _mode(view: View) -> str | None:
    if view.mode is Mode.REPLAY:
        return view.mode.value
    may_follow = view.range.follows or (view.back is not None and view.back.follows)
    return view.mode.value if view.mode is Mode.PAUSED and may_follow else None


def _speed(replay: Replay | None) -> str | None:
    """`4`, and `4,standing` where it does not play."""
    if replay is None:
        return None
    return f"{replay.speed:g}" + ("" if replay.is_playing else ",standing")


def from_link(link: str) -> View:
    """The view of an address. Raises BadLink."""
    parts = urlsplit(link)
    words = [word for word in parts.path.split("/") if word]
    view = from_query(parts.query)
    if len(words) == 2 and words[0] == Place.INCIDENTS:
        return replace(view, place=Place.INCIDENT, incident=words[1])
    if len(words) > 1 or (words and words[0] not in set(Place)):
        raise BadLink(f"there is no screen {parts.path}; there are: " + ", ".join(f"/{place}" for place in Place))
    return replace(view, place=Place(words[0]) if words else Place.OVERVIEW)


def from_query(query: str) -> View:
    """The view of a query string, its place left as it is. Raises BadLink."""
    given: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name in given:
            raise BadLink(f"{name} stands twice in the address")
        given[name] = value
    unknown = sorted(set(given) - set(_FIELDS) - OPTIONS - {_SHARE})
    if unknown:
        raise BadLink(
            f"this console knows no {', '.join(unknown)}; it knows: {', '.join(sorted({*_FIELDS, *OPTIONS}))}"
        )
    try:
        view = _view(given)
    except BadRange as error:
        raise BadLink(str(error)) from error
    return replace(view, options=tuple(sorted((name, given[name]) for name in given if name in OPTIONS)))


def _view(given: Mapping[str, str]) -> View:
    view = View(
        cursor_us=_moment(given, "at"), mark_us=_moment(given, "mark"), as_of_us=_moment(given, "as_of"),
        filter=given.get("q", ""),
        back=parse_range(given["back"]) if given.get("back") else None,
        sort=Sort.parse(given["sort"]) if given.get("sort") else None, incident=given.get("incident") or None,
        rid=given.get("resp") or None, page=_whole(given, "page"), pool=given.get("pool") or None, title=given.get("title", ""),
        ledger=given.get("ledger") or None,
    )  # fmt: skip
    wanted = TimeRange(given.get("from", ""), given.get("to", ""), given.get("around", ""))
    if view.back is not None and view.back.follows and not wanted.follows:
        view = replace(view, range=wanted).on(Cue.OPEN)  # the time of an incident, seen from a view that followed
    else:
        view = view.with_range(wanted)
    mode = given.get("mode", "")
    if mode not in ("", Mode.LIVE, Mode.PAUSED, Mode.REPLAY):
        raise BadLink(f"mode is {mode!r}; it can be live, paused or replay")
    if view.as_of_us is not None and mode in (Mode.LIVE, Mode.REPLAY):
        raise BadLink(f"as_of is of a view that is paused; it does not go with mode={mode}")
    if mode == Mode.PAUSED or view.as_of_us is not None:
        return view.on(Cue.FIX)
    return replace(view.on(Cue.PLAY), replay=_replay(given.get("speed", "1"))) if mode == Mode.REPLAY else view


def _moment(given: Mapping[str, str], name: str) -> int | None:
    return moment_us(given[name]) if given.get(name) else None


def _whole(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name, "")
    if text and not (text.isascii() and text.isdigit()):
        raise BadLink(f"{name} is {text!r}; it has to be a whole number")
    return int(text) if text else None


def _replay(text: str) -> Replay:
    number, comma, word = text.partition(",")
    speeds = {f"{speed:g}": speed for speed in SPEEDS}
    if number not in speeds or (comma and word != "standing"):
        raise BadLink(f"speed is {text!r}; it can be {', '.join(speeds)}")
    return Replay(speeds[number], not comma)


def asks_absolute(query: str) -> bool:
    """Whether an address asks to be opened with its times written out (`share=abs`). Raises BadLink."""
    given = dict(parse_qsl(query, keep_blank_values=True)).get(_SHARE)
    if given not in (None, "abs"):
        raise BadLink(f"{_SHARE} is {given!r}; it can be abs")
    return given == "abs"


def absolute(view: View, now_us: int, spans: Spans) -> View:
    """The view for somebody else: the same times for whoever opens it, whenever. Raises BadRange."""
    return view.with_range(view.range.frozen(now_us, spans))


def to_command(view: View, *ledgers: Path) -> str:
    """The command that opens the view in a terminal, over the ledgers that are open here."""
    command = " ".join(["console", *(f"--ledger {shlex.quote(str(ledger.resolve()))}" for ledger in ledgers)])
    if view == View():
        return command
    if view.place is Place.INCIDENT and view.incident and to_query(view) == "":
        return f"{command} --incident {shlex.quote(view.incident)}"
    return f"{command} --view {shlex.quote(to_link(view))}"
