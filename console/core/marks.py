"""Glyphs, words and colours of severities, verdicts and proofs, shared by every screen.

Invariant: whatever a colour says, a glyph and a word say too. Severity colours are an Okabe-Ito subset (dark theme) and
darker ones of the same hues (light theme); owners are Tol bright with a letter.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum

from console.core.filter_language import ORDERED
from forensics.verdict import Proof, Verdict


class Severity(IntEnum):
    """How grave an incident is; 1 is the gravest. The library's words stand in `of_word`."""

    P1 = 1
    P2 = 2
    P3 = 3
    P4 = 4

    @classmethod
    def of_word(cls, word: str) -> Severity:
        """`critical`, `high`, `medium`, `low`, as the query `incidents` says them."""
        return cls(ORDERED["severity"].index(word) + 1)


@dataclass(frozen=True)
class Mark:
    """One meaning: its glyph (width 1), its word, and its colour on a dark and on a light ground."""

    glyph: str
    word: str
    dark: str
    light: str


SEVERITY_MARKS: dict[Severity, Mark] = {
    Severity.P1: Mark("▲", "P1", "#E8702A", "#872A17"),
    Severity.P2: Mark("◆", "P2", "#E69F00", "#887401"),
    Severity.P3: Mark("●", "P3", "#F0E442", "#2E1706"),
    Severity.P4: Mark("·", "P4", "#56B4E9", "#1978C2"),
}

VERDICT_MARKS: dict[Verdict, Mark] = {
    Verdict.CONTAMINATED: Mark("✗", "contaminated", "#E8702A", "#872A17"),
    Verdict.UNKNOWN: Mark("?", "unknown", "#E69F00", "#887401"),
    Verdict.CORRUPT: Mark("≠", "corrupt", "#F0E442", "#2E1706"),
    Verdict.EXPOSED: Mark("~", "exposed", "#56B4E9", "#1978C2"),
    Verdict.CLEAN: Mark("○", "clean", "#A8A8A8", "#4C4C4C"),
}


class LinkStyle(StrEnum):
    """How a line from a page to its donor is drawn."""

    PROVED = "proved"
    INFERRED = "inferred"
    OVERLAP = "overlap"
    UNDECIDED = "undecided"

    @property
    def stroke(self) -> str:
        """The character of which a text screen makes the line."""
        return {"proved": "━", "inferred": "╌", "overlap": "┈", "undecided": "?"}[self.value]


def link_style(verdict: Verdict, proof: str) -> LinkStyle:
    """Foreign reads by their proof; an overlap is no read; what is undecided is neither."""
    if verdict is Verdict.UNKNOWN:
        return LinkStyle.UNDECIDED
    if verdict is Verdict.EXPOSED:
        return LinkStyle.OVERLAP
    return LinkStyle.PROVED if proof == Proof.PROVED else LinkStyle.INFERRED


OWNER_LETTERS = "abcdef"
OWNER_COLOURS = ("#4477AA", "#EE6677", "#228833", "#CCBB44", "#66CCEE", "#AA3377")
OTHER_LETTER, OTHER_COLOUR = "z", "#BBBBBB"
