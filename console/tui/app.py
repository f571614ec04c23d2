"""The terminal console: a timer that looks for news, the desk, and the screens that draw it.

Invariant: the desk changes here only; reading happens in one worker thread at a time and never in the event loop.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import ClassVar

from textual.app import App
from textual.binding import BindingType
from textual.worker import Worker, WorkerState

from console.core.desk import Desk
from console.core.places import TABS, Place
from console.core.snapshot import Snapshot
from console.core.source import Failure, LedgerSource
from console.core.view import Cue, Mode, View
from console.core.view_link import to_command
from console.tui.help_screen import HelpScreen
from console.tui.incident_screen import IncidentScreen
from console.tui.palette import DARK, LIGHT
from console.tui.screen_base import DeskScreen
from console.tui.screens import SCREENS

POLL_SECONDS = 1.0
REST_FACTOR = 4
"""A reading that computes for T seconds is followed by REST_FACTOR x T seconds of rest: a fifth of a core at most."""


class ConsoleApp(App[None]):
    """KV Witness in a terminal."""

    CSS_PATH = "console.tcss"
    TITLE = "kvwitness"
    BINDINGS: ClassVar[list[BindingType]] = []
    SCREENS = {place.value: screen for place, screen in SCREENS.items()}  # noqa: RUF012 Textual declares it so

    def __init__(self, source: LedgerSource, view: View | None = None) -> None:
        super().__init__()
        view = view or View()
        self._wanted = view.incident if view.place is Place.INCIDENT else None
        place = view.place if view.place in SCREENS else Place.INCIDENTS
        incident = view.incident if self._wanted is None else None
        self.source, self.desk = source, Desk(replace(view, place=place, incident=incident))
        self.ledger_name = source.path.resolve().name
        self.tabs = tuple(place for place in TABS if place in SCREENS)
        self._rest_until = 0.0

    def on_mount(self) -> None:
        """Themes, the list, and the first reading."""
        self.register_theme(DARK)
        self.register_theme(LIGHT)
        self.theme = DARK.name
        self.desk = replace(self.desk, remembered=self.source.remembered())
        self.push_screen(self.desk.view.place.value)
        self.look()
        self.set_interval(POLL_SECONDS, self.look)

    def look(self) -> None:
        """Read the ledger if it has changed, unless a reading is going on or has just cost much."""
        if any(worker.group == "reading" and not worker.is_finished for worker in self.workers):
            return
        if time.monotonic() >= self._rest_until:
            self.run_worker(self._read, thread=True, group="reading", exit_on_error=False)
        self.redraw_header()

    def _read(self) -> Snapshot | Failure | None:
        started = time.thread_time()
        reading = self.source.read_if_changed()
        if isinstance(reading, Snapshot):
            _ = (
                reading.rollup.incidents,
                reading.rollup.owners,
                reading.order,
            )  # computed here rather than while drawing
            took = time.thread_time() - started
            self._rest_until = time.monotonic() + REST_FACTOR * took
        return reading

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """A reading is done."""
        if event.worker.group == "reading" and event.state is WorkerState.SUCCESS and event.worker.result is not None:
            self.take(event.worker.result)

    def take(self, reading: Snapshot | Failure) -> None:
        """Put a reading on the desk and draw it."""
        self.desk = self.desk.offer(reading)
        if self._wanted is not None and self.desk.shown is not None:
            wanted, self._wanted = self._wanted, None
            if self.desk.incident_of(wanted) is None:
                self.notify(
                    f"{wanted} is no incident of this ledger; these are", title="No such incident", markup=False
                )
            else:
                self.open_incident(wanted)
        self.redraw()

    def redraw(self) -> None:
        """Draw the top screen."""
        if isinstance(self.screen, DeskScreen):
            self.screen.draw()

    def redraw_header(self) -> None:
        """Ages in the header move on although nothing else does."""
        if self.desk.view.paused or self.desk.is_remembered or self.desk.failure is not None:
            self.redraw()

    def go(self, place: Place) -> None:
        """To one of the screens with a number; what is looked at there stays as it was left."""
        if place not in SCREENS:
            self.notify(f"{place.value.capitalize()} is no screen of the terminal", markup=False)
            return
        if isinstance(self.screen, IncidentScreen):
            self.leave_incident()
        self.desk = replace(self.desk, view=replace(self.desk.view, place=place))
        if self.screen is not self.get_screen(place.value):
            self.switch_screen(place.value)

    def open_incident(self, incident_id: str, rid: str | None = None) -> None:
        """Open the Incident screen."""
        incident = self.desk.incident_of(incident_id)
        if incident is None or self.desk.shown is None:
            return
        self.desk = self.desk.open_incident(incident, rid)
        if not isinstance(self.screen, IncidentScreen):
            self.push_screen(IncidentScreen())

    def leave_incident(self) -> None:
        """Back to where it was opened."""
        self.pop_screen()
        below = self.screen
        self.desk = self.desk.leave_incident(below.PLACE if isinstance(below, DeskScreen) else Place.INCIDENTS)

    def do_pause(self) -> None:
        """Pause, or go on."""
        if self.desk.mode is Mode.FINISHED:
            self.notify("this ledger is finished: nothing will come in", markup=False)
        self.desk = self.desk.on(Cue.TOGGLE)
        self.redraw()

    def do_follow(self) -> None:
        """Go on."""
        self.desk = self.desk.on(Cue.FOLLOW)
        self.redraw()

    def do_copy(self) -> None:
        """Copy the command that opens this view."""
        command = to_command(self.desk.view, self.source.path)
        self.copy_to_clipboard(command)
        self.notify(command, title="Copied", markup=False)

    def do_help(self) -> None:
        """Keys and legend of the screen."""
        if isinstance(self.screen, DeskScreen):
            self.push_screen(HelpScreen(self.screen.PLACE))

    def do_quit(self) -> None:
        """Leave."""
        self.exit()
