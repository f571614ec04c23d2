"""The terminal console: a timer that looks for news, the desk, and the screens that draw it.

Invariant: the desk changes here and in the groups of actions only; reading happens in one worker thread at a time and
never in the event loop.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import ClassVar

from textual.binding import BindingType
from textual.filter import LineFilter, Monochrome, NoColor
from textual.worker import Worker, WorkerState

from console.core.actions import BY_ID, Action
from console.core.desk import Desk
from console.core.filter_language import FilterError
from console.core.ledger_names import ledger_names
from console.core.live_edge import Looked
from console.core.nearest import Nearest
from console.core.own_time import has_range
from console.core.palettes import THEMES, theme_for
from console.core.places import TABS, Place
from console.core.printable import printable
from console.core.snapshot import Snapshot
from console.core.source import Failure, LedgerSource
from console.core.triage import TriageError
from console.core.view import Mode, View
from console.core.view_link import absolute, to_command, to_link
from console.tui.app_base import REFUSALS, Refused, Surroundings
from console.tui.ascii_glyphs import asks_ascii
from console.tui.find_command import Actions
from console.tui.help_screen import HelpScreen
from console.tui.incident_screen import IncidentScreen
from console.tui.kept_actions import KeptActions
from console.tui.palette import PREFIX, textual_theme
from console.tui.prompt_actions import PromptActions
from console.tui.screen_base import DeskScreen
from console.tui.screens import SCREENS
from console.tui.table_actions import EXPORT
from console.tui.terminal_actions import AsciiFilter, TerminalActions
from console.tui.time_actions import PAST, REPLAY_SECONDS, TimeActions

REST_FACTOR = 4
"""A reading that computes for T seconds is followed by REST_FACTOR x T seconds of rest: a fifth of a core at most."""


class ConsoleApp(PromptActions, TimeActions, KeptActions, TerminalActions):
    """KV Witness in a terminal."""

    CSS_PATH = "console.tcss"
    TITLE = "kvwitness"
    BINDINGS: ClassVar[list[BindingType]] = []
    COMMANDS = {Actions}  # noqa: RUF012 Textual declares it so
    SCREENS = {place.value: screen for place, screen in SCREENS.items()}  # noqa: RUF012 Textual declares it so

    def __init__(
        self,
        source: LedgerSource,
        view: View | None = None,
        *,
        around: Surroundings | None = None,
        theme: str | None = None,
        others: Sequence[LedgerSource] = (),
        replay: bool = False,
    ) -> None:
        view = view or View()
        self._wanted = (view.incident, view.rid, has_range(view)) if view.place is Place.INCIDENT else None
        place = view.place if view.place in SCREENS else Place.INCIDENTS
        around = around or Surroundings.of_user()
        super().__init__(source, replace(view, place=place, incident=None if self._wanted else view.incident), around)
        self._theme = theme_for(theme, around.environment).name
        given = (source, *others)
        self._sources = dict(zip(ledger_names([s.path for s in given]), given, strict=True))
        self._desks: dict[str, Desk] = {}
        self.tabs = tuple(place for place in TABS if place in SCREENS)
        self._rest_until = 0.0
        self._replay = replay

    @property
    def ledger_name(self) -> str:
        """Of the ledger that is looked at."""
        return next(name for name, source in self._sources.items() if source is self.source)

    @property
    def ledgers(self) -> Sequence[str]:
        """Of the ledgers that were given."""
        return tuple(self._sources)

    def on_mount(self) -> None:
        """Themes, the first screen, and the first reading."""
        for theme in THEMES.values():
            self.register_theme(textual_theme(theme))
        self.theme = PREFIX + self._theme
        self.desk = replace(self.desk, remembered=self.source.remembered())
        self.listen()
        self.push_screen(self.desk.view.place.value)
        self.look()
        self.keep_title()
        self.look_again_and_again()
        self.set_interval(REPLAY_SECONDS, self.tick)

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Under NO_COLOR no colour is written at all, not even the greys that Textual would make of them."""
        plain = self.around.ascii or asks_ascii(self.around.environment)
        signs: list[LineFilter] = [AsciiFilter()] if plain else []
        if self.around.environment.get("NO_COLOR"):
            return [NoColor(), *signs]
        return [*(each for each in super().get_line_filters() if not isinstance(each, Monochrome)), *signs]

    def look(self) -> None:
        """Read the ledger if it has changed, unless a reading is going on or has just cost much."""
        self._open_wanted()
        self.desk = replace(self.desk, last_look=self.source.looks.last)
        going_on = {worker.group for worker in self.workers if not worker.is_finished}
        if "edge" not in going_on and self.desk.shown is not None:
            self.run_worker(self.source.edge, thread=True, group="edge", name=self.ledger_name, exit_on_error=False)
        if "reading" not in going_on and time.monotonic() >= self._rest_until:
            reading = partial(self._read, self.source)
            self.run_worker(reading, thread=True, group="reading", name=self.ledger_name, exit_on_error=False)
        self.redraw_header()

    def _read(self, source: LedgerSource) -> tuple[Snapshot | Failure, Looked | None] | None:
        """A reading, if there is a new one, and what the streams hold beyond it by now."""
        started = time.thread_time()
        reading = source.read_if_changed()
        if isinstance(reading, Snapshot):
            # Computed here rather than while drawing.
            _ = (reading.rollup.incidents, reading.rollup.owners, reading.rollup.held, reading.order)
            self._rest_until = time.monotonic() + REST_FACTOR * (time.thread_time() - started)
        return None if reading is None else (reading, source.edge())

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """A reading is done; one of a ledger that is not looked at any more waits until it is again."""
        worker = event.worker
        if worker.group == PAST:
            self.take_past(worker)
            return
        if worker.group == EXPORT:
            self.take_export(worker)
            return
        if worker.group == "edge" and event.state is WorkerState.SUCCESS and worker.name == self.ledger_name:
            self._take_edge(worker.result)
        if worker.group != "reading" or event.state is not WorkerState.SUCCESS or worker.result is None:
            return
        reading, beyond = worker.result
        if worker.name == self.ledger_name:
            self.take(reading, beyond)
        elif worker.name in self._desks:
            self._desks[worker.name] = self._desks[worker.name].offer(reading)

    def take(self, reading: Snapshot | Failure, beyond: Looked | None = None) -> None:
        """Put a reading on the desk, with what the streams hold beyond it, and draw it."""
        self.desk = self.desk.offer(reading)
        if beyond is not None:
            self.desk = self.desk.offer_edge(*beyond)
        if isinstance(reading, Snapshot):
            self._end_silences(reading)
            self.tell_opened(reading)
            problem = reading.first_problem
            if problem is not None:
                self.say_once(
                    f"{printable(problem.where)}: {printable(problem.what)}; next: {printable(problem.remedy)}"
                )
        if self._replay and self.desk.shown is not None:
            self._replay = False
            self.attempt("replay")
        self._open_wanted()
        self.redraw()

    def _take_edge(self, found: Looked | None) -> None:
        before = self.desk
        if found is not None:
            self.desk = before.offer_edge(*found)
        if self.desk.live is not before.live:
            self.redraw()

    def _open_wanted(self) -> None:
        """The incident that was asked for before the record was read; never over a line that is being written."""
        if self._wanted is None or self.desk.shown is None or not isinstance(self.screen, DeskScreen):
            return
        (wanted, rid, keep_range), self._wanted = self._wanted, None
        if self.desk.incident_of(wanted) is None:
            self.say(f"{wanted} is no incident of this ledger; these are", title="No such incident")
        else:
            self.open_incident(wanted or "", rid, keep_range=keep_range)

    def _end_silences(self, reading: Snapshot) -> None:
        """End what is over, where that may be written, and hear what others have said since."""
        try:
            if self.around.may_write:
                self.book().end_silences(reading.incidents)
        except (TriageError, OSError) as error:
            self.say_once(str(error))
            return
        self.listen()

    def redraw(self) -> None:
        """Draw the top screen; at the end there is none."""
        for top in self.screen_stack[-1:]:
            if isinstance(top, DeskScreen):
                top.draw()

    def nearest(self) -> Nearest | None:
        """What lies nearest to the range, where the screen that is seen has nothing in it."""
        return self.screen.nearest() if isinstance(self.screen, DeskScreen) else None

    def pointed_us(self) -> int | None:
        """The moment under the cursor of the screen that is seen."""
        return self.screen.pointed_us() if isinstance(self.screen, DeskScreen) else self.desk.view.cursor_us

    def redraw_header(self) -> None:
        """Ages in the header move on although nothing else does; so does this machine's clock."""
        for top in self.screen_stack[-1:]:
            if isinstance(top, DeskScreen):
                top.draw_frame()

    # Where one is

    def go(self, place: Place) -> None:
        """To one of the screens with a number; what is looked at there stays as it was left."""
        if place not in SCREENS:
            raise Refused(f"{place.value.capitalize()} is no screen of the terminal")
        if isinstance(self.screen, IncidentScreen):
            self.pop_screen()
        self.desk = self.desk.go(place)
        if self.screen is not self.get_screen(place.value):
            self.switch_screen(place.value)

    def show_view(self, view: View) -> None:
        """Go to where a view looks."""
        if view.place is Place.INCIDENT and view.incident:
            self.desk = replace(self.desk, view=replace(view, place=self.desk.view.place, mode=self.desk.mode))
            self.do_incident(view.incident, view.rid, keep_range=has_range(view))
            return
        self.go(view.place)
        mode = self.desk.mode if view.mode is Mode.LIVE else view.mode
        self.change(replace(view, mode=mode))

    def open_incident(self, incident_id: str, rid: str | None = None, *, keep_range: bool = False) -> None:
        """Open the Incident screen, at the incident's own time unless the range is to be kept."""
        incident = self.desk.incident_of(incident_id)
        if incident is None:
            return
        if self.desk.shown is None:
            self._wanted = (incident_id, rid, keep_range)
            self.say("this is remembered of an earlier opening; it opens as soon as the record has been read")
            return
        self.desk = self.desk.open_incident(incident, rid, keep_range=keep_range)
        if not isinstance(self.screen, IncidentScreen):
            self.push_screen(IncidentScreen())
        else:
            self.redraw()

    def leave_incident(self) -> None:
        """Back to where it was opened."""
        self.pop_screen()
        below = self.screen
        self.desk = self.desk.leave_incident(below.PLACE if isinstance(below, DeskScreen) else Place.INCIDENTS)

    def do_incident(self, incident_id: str, rid: str | None = None, *, keep_range: bool = False) -> None:
        """An incident by its id."""
        if self.known.incident(incident_id) is None:
            there = ", ".join(i.id for i in self.known.incidents[:5]) or "none"
            raise Refused(f"there is no incident {incident_id}; there are: {there}")
        self.open_incident(incident_id, rid, keep_range=keep_range)

    def do_response(self, rid: str) -> None:
        """A response, in its incident."""
        incident = next((i for i in self.known.incidents if rid in i.rids), None)
        if incident is None:
            raise Refused(f"no incident concerns a response {rid}; forensics entity {rid} tells its life")
        self.open_incident(incident.id, rid)

    def do_page(self, number: str) -> None:
        """A page, on the page map."""
        if not number.isdecimal():
            raise Refused(f"{number!r} is no page; a page is a whole number")
        self.go(Place.PAGES)
        self.change(replace(self.desk.view, page=int(number)))

    def do_ledger(self, name: str) -> None:
        """Another of the ledgers that were given; each keeps the view it was left with."""
        if name not in self._sources:
            raise Refused(f"there is no ledger {name}; there are: {', '.join(self._sources)}")
        if name == self.ledger_name:
            return
        if isinstance(self.screen, IncidentScreen):
            self.leave_incident()
        place = self.desk.view.place
        self._desks[self.ledger_name] = self.desk
        self.source = self._sources[name]
        fresh = Desk(View(place=place), remembered=self.source.remembered())
        desk = self._desks.pop(name, fresh)
        self.desk = replace(desk, view=replace(desk.view, place=place))
        self._rest_until = 0.0
        self.listen()
        self.look()
        self.redraw()

    # What is asked for

    def ask_or_do(self, action_id: str) -> None:
        """An action by its key: at once, or after asking for what it takes."""
        action = BY_ID[action_id]
        if action.argument and not action.argument.startswith("["):
            self.ask(f"{action.command} ")
        else:
            self.perform(action)

    def attempt(self, action_id: str, argument: str = "") -> None:
        """An action of a screen; where it is refused, that is said."""
        self.perform(BY_ID[action_id], argument)

    def perform(self, action: Action, argument: str = "", asked: str | None = None) -> None:
        """Do it. What is refused is said where it was `asked` for, else as a message."""
        try:
            self._do(action, argument)
        except REFUSALS as error:
            if asked is None:
                self.say(str(error), title="Not done")
                return
            at = len(asked) - len(argument) + (error.at if isinstance(error, FilterError) else 0)
            self.ask(asked, str(error), at)

    def _do(self, action: Action, argument: str) -> None:
        if action.id.startswith("go_"):
            self.go(Place(action.id.removeprefix("go_")))
            return
        own = getattr(self.screen, f"do_{action.id}", None)
        if own is not None:
            own(argument) if action.argument else own()
            return
        if action.id == "filter" and not argument:
            self.ask_filter()
            return
        do = getattr(self, f"do_{action.id}", None)
        if do is None:
            there = " or ".join(f"{TABS.index(p) + 1} {p.value.capitalize()}" for p in action.places if p in TABS)
            raise Refused(f":{action.command} works on {there}")
        do(argument) if action.argument else do()

    # What is handed out

    def do_copy(self) -> None:
        """Copy the address and the command that open this view."""
        self._hand_out(self.desk.view)

    def do_share(self) -> None:
        """The same with its times written out."""
        self._hand_out(absolute(self.desk.view, self.range_now(), self.known.span))

    def _hand_out(self, view: View) -> None:
        view = self.screen.addressed(view) if isinstance(self.screen, DeskScreen) else view
        command = to_command(view, self.source.path)
        self.copy_to_clipboard(f"{to_link(view)}\n{command}")
        self.say(f"{to_link(view)}\n{command}", title="Copied")

    def do_export(self, text: str) -> None:
        """The table as it stands, the evidence, or a picture of the screen."""
        if text.strip() == "bundle":
            self.export_bundle()
            return
        if text.strip() != "svg":
            super().do_export(text)
            return
        name = f"{self.ledger_name.replace('/', '-')}-{self.desk.view.place}.svg"
        picture = self.export_screenshot().encode()
        path, _ = self.keep_file(name, lambda file: file.write(picture))
        self.say(path, title="Exported")

    def do_theme(self, name: str = "") -> None:
        """Another theme; the next one where none is named."""
        names = list(THEMES)
        if name and name not in THEMES:
            raise Refused(f"there is no theme {name}; there are: {', '.join(names)}")
        now = self.theme.removeprefix(PREFIX)
        self.theme = PREFIX + (name or names[(names.index(now) + 1) % len(names)])
        self.redraw()

    def do_palette(self) -> None:
        """Find any command."""
        self.action_command_palette()

    def do_help(self) -> None:
        """Keys and legend of the screen."""
        if isinstance(self.screen, DeskScreen):
            self.push_screen(HelpScreen(self.screen.PLACE))

    def do_quit(self) -> None:
        """Leave."""
        self.exit()
