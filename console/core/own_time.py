"""An incident opens at its own time: from OWN_MARGIN before its first to OWN_MARGIN after its last.

Invariant: the range from before is kept in `View.back` and comes back with the incident; a range that somebody chose, or that an
address holds, stays. A replay has its own moment and is not narrowed.
"""

from __future__ import annotations

import re
from dataclasses import replace

from console.core.places import Place
from console.core.time_range import ALL, DEFAULT_MARGIN, BadRange, Spans, TimeRange
from console.core.view import Cue, View

EVIDENCE = frozenset({Place.INCIDENT, Place.PAGES, Place.HELD, Place.LATENCY, Place.EVENTS})
"""Screens on which the own time of an incident goes along from it."""

_OWN = re.compile(f"I-[0-9a-f]+±{DEFAULT_MARGIN}", re.IGNORECASE)


def own_range(incident_id: str) -> TimeRange:
    """The own time of an incident. Raises BadRange for what is no id of one."""
    return TimeRange(around=f"{incident_id}±{DEFAULT_MARGIN}")


def has_range(view: View) -> bool:
    """Whether the view of an incident says at which time it is to be seen."""
    return view.range != ALL or view.back is not None


def at_own_time(view: View, spans: Spans) -> View:
    """The view of an incident at its own time; as it is where that is not known, or in a replay."""
    span = None if view.incident is None or view.replay is not None else spans(view.incident)
    if view.incident is None or span is None or span.start_us is None or span.end_us is None:
        return view
    back = view.range if view.back is None else view.back
    return replace(view, range=own_range(view.incident), back=back)


def opened_by_address(view: View, spans: Spans) -> View:
    """The view of an address: that of an incident which says nothing of a range is at the incident's own time."""
    if view.place is not Place.INCIDENT or has_range(view):
        return view
    return at_own_time(view, spans).on(Cue.OPEN)


def given_back(view: View) -> View:
    """With the range from before; the incident, while it stays open, remembers that it was given back."""
    if view.back is None:
        return view
    is_open = view.place is Place.INCIDENT
    restored = replace(view, range=view.back, back=ALL if is_open and view.back == ALL else None)
    return restored if is_open else restored.on(Cue.LEAVE)


def swapped(view: View, spans: Spans) -> View:
    """The range from before, or on an open incident its own time again. Raises BadRange where there is neither."""
    if view.back is not None and view.range != view.back:
        return given_back(view)
    own = at_own_time(view, spans) if view.place is Place.INCIDENT else view
    if own == view:
        raise BadRange("no other range was looked at before an incident was opened")
    return own


def gone_to(view: View, place: Place) -> View:
    """The view on another screen; where an incident's time says nothing, the range from before is back."""
    there = replace(view, place=place)
    return there if place in EVIDENCE else given_back(there)


def own_words(view: View) -> str:
    """That the range is an incident's own time, unless it was changed since, and what gives back which; else empty."""
    if view.back is None or view.range == view.back:
        return ""
    own = "own time, " if _OWN.fullmatch(view.range.around) else ""
    return f"{own}Z: {view.back.text or 'all'}"
