"""Colours of the terminal screens, from the themes of the core; every one only repeats what a glyph or a word says."""

from __future__ import annotations

from dataclasses import dataclass

from rich.style import Style
from textual.theme import Theme as TextualTheme

from console.core.marks import Severity
from console.core.palettes import DARK, THEMES, Theme
from forensics.verdict import Verdict

PREFIX = "kvwitness-"
_PANELS = {"dark": "#1E1E1E", "light": "#F0F0F0", "contrast": "#202020"}
_ANSI_PARTS = {
    "ansi-background": "ansi_default", "ansi-foreground": "ansi_default", "border-blurred": "ansi_default",
    "block-cursor-foreground": "ansi_default", "block-cursor-background": "ansi_default",
    "input-cursor-background": "ansi_default", "input-cursor-foreground": "ansi_default", "input-cursor-text-style": "reverse",
    "input-selection-background": "ansi_default", "input-selection-foreground": "ansi_default",
    "screen-selection-background": "ansi_default", "screen-selection-foreground": "ansi_default",
}  # fmt: skip
"""What Textual's own widgets ask of a theme that has no colours to mix."""
_OWN = "ansi_default"
"""The terminal's own colour."""


def textual_theme(theme: Theme) -> TextualTheme:
    """The same theme as Textual has it; without a ground of its own it leaves the terminal's."""
    ground, ink = theme.ground or _OWN, theme.ink or _OWN
    named = {severity: _textual(colour) for severity, colour in theme.severities.items()}
    return TextualTheme(
        PREFIX + theme.name, primary=named[Severity.P4], secondary=theme.quiet or _OWN, accent=named[Severity.P4],
        warning=named[Severity.P2], error=named[Severity.P1], foreground=ink, background=ground, surface=ground,
        panel=_PANELS.get(theme.name, _OWN), boost=ground, dark=theme.is_dark, ansi=not theme.ground,
        variables={} if theme.ground else _ANSI_PARTS,
    )  # fmt: skip


def _textual(colour: str) -> str:
    return colour if colour.startswith("#") else f"ansi_{colour}" if colour else _OWN


def palette_of(textual_name: str) -> Palette:
    """The colours of a theme by Textual's name for it; of one that is not ours, the dark ones."""
    return Palette(THEMES.get(textual_name.removeprefix(PREFIX), DARK))


@dataclass(frozen=True)
class Palette:
    """Styles of one theme."""

    theme: Theme

    @property
    def dark(self) -> bool:
        """Whether the ground is dark."""
        return self.theme.is_dark

    def severity(self, severity: Severity) -> Style:
        """The style of a severity."""
        return Style(color=self.theme.severities[severity] or None, bold=True)

    def verdict(self, verdict: Verdict, *, bold: bool = False) -> Style:
        """The style of a verdict."""
        return Style(color=self.theme.verdicts[verdict] or None, bold=bold)

    @property
    def quiet(self) -> Style:
        """Text that matters less, still at 4.5:1."""
        return Style(color=self.theme.quiet or None)

    @property
    def strong(self) -> Style:
        """Headings and what is selected."""
        return Style(bold=True)

    def owner(self, colour: str) -> Style:
        """A tenant's letter: its hue as a ground, so that the letter stays readable; without colours, reversed."""
        if not self.theme.ground:
            return Style(reverse=True)
        return Style(color=self.theme.letter_on(colour) or None, bgcolor=colour)

    def cell(self, colour: str | None) -> Style:
        """A letter of the page map: an owner's, or of what has none."""
        if colour is None or not self.theme.ground:
            return self.quiet
        return Style(color=colour, bold=not self.dark)
