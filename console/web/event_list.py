"""The events of a record as a list in pages: the latest first shown, earlier and later ones by key.

Invariant: a page costs the same however long the record is; what only a remembered picture is there for says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlencode

from console.core.events import EventKey, EventPage
from console.core.filter_language import parse_filter
from console.core.sheet import Sheet, Shown
from console.core.view_link import BadLink
from console.web.asked import Asked
from console.web.tables import left_of


@dataclass(frozen=True)
class EventList:
    """One page of events; `earlier` and `later` are addresses, None = there are none."""

    sheet: Sheet
    left: Shown
    earlier: str | None
    later: str | None


def event_list(asked: Asked) -> EventList:
    """The page of events that is asked for. Raises BadLink, FilterError."""
    record = asked.desk.record
    if record is None:
        assert asked.rollup is not None
        sheet = asked.rollup.sheets["events"]
        return EventList(sheet, left_of(sheet, asked), None, None)
    wanted, events = parse_filter(asked.view.filter), record.events
    before, after = _key(asked, "before"), _key(asked, "after")
    if before is None and after is None and asked.view.cursor_us is not None:
        before = EventKey(asked.view.cursor_us + 1, "", 0, 0)  # up to what is pointed at
    page = (
        events.after(after, wanted, asked.span, asked.now_us)
        if after is not None
        else events.before(before, wanted, asked.span, asked.now_us)
    )
    return _listed(asked, page)


def _listed(asked: Asked, page: EventPage) -> EventList:
    n = len(page.rows)
    left = Shown(page.rows, page.hidden, 0, page.total - n - page.hidden, page.total, ())
    earlier = _link(asked, "before", page.earlier) if page.earlier else None
    later = _link(asked, "after", page.later) if page.later else None
    return EventList(Sheet("events", page.rows, begins="t"), left, earlier, later)


def _link(asked: Asked, name: str, key: EventKey) -> str:
    address = asked.link()
    return f"{address}{'&' if '?' in address else '?'}" + urlencode(
        {name: f"{key.t_us},{key.epoch},{key.seq},{key.worker}", **({"of": key.source} if key.source else {})}
    )


def _key(asked: Asked, name: str) -> EventKey | None:
    text = asked.beside.get(name)
    if not text:
        return None
    t, epoch, seq, worker = [*text.split(",", 3), "", "", ""][:4]
    if not all(part.isascii() and part.isdigit() for part in (t, epoch, seq)):
        raise BadLink(f"{name} is {text!r}; it has to be a place in the list, as the list's own links say it")
    return EventKey(int(t), worker, int(epoch), int(seq), source=asked.beside.get("of", ""))
