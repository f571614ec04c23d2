"""One pane of a screen over all of its body, and all of them again.

Invariant: a zoom hides and shows; it moves no cursor and changes nothing of what is looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from textual.screen import Screen
from textual.widget import Widget

BEHIND = "-behind"


class PaneZoom(Screen[None]):
    """A screen of panes, each named by the widget that takes the keys, with what belongs to it."""

    PANES: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    FRAME: ClassVar[frozenset[str]] = frozenset({"header", "tabs", "crumbs", "notice", "footer", "too-small"})
    alone: str | None = None
    """The pane that has all of the body."""

    def zoom(self, pane: str) -> None:
        """Show one pane alone, under the frame, and give it the keys."""
        self.all_panes()
        self.alone = pane
        self.call_after_refresh(self.query_one(f"#{pane}").focus)  # one that was hidden takes no focus before
        kept = {pane, *self.PANES[pane]} | self.FRAME
        for level in self._front():
            beside = level.parent.children if isinstance(level.parent, Widget) else ()
            for widget in beside:
                widget.set_class(widget is not level and widget.id not in kept, BEHIND)

    def all_panes(self) -> bool:
        """Show all panes; whether one was alone. Their sizes are those of the next drawing."""
        if self.alone is None:
            return False
        for widget in self._front():
            widget.styles.clear_rule("height")
            widget.styles.clear_rule("width")
        self.query(f".{BEHIND}").remove_class(BEHIND)
        self.alone = None
        return True

    def spread(self) -> None:
        """Give the pane that is alone all of the body; where it has gone, because the terminal has become narrow, show all."""
        front = self._front()
        if any(not widget.display for widget in front):
            self.all_panes()
            return
        for widget in front:
            widget.styles.height, widget.styles.width = "1fr", "1fr"

    def _front(self) -> list[Widget]:
        """The pane that is alone, and the containers that it lies in, below the screen."""
        if self.alone is None:
            return []
        pane = self.query_one(f"#{self.alone}")
        return [pane, *(each for each in pane.ancestors if isinstance(each, Widget) and not isinstance(each, Screen))]
