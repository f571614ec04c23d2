"""The Held screen: what keeps pages from being used, when the pool would be full, and for whom they are held."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType

from console.core.held_capacity import HeldFigure, figure_looked_at
from console.core.looking import incidents_left, left_of
from console.core.places import Place
from console.core.printable import printable
from console.core.view import View
from console.core.what_if import WhatIfError, what_if_of, what_if_words, with_what_if_of
from console.tui.canvas import Canvas
from console.tui.held_lines import chart_lines, figure_words, holder_table, pool_lines
from console.tui.line_list import LineList
from console.tui.lines import cut, rule
from console.tui.notices import Notice, absence, nothing_left
from console.tui.ranged_screen import RangedScreen
from console.tui.screen_base import bindings_of
from forensics.rows import rows_of

AROUND_CHART = 9
"""Rows of the frame, and of the rule and the words with the chart."""
MOST_POOLS = 3
"""Pools in sight at once; more of them scroll."""


class HeldScreen(RangedScreen):
    """Pools, the chart of one, the holders."""

    PLACE: ClassVar[Place] = Place.HELD
    BINDINGS: ClassVar[list[BindingType]] = bindings_of(Place.HELD)
    PANES: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "pools": (), "held-chart": (), "holders": ("holders-titles",)
    }  # fmt: skip

    def compose_body(self) -> ComposeResult:
        """Pools, chart, words, holders."""
        yield LineList(id="pools")
        yield Canvas(id="held-chart", pane=True)
        yield Canvas(id="holders-titles")
        yield LineList(id="holders")

    def draw_body(self, width: int) -> None:
        """The pool under the cursor."""
        app, palette = self.console_app, self.palette
        told = absence(app.desk, app.source.path)
        known = app.desk.rollup
        if told is None and known is not None and not known.held:
            told = Notice(
                "No gauges", "Nobody sampled how many pages were held in this record.",
                "Next: 7 shows its events; gauges are written once a second by an engine that records.",
            )  # fmt: skip
        self.tell(told)
        if known is None or told is not None:
            return
        figures = self._figures()
        pools = self.query_one("#pools", LineList)
        pools.styles.height = min(len(figures), MOST_POOLS)
        wanted, fault = figure_looked_at(figures, app.desk.view.pool)
        if fault:
            app.say_once(f"{fault}; the fullest is shown")
        pools.show(pool_lines(figures, palette), wanted.name if wanted else None)
        self._draw_pool(figures, width)
        left = left_of(known, "holders", app.looking())
        titles, lines = holder_table(rows_of(left.rows), width, palette)
        self.query_one("#holders-titles", Canvas).show([rule("HOLDERS AT THE END", width, palette, left.words), titles])
        self.query_one("#holders", LineList).show(lines or nothing_left(left, palette))

    def addressed(self, view: View) -> View:
        """With the pool that is shown, whatever the view calls it."""
        figure = figure_looked_at(self._figures(), view.pool)[0]
        return view if figure is None else replace(view, pool=figure.name)

    def _figures(self) -> tuple[HeldFigure, ...]:
        app, (known, _) = self.console_app, self.ranged()
        try:
            tried = what_if_of(app.desk.view)
        except WhatIfError as error:
            app.say_once(f"{error}; it is left out")
            return known.held
        return known.held_if(tried) if what_if_words(app.desk.view) else known.held

    def _draw_pool(self, figures: tuple[HeldFigure, ...], width: int) -> None:
        app, palette = self.console_app, self.palette
        here = self.query_one("#pools", LineList).cursor_key
        figure = next((f for f in figures if f.name == here), figures[0])
        height = max((app.size.height - 10 - min(len(figures), MOST_POOLS)) // 2, 4)
        if self.alone is not None:
            height = app.size.height - AROUND_CHART
        of = self.ranged()[1]
        where = f"{printable(f'{figure.worker}/{figure.pool}')} {of}".rstrip()
        lines = [rule("HELD = RATE × SECONDS × PAGES", width, palette, where)]
        lines += chart_lines(figure, app.desk.view, incidents_left(app.known, app.looking()), palette, width, height)
        near = "" if figure.starts_us else self.nearest_words()
        if near:
            lines.append(cut(Text(f" {near}", end=""), width))
        lines += figure_words(figure, what_if_words(app.desk.view), palette, width)
        self.query_one("#held-chart", Canvas).show(lines)

    @on(LineList.Moved, "#pools")
    def _select(self, event: LineList.Moved) -> None:
        app = self.console_app
        app.desk = replace(app.desk, view=replace(app.desk.view, pool=event.key))
        self._draw_pool(self._figures(), app.size.width)

    def do_what_if(self, text: str = "") -> None:
        """Try other rates; without any, ask for them, or take back what is tried."""
        app = self.console_app
        if not text and not what_if_words(app.desk.view):
            app.ask("what-if rate=2 ")
            return
        app.change(with_what_if_of(app.desk.view, text))

    @on(LineList.Opened, "#holders")
    def _open_holder(self, event: LineList.Opened) -> None:
        self.console_app.attempt("response", event.key.split("|")[0])
