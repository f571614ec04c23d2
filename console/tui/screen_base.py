"""What every screen of the terminal console has: header, breadcrumb, footer, actions from the one table.

Invariant: a screen draws from `app.desk` and changes it only through the app.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, cast

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import Static

from console.core.actions import actions_of, hints_of
from console.core.places import TABS, Place
from console.tui.line_list import LineList
from console.tui.lines import footer, header, tab_line
from console.tui.palette import Palette

if TYPE_CHECKING:
    from console.tui.app import ConsoleApp

SMALLEST = (60, 18)


BUILT = frozenset(
    {
        *(f"go_{place}" for place in TABS), "open", "back", "pause", "follow", "next_found", "previous_found", "next_response", "previous_response",
        "next_incident", "previous_incident", "down", "up", "first", "last", "half_down", "half_up", "copy", "help", "quit",
    }
)  # fmt: skip
"""Actions that the terminal's screens have."""


def bindings_of(place: Place) -> list[BindingType]:
    """Textual bindings of a screen; Enter belongs to the list that has the focus."""
    return [
        Binding(",".join(action.keys), f"desk('{action.id}')", action.words, show=False, id=action.id)
        for action in actions_of(place, BUILT)
        if action.id != "open"
    ]


class DeskScreen(Screen[None]):
    """A screen over the desk."""

    PLACE: ClassVar[Place]
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (140, "-wide")]  # noqa: RUF012 Textual declares it on instances

    @property
    def console_app(self) -> ConsoleApp:
        """The app."""
        return cast("ConsoleApp", self.app)

    @property
    def palette(self) -> Palette:
        """Colours of the present theme."""
        return Palette(self.app.current_theme.dark)

    def compose(self) -> ComposeResult:
        """Header, body, footer, and the line that a terminal too small gets."""
        yield Static(id="header", markup=False)
        yield Static(id="tabs", markup=False)
        yield Static(id="crumbs", markup=False)
        yield from self.compose_body()
        yield Static(id="footer", markup=False)
        yield Static(id="too-small", markup=False)

    def compose_body(self) -> ComposeResult:
        """The middle of the screen."""
        raise NotImplementedError

    def draw_body(self, width: int) -> None:
        """Draw the middle from the desk."""
        raise NotImplementedError

    def crumbs(self) -> Text:
        """Where one is."""
        raise NotImplementedError

    def on_mount(self) -> None:
        """First paint."""
        self.draw()

    def on_screen_resume(self) -> None:
        """Back on top."""
        self.draw()

    def on_resize(self) -> None:
        """Every line is made for a width."""
        self.call_after_refresh(self.draw)

    def draw(self) -> None:
        """Draw everything from the desk; a screen that is still being composed is drawn when it is mounted."""
        if not self.query("#header"):
            return
        width, height = self.app.size
        small = width < SMALLEST[0] or height < SMALLEST[1]
        self.set_class(small, "-small")
        if small:
            words = f"needs {SMALLEST[0]}×{SMALLEST[1]}, now {width}×{height}"
            self.query_one("#too-small", Static).update(words)
            return
        app = self.console_app
        palette = self.palette
        self.query_one("#header", Static).update(header(app.desk, app.ledger_name, app.source.now_us(), width, palette))
        self.query_one("#tabs", Static).update(tab_line(app.tabs, self.PLACE, width, palette))
        self.query_one("#crumbs", Static).update(self.crumbs())
        self.query_one("#footer", Static).update(footer(hints_of(self.PLACE, BUILT), width, palette))
        self.draw_body(width)

    def action_desk(self, action: str) -> None:
        """One action of the table: the screen's own, the focused list's, or the app's."""
        if action.startswith("go_"):
            self.console_app.go(Place(action.removeprefix("go_")))
            return
        own = getattr(self, f"do_{action}", None)
        if own is not None:
            own()
            return
        moves = {"down": ("step", 1), "up": ("step", -1), "half_down": ("half", 1), "half_up": ("half", -1)}
        moves |= {"first": ("edge", -1), "last": ("edge", 1)}
        if action in moves:
            name, by = moves[action]
            if isinstance(self.focused, LineList):
                getattr(self.focused, f"action_{name}")(by)
            return
        getattr(self.console_app, f"do_{action}")()
