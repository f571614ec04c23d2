"""Help: the keys of the screen below, from the action table, and the legend of glyphs."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from console.core.actions import actions_of
from console.core.marks import SEVERITY_MARKS, VERDICT_MARKS, LinkStyle
from console.core.places import Place
from console.tui.palette import Palette, palette_of

MEANINGS = {
    "contaminated": "read another's content, and a token left afterwards",
    "unknown": "a gap or an undecidable order lies on the path",
    "corrupt": "wrong content, but nobody else's",
    "exposed": "foreign bytes were there, but no token rests on them",
    "clean": "read its own pages only",
}


class HelpScreen(ModalScreen[None]):
    """Keys and legend."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,question_mark,q", "close", "Close", show=False)]

    def __init__(self, place: Place) -> None:
        super().__init__()
        self.place = place

    def compose(self) -> ComposeResult:
        """One scrollable block."""
        with VerticalScroll(id="help"):
            yield Static(self.words(palette_of(self.app.theme)), markup=False)

    def words(self, palette: Palette) -> Text:
        """The help text."""
        text = Text()
        text.append(f"Keys of {self.place}\n", style=palette.strong)
        for action in actions_of(self.place):
            written = f":{action.command} {action.argument}".strip() if action.command else ""
            text.append(f"  {action.shown:<7}", style=palette.strong)
            text.append(action.words)
            text.append(f"  {written}\n", style=palette.quiet)
        text.append("  tab    next pane        ^p  command palette\n\nLegend\n", style=palette.quiet)
        for severity, mark in SEVERITY_MARKS.items():
            text.append(f"  {mark.glyph}{mark.word} ", style=palette.severity(severity))
        text.append("gravest first\n")
        for verdict, mark in VERDICT_MARKS.items():
            text.append(f"  {mark.glyph} {mark.word:<13}", style=palette.verdict(verdict))
            text.append(f"{MEANINGS[mark.word]}\n")
        for style in LinkStyle:
            text.append(f"  {style.stroke * 3}  {style.value}\n")
        text.append("  »   look here first   ≈ placed by a clock   g7 the life that reserve seq 7 began\n")
        return text

    def action_close(self) -> None:
        """Back."""
        self.dismiss()
