"""The Incidents screen: every incident of the ledger, and the facts of the one under the cursor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical

from console.core.looking import left_of
from console.core.overview import stood_of
from console.core.places import Place
from console.tui.fixed import Fixed
from console.tui.incident_lines import fact_lines, incident_table, reading_table
from console.tui.layout import has_detail, is_workspace
from console.tui.line_list import LineList
from console.tui.lines import counts_line, rule
from console.tui.notices import nothing_left, notice
from console.tui.screen_base import DeskScreen, bindings_of


class IncidentsScreen(DeskScreen):
    """The list."""

    PLACE: ClassVar[Place] = Place.INCIDENTS
    BINDINGS: ClassVar[list[BindingType]] = bindings_of(Place.INCIDENTS)
    PANES: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "incidents": ("counts", "titles"), "readings": ("readings-rule", "readings-titles")
    }  # fmt: skip

    def compose_body(self) -> ComposeResult:
        """Counts, list, facts; responses beside the facts where there is room."""
        yield Fixed(id="counts")
        yield Fixed(id="titles")
        yield LineList(id="incidents")
        with Horizontal(id="below"):
            with Vertical(id="facts-pane"):
                yield Fixed(id="facts-rule")
                yield Fixed(id="facts")
            with Vertical(id="readings-pane"):
                yield Fixed(id="readings-rule")
                yield Fixed(id="readings-titles")
                yield LineList(id="readings")

    def draw_body(self, width: int) -> None:
        """The list, or why there is none."""
        app, desk, palette = self.console_app, self.console_app.desk, self.palette
        known = app.seen
        self.tell(notice(desk, app.source.path))
        self.query_one("#counts", Fixed).update(counts_line(known, width, palette) if known else "")
        if known is None:
            return
        left = left_of(known, "incidents", app.looking())
        stood = stood_of(known, left, app.said, app.moment_us())
        titles, lines = incident_table(known, stood, app.moment_us(), width, palette)
        self.query_one("#titles", Fixed).update(titles)
        incidents = self.query_one("#incidents", LineList)
        near = "" if lines else self.nearest_words("z", "z")
        incidents.show(lines or nothing_left(left, palette, near), desk.view.incident)
        self.select(incidents.cursor_key)
        self._draw_facts(width)

    def _draw_facts(self, width: int) -> None:
        app, desk, palette = self.console_app, self.console_app.desk, self.palette
        known, shown, incident = app.seen, desk.shown, desk.incident
        if known is None or incident is None:
            return
        beside = has_detail(width)
        left = width * 2 // 5 if is_workspace(width) else width // 2 if beside else width
        self.query_one("#facts-rule", Fixed).update(rule(incident.id, left, palette, "" if beside else "↵ opens"))
        self.query_one("#facts", Fixed).update(fact_lines(known, incident, left, palette, app.standing_facts(incident)))
        if beside and shown is not None:
            n = len(desk.readings)
            right = width if self.alone == "readings" else width - left
            title = f"RESPONSES OF {incident.id}"
            self.query_one("#readings-rule", Fixed).update(rule(title, right, palette, f"{n} of {n}"))
            titles, lines = reading_table(shown, incident, right, palette)
            self.query_one("#readings-titles", Fixed).update(titles)
            self.query_one("#readings", LineList).show(lines)

    @on(LineList.Moved, "#incidents")
    def _moved(self, event: LineList.Moved) -> None:
        self.select(event.key)
        self._draw_facts(self.app.size.width)

    @on(LineList.Opened, "#incidents")
    def _open(self, event: LineList.Opened) -> None:
        self.console_app.attempt("incident", event.key)

    @on(LineList.Opened, "#readings")
    def _open_reading(self, event: LineList.Opened) -> None:
        incident = self.console_app.desk.incident
        reading = next((r for r in self.console_app.desk.readings if r.key == event.key), None)
        if incident is not None and reading is not None:
            self.console_app.open_incident(incident.id, reading.rid)
