"""What the console asks of the terminal itself: how often it looks, who has the mouse, the title, and a bell.

Invariant: nothing reaches the terminal but what `printable` let through; a bell rings for what opened while the console
looked, never for what it found when it began.
"""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path

from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter
from textual.timer import Timer

from console.core.looks import refresh_s
from console.core.printable import printable
from console.core.snapshot import Snapshot
from console.core.source import LedgerSource
from console.core.standing_rows import with_standing
from console.core.triage import Entry, State
from console.core.view import View
from console.tui.app_base import DeskApp, Surroundings
from console.tui.ascii_glyphs import in_ascii

_MOST_TOLD = 3
_MOUSE_MODES = (1000, 1003, 1015, 1006)
_KEEP_TITLE, _TITLE_BACK = "\x1b[22;0t", "\x1b[23;0t"


class AsciiFilter(LineFilter):
    """Every sign in ASCII."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """The same segments, as wide as they were."""
        return [Segment(in_ascii(text), style, control) for text, style, control in segments]


class TerminalActions(DeskApp):
    """Refresh, mouse, title and bell."""

    def __init__(self, source: LedgerSource, view: View, around: Surroundings) -> None:
        super().__init__(source, view, around)
        self.refresh_s = around.refresh_s
        self._timer: Timer | None = None
        self._has_mouse = around.mouse
        self._heard_open: dict[Path, frozenset[str]] = {}

    @abstractmethod
    def look(self) -> None:
        """Read the ledger if it has changed."""

    def look_again_and_again(self) -> None:
        """Begin to look, as often as was asked for."""
        if self._timer is not None:
            self._timer.stop()
        self._timer = self.set_interval(self.refresh_s, self.look)

    def do_refresh(self, text: str) -> None:
        """Look at the ledger as often as that."""
        self.refresh_s = refresh_s(text)
        self.look_again_and_again()
        self.say(f"the ledger is looked at every {self.refresh_s} s")
        self.redraw()

    def do_mouse(self) -> None:
        """Leave the mouse to the terminal, so that text can be selected, or take it again."""
        self._has_mouse = not self._has_mouse
        self.to_terminal("".join(f"\x1b[?{mode}{'h' if self._has_mouse else 'l'}" for mode in _MOUSE_MODES))
        self.say("the mouse is the console's" if self._has_mouse else "the mouse is the terminal's; F2 takes it back")

    def tell_opened(self, reading: Snapshot, path: Path, said: tuple[Entry, ...]) -> None:
        """Ring for what nobody has acknowledged and was not open at the last reading of this ledger, of which people `said`
        something; the title counts it."""
        if not self.around.bell:
            return
        known = with_standing(reading.rollup, said, self.now_us())
        states = dict(zip((i.id for i in known.incidents), known.tables["incidents"]["state"].to_pylist(), strict=True))
        is_open = frozenset(id_ for id_, state in states.items() if State.OPEN in state)
        before = self._heard_open.get(path)
        self._heard_open[path] = is_open
        name = printable(path.name)
        self.to_terminal(f"\x1b]2;{len(is_open)} open, {name}, kvwitness\x07")
        opened = [i for i in known.incidents if i.id in is_open - before] if before is not None else []
        for incident in opened[:_MOST_TOLD]:
            self.to_terminal(f"\x1b]9;{incident.severity.name} {incident.id} {printable(incident.title)}, {name}\x07")
        if opened:
            self.bell()

    def keep_title(self) -> None:
        """The terminal's own title, to be given back when the console ends."""
        if self.around.bell:
            self.to_terminal(_KEEP_TITLE)

    def on_unmount(self) -> None:
        """Give the title back."""
        if self.around.bell:
            self.to_terminal(_TITLE_BACK)

    def to_terminal(self, text: str) -> None:
        """Write to the terminal itself, past what is drawn."""
        if self._driver is not None:
            self._driver.write(text)
            self._driver.flush()
