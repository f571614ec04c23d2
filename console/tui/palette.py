"""Colours of the terminal screens, by theme; every one of them only repeats what a glyph or a word says."""

from __future__ import annotations

from dataclasses import dataclass

from rich.style import Style
from textual.theme import Theme

from console.core.marks import SEVERITY_MARKS, VERDICT_MARKS, Mark, Severity
from forensics.verdict import Verdict

DARK = Theme(
    "kvwitness-dark",
    primary="#56B4E9",
    secondary="#8AA0B4",
    accent="#56B4E9",
    warning="#E69F00",
    error="#E8702A",
    foreground="#E6E6E6",
    background="#121212",
    surface="#121212",
    panel="#1E1E1E",
    dark=True,
)
LIGHT = Theme(
    "kvwitness-light",
    primary="#0B6199",
    secondary="#44586A",
    accent="#0B6199",
    warning="#8F6000",
    error="#8A1400",
    foreground="#1A1A1A",
    background="#FFFFFF",
    surface="#FFFFFF",
    panel="#F0F0F0",
    dark=False,
)


@dataclass(frozen=True)
class Palette:
    """Styles for a dark or a light ground."""

    dark: bool

    def mark(self, mark: Mark, *, bold: bool = False) -> Style:
        """The style of a mark."""
        return Style(color=mark.dark if self.dark else mark.light, bold=bold)

    def severity(self, severity: Severity) -> Style:
        """The style of a severity."""
        return self.mark(SEVERITY_MARKS[severity], bold=True)

    def verdict(self, verdict: Verdict, *, bold: bool = False) -> Style:
        """The style of a verdict."""
        return self.mark(VERDICT_MARKS[verdict], bold=bold)

    @property
    def quiet(self) -> Style:
        """Text that matters less, still at 4.5:1."""
        return Style(color="#A0A0A0" if self.dark else "#5A5A5A")

    @property
    def strong(self) -> Style:
        """Headings and what is selected."""
        return Style(bold=True)

    def owner(self, colour: str) -> Style:
        """A tenant's letter: its hue as a ground, so that the letter stays readable."""
        return Style(
            color="#000000" if colour in ("#CCBB44", "#66CCEE", "#EE6677", "#BBBBBB") else "#FFFFFF", bgcolor=colour
        )
