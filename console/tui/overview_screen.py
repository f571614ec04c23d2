"""The Overview screen: everything that the person on call looks at first, of one reading."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical

from console.core.overview import Overview, overview, whole_words
from console.core.places import Place
from console.core.printable import printable
from console.core.standing_rows import open_by_source
from console.tui.canvas import Canvas
from console.tui.line_list import LineList
from console.tui.lines import rule
from console.tui.notices import absence
from console.tui.overview_lines import (
    detector_lines,
    event_tail,
    held_lines,
    latency_lines,
    open_lines,
    overview_facts,
    source_lines,
    strip_panel,
)
from console.tui.ranged_screen import RangedScreen
from console.tui.screen_base import bindings_of

OUTSIDE = 4
"""Rows of header, tabs, view and footer."""


class OverviewScreen(RangedScreen):
    """Six panels."""

    PLACE: ClassVar[Place] = Place.OVERVIEW
    BINDINGS: ClassVar[list[BindingType]] = bindings_of(Place.OVERVIEW)
    PANES: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "open": ("open-rule",), "detectors": (), "figures": (), "tail": ()
    }  # fmt: skip

    def compose_body(self) -> ComposeResult:
        """Incidents and detectors on the left, figures on the right, events below."""
        with Horizontal(id="panels"):
            with Vertical(id="panels-left"):
                yield Canvas(id="open-rule")
                yield LineList(id="open")
                yield Canvas(id="detectors", pane=True)
            yield Canvas(id="figures", pane=True)
        yield Canvas(id="tail", pane=True)

    def draw_body(self, width: int) -> None:
        """All panels of one rollup."""
        app, desk, palette = self.console_app, self.console_app.desk, self.palette
        self.tell(absence(desk, app.source.path))
        known = desk.rollup
        if known is None:
            return
        figure = overview(self.ranged()[0], app.looking(), app.said, app.now_us())
        rows, left = app.size.height - OUTSIDE, (width - 1) // 2
        right = width - left - 1
        tail = max(rows // 4, 4) - 1
        above = rows - tail - 1
        if self.alone is not None:
            left, right, tail, above = width, width - 1, rows - 1, rows
        self.query_one("#panels-left").styles.width = left
        self.query_one("#panels").styles.height = above
        self.query_one("#open-rule", Canvas).show(
            [rule("OPEN INCIDENTS", left, palette, overview_facts(figure, palette))]
        )
        listed = self.query_one("#open", LineList)
        listed.show(open_lines(figure, palette), desk.view.incident)
        self.select(listed.cursor_key)
        if desk.merged is not None:
            listed.styles.height = above - 2
            self.query_one("#detectors", Canvas).show([])
            shown = source_lines(app.states, open_by_source(app.known), palette, right, above - 1)
            self.query_one("#figures", Canvas).show([rule("LEDGERS", right, palette, "L one of them"), *shown])
            self._draw_tail(figure, width, tail)
            return
        listed.styles.height = max(min(len(figure.incidents) + 1, above - 7), 2)
        room = above - 2 - max(min(len(figure.incidents) + 1, above - 7), 2) if self.alone is None else above - 1
        self.query_one("#detectors", Canvas).show(
            [
                rule("DETECTORS", left, palette, f"{self._whole}saw / looked at"),
                *detector_lines(figure.detectors, palette, room),
            ]
        )
        self._draw_figures(right, above)
        self._draw_tail(figure, width, tail)

    def _draw_tail(self, figure: Overview, width: int, tail: int) -> None:
        palette = self.palette
        words = figure.events.words if figure.events.hidden or figure.events.outside else "7 shows all"
        tail_lines = event_tail(figure.events, palette, tail)
        self.query_one("#tail", Canvas).show([rule("LATEST EVENTS", width, palette, words), *tail_lines])

    def _draw_figures(self, inner: int, above: int) -> None:
        app, palette = self.console_app, self.palette
        known = app.desk.rollup
        if known is None:
            return
        each = (above - 3) // 3
        held, length, strip = next(iter(known.held), None), known.latency.worst, known.strip
        lines = [rule("HELD CAPACITY", inner, palette, f"{self._whole}4")]
        lines += held_lines(held, palette, inner, each)
        lines += [rule("p5 PREFILL", inner, palette, f"{self._whole}5"), *latency_lines(length, palette, inner, each)]
        where = "3" if strip is None else f"{printable(strip.area.key[0])}/{printable(strip.area.pool)}  3"
        lines += [rule("PAGES", inner, palette, where)]
        lines += strip_panel(strip, known.owners, palette, inner, above - len(lines))
        self.query_one("#figures", Canvas).show(lines)

    @property
    def _whole(self) -> str:
        """What stands on a panel that neither range nor filter narrows, while there is one."""
        words = whole_words(self.console_app.desk.view)
        return f"{words}  " if words else ""

    @on(LineList.Moved, "#open")
    def _moved(self, event: LineList.Moved) -> None:
        self.select(event.key)

    @on(LineList.Opened, "#open")
    def _open(self, event: LineList.Opened) -> None:
        self.console_app.attempt("incident", event.key)
