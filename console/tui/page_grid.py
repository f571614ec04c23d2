"""The page map as a widget: lines that are drawn as they are, and a cursor over their cells.

Invariant: the cursor is a cell that was given; the grid moves nothing itself, it says what was asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from console.tui.line_list import CURSOR
from console.tui.page_lines import MARGIN


class PageGrid(Widget, can_focus=True):
    """Rows of cells behind a margin of MARGIN columns."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "move(0, -1)", show=False),
        Binding("right", "move(0, 1)", show=False),
        Binding("up", "move(-1, 0)", show=False),
        Binding("down", "move(1, 0)", show=False),
        Binding("pageup", "move(-8, 0)", show=False),
        Binding("pagedown", "move(8, 0)", show=False),
        Binding("enter", "open", show=False),
    ]

    class Moved(Message):
        """The cursor is to go so many rows and columns on."""

        def __init__(self, rows: int, cols: int) -> None:
            self.rows, self.cols = rows, cols
            super().__init__()

    class Opened(Message):
        """What is under the cursor is to be opened."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._strips: list[Strip] = []
        self._cursor: tuple[int, int] | None = None

    def show(self, lines: Sequence[Text]) -> None:
        """Draw other lines."""
        self._strips = [Strip(list(line.render(self.app.console)), line.cell_len) for line in lines]
        self.refresh()

    def point(self, row: int, col: int) -> None:
        """Put the cursor on a cell."""
        if (row, col) != self._cursor:
            self._cursor = (row, col)
            self.refresh()

    def action_move(self, rows: int, cols: int) -> None:
        """Ask for another cell."""
        self.post_message(self.Moved(rows, cols))

    def action_open(self) -> None:
        """Ask to open what is there."""
        self.post_message(self.Opened())

    def on_click(self, event: events.Click) -> None:
        """A click moves the cursor; a second one on the same cell opens it."""
        if self._cursor is None or event.x < MARGIN:
            return
        rows, cols = event.y - self._cursor[0], event.x - MARGIN - self._cursor[1]
        self.post_message(self.Moved(rows, cols) if rows or cols else self.Opened())

    def render_line(self, y: int) -> Strip:
        """One row of the screen."""
        width, style = self.size.width, self.visual_style.rich_style
        if y >= len(self._strips):
            return Strip.blank(width, style)
        strip = self._strips[y].apply_style(style)
        if self._cursor is not None and self._cursor[0] == y:
            at = MARGIN + self._cursor[1]
            here = Strip([Segment(CURSOR.strip(), style)], 1)
            strip = Strip.join([here, strip.crop(1, at), _pointed_at(strip.crop(at, at + 1)), strip.crop(at + 1)])
        return strip.adjust_cell_length(width, style)


def _pointed_at(cell: Strip) -> Strip:
    """A cell turned round: a mark, which is reversed already, stands upright and underlined."""
    return Strip(
        [
            Segment(
                s.text,
                (s.style or Style()) + Style(reverse=not (s.style and s.style.reverse), underline=True, bold=True),
            )
            for s in cell
        ],
        1,
    )
