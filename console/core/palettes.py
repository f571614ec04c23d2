"""Themes: the colours of severities, verdicts and owners on a dark, a light and a high-contrast ground, and in 16 colours.

Invariant: a colour only repeats what a glyph and a word say. Within a theme the colours of one set can be told apart with
every kind of colour vision (CIE76 distance of 12 at least), and text has a contrast of 4.5 at least.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from console.core.marks import OTHER_COLOUR, OWNER_COLOURS, SEVERITY_MARKS, VERDICT_MARKS, Severity
from forensics.verdict import Verdict


@dataclass(frozen=True)
class Theme:
    """`ground`, `ink`, `quiet`: background, text, text that matters less. Colours are #RRGGBB, of `ansi` names of the
    terminal's own sixteen (`bright_red`), of `plain` empty.
    """

    name: str
    is_dark: bool
    ground: str
    ink: str
    quiet: str
    severities: Mapping[Severity, str]
    verdicts: Mapping[Verdict, str]
    owners: tuple[str, ...]
    other: str

    def letter_on(self, owner: str) -> str:
        """Black or white: the colour of a letter on an owner's colour; none where there are no colours."""
        if not owner.startswith("#"):
            return ""
        return "#000000" if _luminance(owner) > _BLACK_OR_WHITE else "#FFFFFF"


_BLACK_OR_WHITE = 0.179
"""Luminance above which black has the higher contrast."""


def _luminance(colour: str) -> float:
    values = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in values)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _theme(name: str, is_dark: bool, ground: str, ink: str, quiet: str, colours: tuple[str, ...]) -> Theme:
    """`colours`: of contaminated, unknown, corrupt, exposed and clean; the first four are those of P1 to P4."""
    return Theme(
        name, is_dark, ground, ink, quiet, dict(zip(Severity, colours[:4], strict=True)),
        dict(zip(Verdict, colours, strict=True)), OWNER_COLOURS, OTHER_COLOUR,
    )  # fmt: skip


_ANSI = ("bright_red", "yellow", "bright_yellow", "bright_cyan", "white")
DARK = _theme("dark", True, "#121212", "#E6E6E6", "#A0A0A0", tuple(mark.dark for mark in VERDICT_MARKS.values()))
LIGHT = _theme("light", False, "#FFFFFF", "#1A1A1A", "#5A5A5A", tuple(mark.light for mark in VERDICT_MARKS.values()))
CONTRAST = _theme(
    "contrast", True, "#000000", "#FFFFFF", "#D0D0D0", ("#FF8A4C", "#FFC04D", "#FFF27A", "#8FD3FF", "#D0D0D0")
)
ANSI = Theme(
    "ansi", True, "", "", "", dict(zip(Severity, _ANSI[:4], strict=True)), dict(zip(Verdict, _ANSI, strict=True)), ("",) * 6, "",
)  # fmt: skip
_ANSI_LIGHT = ("red", "magenta", "blue", "black", "bright_black")
ANSI_LIGHT = Theme(
    "ansi-light", False, "", "", "", dict(zip(Severity, _ANSI_LIGHT[:4], strict=True)),
    dict(zip(Verdict, _ANSI_LIGHT, strict=True)), ("",) * 6, "",
)  # fmt: skip
"""For terminals with a light ground, where the bright ones of the sixteen cannot be read."""
PLAIN = Theme("plain", True, "", "", "", dict.fromkeys(Severity, ""), dict.fromkeys(Verdict, ""), ("",) * 6, "")
THEMES = {theme.name: theme for theme in (DARK, LIGHT, CONTRAST, ANSI, ANSI_LIGHT, PLAIN)}


def theme_for(wanted: str | None, environment: Mapping[str, str]) -> Theme:
    """The theme that was asked for; without colours where the environment says NO_COLOR (and it is not empty).

    KeyError for a theme that there is not.
    """
    if environment.get("NO_COLOR"):
        return PLAIN
    return THEMES[wanted or DARK.name]


def glyphs() -> dict[str, tuple[str, ...]]:
    """Every set of glyphs that stands for something, so that each can be shown to be distinct."""
    return {
        "severities": tuple(mark.glyph for mark in SEVERITY_MARKS.values()),
        "verdicts": tuple(mark.glyph for mark in VERDICT_MARKS.values()),
    }
