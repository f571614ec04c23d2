"""The Latency screen: prefill times by length of prompt; what was too fast for its tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType

from console.core.latency import Length, bucket_fault, latency_figure
from console.core.latency_axis import axis_of
from console.core.looking import incidents_left, left_of
from console.core.places import Place
from console.core.printable import printable
from console.core.rollup import Rollup
from console.tui.canvas import Canvas
from console.tui.latency_lines import BAND, FLOOR, course_lines, length_table
from console.tui.line_list import LineList
from console.tui.lines import cut, rule
from console.tui.notices import Notice, absence, nothing_left
from console.tui.ranged_screen import RangedScreen
from console.tui.screen_base import bindings_of

AROUND_COURSE = 7
"""Rows of the frame, and of the rule and the words with the course."""


class LatencyScreen(RangedScreen):
    """Lengths, and the course of one."""

    PLACE: ClassVar[Place] = Place.LATENCY
    BINDINGS: ClassVar[list[BindingType]] = bindings_of(Place.LATENCY)
    PANES: ClassVar[Mapping[str, tuple[str, ...]]] = {"lengths": ("lengths-titles",), "course": ()}

    def compose_body(self) -> ComposeResult:
        """Table, course, words."""
        yield Canvas(id="lengths-titles")
        yield LineList(id="lengths")
        yield Canvas(id="course", pane=True)

    def draw_body(self, width: int) -> None:
        """The length under the cursor, at first the one to look at first."""
        app, palette = self.console_app, self.palette
        told = absence(app.desk, app.source.path)
        known = app.desk.rollup
        if told is None and known is not None and not known.latency.lengths:
            told = Notice(
                "No prefill was timed", "No request of this record has both an admission and a first token.",
                "Next: 7 shows its events; 2 its incidents.",
            )  # fmt: skip
        self.tell(told)
        if known is None or told is not None:
            return
        known = self.ranged()[0]
        left = left_of(known, "latency", app.looking())
        titles, lines = length_table(self._lengths(known), width, palette)
        fault = bucket_fault(app.known.latency, app.desk.view.option("bucket"))
        if fault:
            app.say_once(fault)
        words = Text(
            " * floor: uncached tokens by the best prefill rate measured; faster is impossible. Speed alone accuses nobody",
            end="",
            style=palette.quiet,
        )
        self.query_one("#lengths-titles", Canvas).show([cut(words, width), titles])
        listed = self.query_one("#lengths", LineList)
        lines = lines or nothing_left(left, palette, self.nearest_words())
        listed.styles.height = max(min(len(lines), (app.size.height - 8) // 2), 1)
        worst = known.latency.worst
        first = app.desk.view.option("bucket") or (str(worst.bucket_tokens) if worst else None)
        listed.show(lines, listed.cursor_key or first)
        self._draw_course(width)

    def _lengths(self, known: Rollup) -> tuple[Length, ...]:
        """Those that the view leaves, in its order."""
        app = self.console_app
        left = left_of(known, "latency", app.looking())
        return latency_figure(left.rows, known.tables["prefill-times"]).lengths

    def _draw_course(self, width: int) -> None:
        app, palette, (known, of) = self.console_app, self.palette, self.ranged()
        listed = self.query_one("#lengths", LineList)
        length = next((n for n in known.latency.lengths if str(n.bucket_tokens) == listed.cursor_key), None)
        if length is None:
            self.query_one("#course", Canvas).show([])
            return
        height = max(app.size.height - 10 - int(listed.styles.height.value if listed.styles.height else 1), 4)
        if self.alone is not None:
            height = app.size.height - AROUND_COURSE
        log = ", log" if axis_of(length).is_log else ""
        title = f"{length.label} TOKENS  p5 to p95, {BAND} base p10–p90, {FLOOR} floor{log}"
        lines = [rule(title, width, palette, of or "over time, UTC")]
        lines += course_lines(length, app.desk.view, incidents_left(app.known, app.looking()), palette, width, height)
        words = f" {length.below_floor} of {length.requests:,} below the floor of {length.floor_ms:,.1f} ms"
        if length.fastest:
            words += f"; fastest: {printable(', '.join(length.fastest))}"
        lines.append(cut(Text(words, end=""), width))
        if length.stats is not None:
            lines.append(cut(Text(f" in this stretch: {length.stats.words('ms')}", end=""), width))
        self.query_one("#course", Canvas).show(lines)

    @on(LineList.Moved, "#lengths")
    def _select(self, event: LineList.Moved) -> None:
        app = self.console_app
        app.desk = replace(app.desk, view=app.desk.view.with_option("bucket", event.key))
        self._draw_course(app.size.width)

    @on(LineList.Opened, "#lengths")
    def _open(self, event: LineList.Opened) -> None:
        length = next(n for n in self._lengths(self.ranged()[0]) if str(n.bucket_tokens) == event.key)
        if length.fastest:
            self.console_app.attempt("response", length.fastest[0])
