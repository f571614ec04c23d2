"""What every screen of the terminal console has: header, breadcrumb, footer, actions from the one table.

Invariant: a screen draws from `app.desk` and changes it only through the app.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, cast

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.widgets import Static

from console.core.actions import BY_ID, actions_of, hints_of
from console.core.looking import left_of
from console.core.nearest import Nearest, nearest_of
from console.core.places import Place
from console.core.printable import printable
from console.core.trouble import trouble_of
from console.core.view import View
from console.tui.app_base import Refused
from console.tui.fixed import Fixed
from console.tui.layout import BREAKPOINTS
from console.tui.line_list import LineList
from console.tui.lines import cut, footer, header, tab_line, view_line, with_states
from console.tui.notices import Notice
from console.tui.palette import Palette, palette_of
from console.tui.pane_zoom import PaneZoom
from console.tui.table_actions import SHEET_OF

if TYPE_CHECKING:
    from console.tui.app import ConsoleApp

SMALLEST = (60, 18)


def bindings_of(place: Place) -> list[BindingType]:
    """Textual bindings of a screen; Enter belongs to the list that has the focus."""
    return [
        Binding(",".join(action.keys), f"desk('{action.id}')", action.words, show=False, id=action.id)
        for action in actions_of(place)
        if action.keys and action.id != "open"
    ]


class DeskScreen(PaneZoom):
    """A screen over the desk."""

    PLACE: ClassVar[Place]
    _is_composed = False
    _focused_before: Widget | None = None
    HORIZONTAL_BREAKPOINTS = BREAKPOINTS

    @property
    def console_app(self) -> ConsoleApp:
        """The app."""
        return cast("ConsoleApp", self.app)

    @property
    def palette(self) -> Palette:
        """Colours of the present theme."""
        return palette_of(self.app.theme)

    def compose(self) -> ComposeResult:
        """Header, body, footer, and the line that a terminal too small gets."""
        yield Fixed(id="header")
        yield Fixed(id="tabs")
        yield Fixed(id="crumbs")
        yield Fixed(id="notice")
        yield from self.compose_body()
        yield Fixed(id="footer")
        yield Static(id="too-small", markup=False)

    @abstractmethod
    def compose_body(self) -> ComposeResult:
        """The middle of the screen."""

    @abstractmethod
    def draw_body(self, width: int) -> None:
        """Draw the middle from the desk."""

    def on_mount(self) -> None:
        """First paint: only now everything is there that is drawn on."""
        self._is_composed = True
        self.draw()

    def on_screen_resume(self) -> None:
        """Back on top."""
        self.draw()

    def on_resize(self) -> None:
        """Every line is made for a width."""
        self.call_after_refresh(self.draw)

    def draw(self) -> None:
        """Draw everything from the desk; a screen that is still being composed is drawn when it is mounted."""
        if not self._is_there:
            return
        width, height = self.app.size
        small = width < SMALLEST[0] or height < SMALLEST[1]
        self.set_class(small, "-small")
        if small:
            words = f"needs {SMALLEST[0]}×{SMALLEST[1]}, now {width}×{height}"
            self.query_one("#too-small", Static).update(words)
            return
        self.draw_frame()
        self.draw_body(width)
        self.spread()

    @property
    def _is_there(self) -> bool:
        """Whether it is composed, and not being taken apart at the end."""
        return self._is_composed and bool(self.query("#header"))

    def draw_frame(self) -> None:
        """What stands around the body: ages in it move on although nothing else does."""
        if not self._is_there or self.has_class("-small"):
            return
        app, palette, width = self.console_app, self.palette, self.app.size.width
        named = app.ledger_name + " ▾" * (len(app.ledgers) > 1)
        above = header(
            app.desk, app.seen, named, app.now_us(), width, palette,
            writes=app.around.may_write, refresh_s=app.refresh_s,
        )  # fmt: skip
        self.query_one("#header", Fixed).update(above)
        self.query_one("#tabs", Fixed).update(tab_line(app.tabs, self.PLACE, width, palette))
        self.query_one("#crumbs", Fixed).update(
            self._fault_line(width) or with_states(self.crumbs(), app.states, width, palette)
        )
        hints = hints_of(self.PLACE)
        if self.alone is not None:
            hints = (replace(BY_ID["zoom_pane"], hint_words="all panes"), *hints)
        self.query_one("#footer", Fixed).update(footer(hints, width, palette))

    def crumbs(self) -> Text:
        """The view in words, what is left of the screen's table, and how whole the record is."""
        app, width = self.console_app, self.app.size.width
        known = app.seen
        if known is None:
            return cut(Text(f" {self.PLACE.value.capitalize()}", end="", style=self.palette.strong), width)
        at = app.looking()
        said = left_of(known, SHEET_OF[self.PLACE], at).words
        return view_line(at, said, width, self.palette, "" if app.is_all else known.record_words)

    def _fault_line(self, width: int) -> Text | None:
        """What is wrong with the picture as a whole, and what to do: on every screen in the same place."""
        desk = self.console_app.desk
        trouble = trouble_of(desk, self.console_app.now_us()) if desk.rollup is not None else None
        if trouble is None:
            return None
        return cut(Text(f" ! {printable(trouble.what)}; {printable(trouble.remedy)}", end="", style="bold"), width)

    def addressed(self, view: View) -> View:
        """The view with what this screen chose where it says nothing, so that its address opens what is seen."""
        return view

    def select(self, incident: str | None) -> None:
        """What is under the cursor is what actions are about."""
        app = self.console_app
        app.desk = replace(app.desk, view=replace(app.desk.view, incident=incident))

    def tell(self, told: Notice | None) -> None:
        """A notice in the place of the body, or the body again, with the focus where it was."""
        if told is not None and not self.has_class("-notice"):
            self._focused_before = self.focused
        elif told is None and self.has_class("-notice"):
            self.call_after_refresh(self._focus_again)
        self.set_class(told is not None, "-notice")
        self.query_one("#notice", Fixed).update(told.text(self.palette) if told else "")

    def _focus_again(self) -> None:
        """What is hidden loses the focus."""
        if self.focused is None and self._focused_before is not None and self._focused_before.is_attached:
            self._focused_before.focus()

    def do_zoom_pane(self) -> None:
        """The pane with the focus alone; all of them again where one is."""
        pane = self.focused.id if self.focused is not None else None
        if not self.all_panes():
            if pane is None or pane not in self.PANES:
                raise Refused("there is no pane here that could be seen alone; tab goes to the next one")
            self.zoom(pane)
        self.draw()

    def do_restore(self) -> bool:
        """All panes again, else no mark; whether there was anything to take back."""
        app = self.console_app
        if self.all_panes():
            self.draw()
            return True
        had = app.desk.view.mark_us is not None
        if had:
            app.change(replace(app.desk.view, mark_us=None))
        return had

    def nearest(self) -> Nearest | None:
        """What lies nearest to the range, where nothing of what this screen draws lies in it."""
        app = self.console_app
        known = app.desk.rollup
        return None if known is None else nearest_of(self.PLACE, known, app.desk.shown, app.looking())

    def nearest_words(self, earlier: str = "[", later: str = "]") -> str:
        """What lies nearest to a range in which this screen has nothing, and the keys that go there; else nothing."""
        near = self.nearest()
        return "" if near is None else near.words(earlier, later)

    def pointed_us(self) -> int | None:
        """The moment under the cursor, us UTC."""
        return self.console_app.desk.view.cursor_us

    def action_desk(self, action: str) -> None:
        """One action of the table: the focused list's, or the screen's own, or the app's."""
        moves = {"down": ("step", 1), "up": ("step", -1), "half_down": ("half", 1), "half_up": ("half", -1)}
        moves |= {"first": ("edge", -1), "last": ("edge", 1)}
        if action in moves:
            name, by = moves[action]
            if isinstance(self.focused, LineList):
                getattr(self.focused, f"action_{name}")(by)
            return
        self.console_app.ask_or_do(action)
