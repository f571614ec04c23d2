"""A block of lines that are drawn as they are: nothing is measured or wrapped.

Invariant: a line is cut or padded to the width of the block.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.style import Style
from rich.text import Text
from textual.strip import Strip
from textual.widget import Widget


class Canvas(Widget):
    """Lines made for a width. `pane`: it takes the focus, which its first line then shows, so that it can be seen alone."""

    DEFAULT_CSS = "Canvas { height: auto; width: 100%; }"

    def __init__(self, *, id: str | None = None, pane: bool = False) -> None:
        super().__init__(id=id)
        self.can_focus = pane
        self._lines: Sequence[Text] = ()

    def show(self, lines: Sequence[Text]) -> None:
        """Draw `lines`; as high as they are, unless its height is set."""
        changed = len(lines) != len(self._lines)
        self._lines = lines
        self.refresh(layout=changed)

    def get_content_height(self, container: object, viewport: object, width: int) -> int:
        """As many rows as there are lines."""
        return len(self._lines)

    def render_line(self, y: int) -> Strip:
        """One row of the screen."""
        width, style = self.size.width, self.visual_style.rich_style
        if y >= len(self._lines):
            return Strip.blank(width, style)
        text = self._lines[y].copy()
        text.end = ""
        text.truncate(width, overflow="ellipsis", pad=True)
        strip = Strip(list(text.render(self.app.console)), width).apply_style(style)
        return strip.apply_style(Style(reverse=True)) if y == 0 and self.has_focus else strip
