"""The silences that go on: who, why, for how long already and still; what ends soon first and said so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from console.core.standing_words import silence_words
from console.core.triage import Silence
from console.tui.palette import palette_of


class SilencesScreen(ModalScreen[None]):
    """A list to read; `:unsilence ID` ends one."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,enter", "close", "Close", show=False)]

    def __init__(self, silences: Sequence[Silence], now_us: int) -> None:
        super().__init__()
        self._silences, self._now_us = silences, now_us

    def compose(self) -> ComposeResult:
        """One scrollable block."""
        palette = palette_of(self.app.theme)
        text = Text("Silences\n", style=palette.strong)
        for silence in self._silences:
            ends = silence.ends_soon
            text.append(f"  {silence_words(silence, self._now_us)}\n", style=palette.strong if ends else "default")
        if not self._silences:
            text.append("  none goes on\n", style="default")
        text.append("\n  :unsilence ID ends one   esc closes\n", style=palette.quiet)
        with VerticalScroll(id="silences"):
            yield Static(text, markup=False)

    def action_close(self) -> None:
        """Back."""
        self.dismiss()
