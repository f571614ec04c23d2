"""The screens, by name: the same in the terminal, in addresses and in commands."""

from __future__ import annotations

from enum import StrEnum


class Place(StrEnum):
    """A screen. Its value is its `:` command and the first part of its address; keys 1 to 7 are in this order."""

    OVERVIEW = "overview"
    INCIDENTS = "incidents"
    PAGES = "pages"
    HELD = "held"
    LATENCY = "latency"
    RUNS = "runs"
    EVENTS = "events"
    INCIDENT = "incident"


TABS = tuple(place for place in Place if place is not Place.INCIDENT)
"""The screens with a number; an incident is opened from one of them."""
EVERYWHERE = tuple(Place)
MERGED = (Place.OVERVIEW, Place.INCIDENTS, Place.EVENTS)
"""The screens that show several ledgers at once; the others are of one."""
