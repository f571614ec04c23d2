"""Which class draws which of the screens with a number.

Invariant: a screen that is not in here is in no tab line, has no key, and an address that names it is refused in words.
"""

from __future__ import annotations

from console.core.places import Place
from console.tui.events_screen import EventsScreen
from console.tui.held_screen import HeldScreen
from console.tui.incidents_screen import IncidentsScreen
from console.tui.latency_screen import LatencyScreen
from console.tui.overview_screen import OverviewScreen
from console.tui.pages_screen import PagesScreen
from console.tui.runbook_screen import RunbookScreen
from console.tui.screen_base import DeskScreen

SCREENS: dict[Place, type[DeskScreen]] = {
    Place.OVERVIEW: OverviewScreen,
    Place.INCIDENTS: IncidentsScreen,
    Place.PAGES: PagesScreen,
    Place.HELD: HeldScreen,
    Place.LATENCY: LatencyScreen,
    Place.RUNS: RunbookScreen,
    Place.EVENTS: EventsScreen,
}
