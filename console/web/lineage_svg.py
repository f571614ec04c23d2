"""Geometry of the lineage drawing: victim, pages, donors in three columns, lines between pages and donors.

Invariant: the order is that of `console.core.lineage`; solid is proved, dashed inferred, dotted overlap or undecided.
"""

from __future__ import annotations

from dataclasses import dataclass

from console.core.lineage import Lineage
from console.core.marks import VERDICT_MARKS, LinkStyle
from console.core.printable import printable, shorten
from console.core.snapshot import Snapshot

ROW, TOP = 26, 34
PAGE_X, PAGE_END, DONOR_X, WIDTH = 250, 520, 690, 1000
DASHES = {LinkStyle.PROVED: "", LinkStyle.INFERRED: "9 5", LinkStyle.OVERLAP: "2 5", LinkStyle.UNDECIDED: "1 9"}


@dataclass(frozen=True)
class PageNode:
    """A page row: where it stands and what it says."""

    y: int
    page: int
    words: str
    verdict: str
    glyph: str
    selected: bool


@dataclass(frozen=True)
class DonorNode:
    """A donor: where it stands and what it says."""

    y: int
    words: str
    letter: str
    colour: str
    dark_letter: bool


@dataclass(frozen=True)
class Line:
    """One line between a page and a donor, or the victim and a page."""

    path: str
    dashes: str
    kind: str
    width: float
    title: str


@dataclass(frozen=True)
class Drawing:
    """The whole drawing, in SVG user units."""

    width: int
    height: int
    victim_y: int
    victim: str
    pages: tuple[PageNode, ...]
    donors: tuple[DonorNode, ...]
    lines: tuple[Line, ...]
    rest: str
    rest_y: int


def draw(snapshot: Snapshot, known: Lineage, selected: int | None) -> Drawing:
    """Lay out a lineage."""
    rows = len(known.pages)
    rest = f"○ {known.own} more page{'s' * (known.own > 1)} with own content" if known.own else ""
    if known.more:
        rest = f"{known.more} more pages with findings" + (f"; {rest}" if rest else "")
    pages = tuple(
        PageNode(TOP + i * ROW, page.page, _page_words(page.page, page.tok_lo, page.tok_hi), page.verdict.value,
                 VERDICT_MARKS[page.verdict].glyph, page.page == selected)
        for i, page in enumerate(known.pages)
    )  # fmt: skip
    height = TOP + max(rows, len(known.donors), 1) * ROW + (ROW if rest else 0)
    gap = max((rows * ROW) // max(len(known.donors), 1), ROW)
    donors, places = [], {}
    for i, donor in enumerate(known.donors):
        y = TOP + i * gap + (gap - ROW) // 2
        owner = snapshot.owners.of(donor.tenant)
        name = "donor not named" if donor.rid is None else shorten(printable(donor.rid), 26)
        ended = f", ended {printable(donor.status)}" if donor.status and donor.rid else ""
        dark = owner.colour in ("#CCBB44", "#66CCEE", "#EE6677", "#BBBBBB")
        donors.append(DonorNode(y, f"{name}{ended}, {donor.pages} pg", owner.letter, owner.colour, dark))
        places[donor.rid] = y
    middle = TOP + max(rows - 1, 0) * ROW // 2
    lines = [_curve(190, middle, PAGE_X - 8, node.y, "", "own", 1.0, "") for node in pages]
    for node, page in zip(pages, known.pages, strict=True):
        for link in page.links:
            words = f"page {page.page} {link.style.value}" + (", derived" if link.derived else "")
            width = 3.0 if link.style is LinkStyle.PROVED else 2.0
            lines.append(
                _curve(
                    PAGE_END, node.y, DONOR_X - 22, places[link.donor], DASHES[link.style], node.verdict, width, words
                )
            )
    victim = shorten(printable(known.reading.rid), 22)
    bottom = max([height, *(donor.y + ROW for donor in donors)])
    return Drawing(WIDTH, bottom, middle, victim, pages, tuple(donors), tuple(lines), rest, TOP + rows * ROW)


def _page_words(page: int, lo: int | None, hi: int | None) -> str:
    return f"pg {page}" + ("" if lo is None or hi is None else f"  tokens {lo}–{hi - 1}")


def _curve(x0: int, y0: int, x1: int, y1: int, dashes: str, kind: str, width: float, title: str) -> Line:
    bend = (x1 - x0) // 2
    return Line(f"M{x0} {y0} C{x0 + bend} {y0} {x1 - bend} {y1} {x1} {y1}", dashes, kind, width, title)
