"""Words in a place whose size the style sheet says, such as a line of its own.

Invariant: to show something else lays nothing out anew, and to show the same draws nothing.
"""

from __future__ import annotations

from rich.text import Text
from textual.visual import VisualType
from textual.widgets import Static


class Fixed(Static):
    """Its height is not its words'."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, markup=False)
        self._shown: VisualType = ""

    def update(self, content: VisualType = "", *, layout: bool = False) -> None:
        """Show `content`, unless it is there."""
        if layout or not _same(content, self._shown):
            self._shown = content
            super().update(content, layout=layout)


def _same(one: VisualType, other: VisualType) -> bool:
    if isinstance(one, Text) and isinstance(other, Text):
        return one == other and one.style == other.style
    return isinstance(one, str) and one == other
