"""What the Incident screen has worked out beside the event loop, and of what.

Invariant: two pictures of the same `Asked` are the same.
"""

from __future__ import annotations

from dataclasses import dataclass

from console.core.desk import Desk
from console.core.incidents import Incident
from console.core.lineage import Lineage
from console.core.page_events import PageStory
from console.core.page_map import PageMap, incident_area, page_map
from console.core.snapshot import Snapshot
from console.tui.notices import Notice

WORKING = Notice(
    "Working out its pages …", "Which they were, whose content stood there, and what happened in which order.", "esc goes back."
)  # fmt: skip
MAP_ROWS, MAP_MARGIN_US = 8, 5_000_000


@dataclass(frozen=True)
class Asked:
    """Of which reading of the ledger, response and page something is wanted. `from_end`: the last page found."""

    shown: int
    incident: str
    reading: str
    page: int | None
    from_end: bool = False


@dataclass(frozen=True)
class Told:
    """Pages and donors of a response, and the order of events on one of the pages."""

    asked: Asked
    known: Lineage
    story: PageStory | None


def told_of(desk: Desk, asked: Asked) -> Told | None:
    """Work it out; None where the desk points at no response."""
    known = desk.lineage()
    if known is None:
        return None
    if asked.from_end and known.found:
        desk = desk.select(page=known.found[-1])
    return Told(asked, known, desk.story(known))


def mapped(shown: Snapshot, incident: Incident, cols: int) -> PageMap | None:
    """The strip of the page map around an incident; None where it names no pages."""
    area = incident_area(shown, incident, MAP_MARGIN_US)
    return None if area is None else page_map(shown, area, rows=MAP_ROWS, cols=cols)
