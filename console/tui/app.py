"""The terminal console: a timer that looks for news, the desk, and the screens that draw it.

Invariant: the desk changes here and in the groups of actions only; reading happens in one worker thread at a time and
never in the event loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from textual.binding import BindingType
from textual.filter import LineFilter, Monochrome, NoColor
from textual.worker import Worker

from console.core.actions import BY_ID, Action
from console.core.filter_language import FilterError
from console.core.ledger_names import ALL_LEDGERS
from console.core.nearest import Nearest
from console.core.own_time import has_range
from console.core.palettes import THEMES, theme_for
from console.core.places import MERGED, TABS, Place
from console.core.sheet import SOURCE
from console.core.source import LedgerSource
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
from console.tui.terminal_actions import AsciiFilter
from console.tui.time_actions import PAST, REPLAY_SECONDS, TimeActions
from forensics.rows import Row


class ConsoleApp(KeptActions, PromptActions, TimeActions):
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
        view = (view or View()).pause_replayed()
        self._wanted = (view.incident, view.rid, has_range(view)) if view.place is Place.INCIDENT else None
        place = view.place if view.place in SCREENS else Place.INCIDENTS
        around = around or Surroundings.of_user()
        super().__init__(source, replace(view, place=place, incident=None if self._wanted else view.incident), around)
        self._theme = theme_for(theme, around.environment).name
        self.open_ledgers((source, *others))
        self.tabs = tuple(place for place in TABS if place in SCREENS)
        self._replay = replay

    def on_mount(self) -> None:
        """Themes, the first screen, and the first reading."""
        for theme in THEMES.values():
            self.register_theme(textual_theme(theme))
        self.theme = PREFIX + self._theme
        if not self.is_all:
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

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """Something that was done beside the event loop is done."""
        take = {PAST: self.take_past, EXPORT: self.take_export}.get(event.worker.group, self.take_worker)
        take(event.worker)

    def taken(self) -> None:
        """What waits for a reading."""
        if self._replay and self.desk.shown is not None:
            self._replay = False
            self.attempt("replay")
        self.open_wanted()

    def open_wanted(self) -> None:
        """The incident that was asked for before the record was read; never over a line that is being written."""
        if self._wanted is None or not self.has_been_read or not isinstance(self.screen, DeskScreen):
            return
        (wanted, rid, keep_range), self._wanted = self._wanted, None
        if self.desk.incident_of(wanted) is None:
            self.say(f"{wanted} is no incident of this ledger; these are", title="No such incident")
        else:
            self.open_incident(wanted or "", rid, keep_range=keep_range)

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

    # Where one is

    def go(self, place: Place) -> None:
        """To one of the screens with a number; what is looked at there stays as it was left."""
        if place not in SCREENS:
            raise Refused(f"{place.value.capitalize()} is no screen of the terminal")
        if self.is_all and place not in MERGED:
            raise Refused(f"{place.value.capitalize()} is of one ledger; L chooses it")
        self.came_from_all()
        if isinstance(self.screen, IncidentScreen):
            self.pop_screen()
        self.desk = self.desk.go(place)
        if self.screen is not self.get_screen(place.value):
            self.switch_screen(place.value)

    def show_view(self, view: View) -> None:
        """Go to where a view looks; in the ledger that is looked at where it names none."""
        self.do_ledger(view.ledger or self.ledger_name)
        view = replace(view.pause_replayed(), ledger=self.desk.view.ledger)
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
        if incident.source:
            self.enter(incident.source)
            self.open_incident(incident.id, rid, keep_range=keep_range)
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
        if self.came_from_all():
            self.do_ledger(ALL_LEDGERS)

    def leave_incident_for(self, name: str) -> None:
        """Close an open incident, since another ledger is looked at."""
        self.came_from_all()
        if isinstance(self.screen, IncidentScreen):
            self.leave_incident()

    def do_incident(self, incident_id: str, rid: str | None = None, *, keep_range: bool = False) -> None:
        """An incident by its id."""
        if self.known.incident(incident_id) is None:
            there = ", ".join(i.key for i in self.known.incidents[:5]) or "none"
            raise Refused(f"there is no incident {incident_id}; there are: {there}")
        self.open_incident(incident_id, rid, keep_range=keep_range)

    def do_response(self, rid: str, source: str = "") -> None:
        """A response, in its incident; of the ledger `source` where several are looked at and it is said."""
        known = self.known.incidents
        incident = next((i for i in known if rid in i.rids and source in ("", i.source)), None)
        if incident is None:
            raise Refused(f"no incident concerns a response {rid}; forensics entity {rid} tells its life")
        self.open_incident(incident.key, rid)

    def open_event(self, row: Row) -> None:
        """The incident of an event's response; of one that was found among all ledgers without it, its place in its own."""
        source, rid = row.get(SOURCE, ""), row["rid"]
        concerned = any(rid in i.rids and i.source == source for i in self.known.incidents)
        if source and not concerned:
            self.do_ledger(source)
            self.change(replace(self.desk.view, cursor_us=row["t"]))
        elif rid is None:
            self.say("this event belongs to no response")
        else:
            try:
                self.do_response(rid, source)
            except Refused as error:
                self.say(str(error), title="Not done")

    def do_page(self, number: str) -> None:
        """A page, on the page map."""
        if not number.isdecimal():
            raise Refused(f"{number!r} is no page; a page is a whole number")
        self.go(Place.PAGES)
        self.change(replace(self.desk.view, page=int(number)))

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
        command = to_command(view, *self.paths)
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
