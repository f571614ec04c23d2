"""A line to write into, at the bottom of the screen that stays in sight: commands and filters.

Invariant: nothing is done while it is open; it hands back what was written, or nothing. What could not be used stands in
it again, with the fault under its place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from console.core.printable import printable
from console.tui.palette import palette_of


@dataclass(frozen=True)
class Ask:
    """What is asked for. `sigil` is the key that opens it; `complete` gives whole texts; `history`: the latest last.

    `fault`: why `text` could not be used, and `at`: its place in it, from 0.
    """

    sigil: str
    text: str = ""
    complete: Callable[[str], Sequence[str]] = lambda _: ()
    history: Sequence[str] = ()
    fault: str = ""
    at: int = 0


class PromptScreen(ModalScreen[str | None]):
    """One line, its completions above it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "give_up", show=False),
        Binding("tab", "complete", show=False, priority=True),
        Binding("up", "recall(-1)", show=False, priority=True),
        Binding("down", "recall(1)", show=False, priority=True),
    ]

    def __init__(self, ask: Ask) -> None:
        super().__init__()
        self.ask, self._at = ask, len(ask.history)

    def compose(self) -> ComposeResult:
        """Fault, completions, line."""
        with Vertical(id="prompt"):
            yield Static(id="prompt-words", markup=False)
            with Horizontal(id="prompt-line"):
                yield Static(self.ask.sigil, id="prompt-sigil", markup=False)
                line = Input(self.ask.text, id="prompt-input", compact=True, select_on_focus=False)
                line.cursor_blink = False
                yield line

    def on_mount(self) -> None:
        """What is wrong, or what may follow."""
        line = self.query_one(Input)
        line.focus()
        line.cursor_position = len(self.ask.text)
        self._draw_words()

    def _draw_words(self) -> None:
        width, palette, text = self.app.size.width, palette_of(self.app.theme), self.query_one(Input).value
        if self.ask.fault and text == self.ask.text:
            caret = " " * min(len(self.ask.sigil) + self.ask.at, width - 2) + "^ "
            words = Text(f"{printable(self.ask.fault)}\n", style=palette.strong).append(caret)
        else:
            words = Text(
                "  ".join(self.ask.complete(text)) or "↵ does it   esc leaves", style=palette.quiet, no_wrap=True
            )
            words.truncate(width, overflow="ellipsis")
        self.query_one("#prompt-words", Static).update(words)

    @on(Input.Changed)
    def _changed(self) -> None:
        self._draw_words()

    @on(Input.Submitted)
    def _done(self, event: Input.Submitted) -> None:
        self.dismiss(event.value)

    def action_give_up(self) -> None:
        """Leave it."""
        self.dismiss(None)

    def action_complete(self) -> None:
        """Take the first completion that goes on."""
        line = self.query_one(Input)
        found = [text for text in self.ask.complete(line.value) if text != line.value]
        if found:
            line.value = found[0]
            line.cursor_position = len(found[0])

    def action_recall(self, by: int) -> None:
        """What was written before."""
        if self.ask.history:
            self._at = min(max(self._at + by, 0), len(self.ask.history) - 1)
            line = self.query_one(Input)
            line.value = self.ask.history[self._at]
            line.cursor_position = len(line.value)
