"""The Incident screen: one response's pages and donors, and the order of events on the selected page.

Invariant: what is drawn below the breadcrumb is of one response and one page; what was worked out for another than the
present one is not drawn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from rich.text import Text
from textual import events, on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.widgets import Static

from console.core.export import FORMATS, Exported
from console.core.incident_report import incident_report
from console.core.incident_tables import responses_sheet
from console.core.incidents import Incident
from console.core.lineage import Lineage
from console.core.page_map import PageMap
from console.core.places import Place
from console.core.prefill_rank import PrefillRank, prefill_rank
from console.core.printable import counted, printable
from console.core.readings import Reading
from console.core.sheet import Sheet, Shown
from console.core.snapshot import Snapshot
from console.core.standing_words import standing_facts
from console.tui.app_base import Refused
from console.tui.fixed import Fixed
from console.tui.incident_lines import crumb_line, fact_lines, note_lines, reading_table
from console.tui.incident_picture import WORKING, Asked, Told, mapped, told_of
from console.tui.incident_steps import IncidentSteps
from console.tui.layout import has_detail, is_workspace
from console.tui.line_list import LineList
from console.tui.lineage_lines import (
    LEGEND,
    event_lines,
    lineage_lines,
    map_lines,
    offending_key,
    proof_line,
    victim_line,
)
from console.tui.lines import cut, rule
from console.tui.notices import Notice
from console.tui.own_tables import OwnTables, unfiltered
from console.tui.screen_base import bindings_of

LEFT_WIDTH = {False: 30, True: 52}
"""Columns of the responses beside their detail, by whether the terminal has room for a workspace."""
MOST_PAGES = {False: 6, True: 14}
"""Lines of lineage in sight, by whether the terminal is wide."""
BESIDE_PAGES = 22
"""Rows of a workspace that pages leave to the frame, the map and a few events."""
MOST_NOTES = {False: 3, True: 8}
"""Lines of notes in sight, likewise."""


class IncidentScreen(OwnTables, IncidentSteps):
    """Lineage and event order."""

    PLACE: ClassVar[Place] = Place.INCIDENT
    BINDINGS: ClassVar[list[BindingType]] = bindings_of(Place.INCIDENT)
    PANES: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "responses": ("responses-rule", "responses-titles"), "pages": ("victim", "rank", "lineage-rule", "proof"),
        "events": ("events-rule", "proof"), "notes": ("notes-rule",),
    }  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self._asked: Asked | None = None
        self._told: Told | None = None
        self._asked_map: tuple[int, str, int] | None = None
        self._map: PageMap | None = None
        self._pointed_at: tuple[str, str, int] | None = None
        self._drawn_of: dict[str, object] = {}
        self._asked_rank: tuple[int, str] | None = None

    def compose_body(self) -> ComposeResult:
        """Responses and facts on the left where there is room; lineage, events and the map strip."""
        yield Fixed(id="victim")
        yield Static(id="rank", markup=False, classes="-absent")
        with Horizontal(id="workspace"):
            with Vertical(id="left"):
                yield Fixed(id="responses-rule")
                yield Fixed(id="responses-titles")
                yield LineList(id="responses")
                yield Fixed(id="summary-rule")
                yield Static(id="summary", markup=False)
            with Vertical(id="right"):
                yield Fixed(id="lineage-rule")
                yield LineList(id="pages")
                yield Fixed(id="events-rule")
                yield LineList(id="events")
                yield Fixed(id="map-rule")
                yield Fixed(id="map")
                yield Fixed(id="notes-rule")
                yield LineList(id="notes")
        yield Fixed(id="proof")

    def on_mount(self) -> None:
        """The pages have the focus."""
        super().on_mount()
        self.query_one("#pages", LineList).focus()

    def crumbs(self) -> Text:
        """Incidents › I-xxxx mechanism › response › page."""
        return crumb_line(self.console_app.desk, self.app.size.width, self.palette)

    def draw_body(self, width: int) -> None:
        """Everything below the breadcrumb."""
        desk, palette = self.console_app.desk, self.palette
        shown, incident, reading = desk.shown, desk.incident, desk.reading
        if shown is None:
            return
        if incident is None:
            self.tell(
                Notice("Not there", "At this moment the record shows nothing of it.", "] and } move on, esc goes back.")
            )
            return
        self._draw_notes(incident, width)
        if reading is None:
            self.tell(None)
            self._draw_without_response(width)
            return
        self.look_again()
        self._look_up_rank(shown, reading)
        told = self.here
        self.tell(self.pending("lineage", WORKING) if told is None else None)
        if told is None:
            return
        wide, right = is_workspace(width), self._right(width)
        about, page = replace(told.asked, page=None), self.page_of(told.known)
        if self._is_new("pages", about, page, self.app.size):
            self.query_one("#victim", Static).update(victim_line(shown, reading, told.known, width, palette))
            self.query_one("#lineage-rule", Static).update(rule("PAGES ◂ DONORS", right, palette, LEGEND))
            lines = lineage_lines(shown, told.known, right, palette)
            pages = self.query_one("#pages", LineList)
            room = self.app.size.height - BESIDE_PAGES if wide else MOST_PAGES[wide]
            pages.styles.height = min(max(len(lines), 2), MOST_PAGES[wide], max(room, 2))
            pages.show(lines, None if page is None else str(page))
        if self._is_new("story", told.asked, width):
            # How many events are in sight is known once the pages have their height.
            self.call_after_refresh(self._draw_story, told, reading, right)
        if has_detail(width) and self._is_new("left", about, width):
            self._draw_left(shown, incident, reading, width)
        if wide:
            self._draw_map(shown, incident, width - LEFT_WIDTH[True])

    def _look_up_rank(self, shown: Snapshot, reading: Reading) -> None:
        """Have the rank of the response's prefill worked out, unless it is or is being."""
        asked = (id(shown), reading.rid)
        if asked != self._asked_rank:
            self._asked_rank = asked
            self.compute("the rank", lambda: (asked, prefill_rank(shown, asked[1])), self._take_rank)

    def _take_rank(self, found: tuple[tuple[int, str], PrefillRank | None]) -> None:
        asked, rank = found
        if asked == self._asked_rank:
            line = self.query_one("#rank", Static)
            line.set_class(rank is None, "-absent")
            words = "" if rank is None else f" {rank.words}"
            line.update(cut(Text(words, end="", style=self.palette.quiet), self.app.size.width))

    def _right(self, width: int) -> int:
        """Columns of the panes on the right, or of one that is alone."""
        beside = has_detail(width) and self.alone is None
        return width - LEFT_WIDTH[is_workspace(width)] if beside else width

    def _is_new(self, part: str, *of: object) -> bool:
        """Whether a part of the screen was last drawn of something else, or never."""
        drawn_of = (*of, self.app.theme, self.alone)
        if self._drawn_of.get(part) == drawn_of:
            return False
        self._drawn_of[part] = drawn_of
        return True

    def look_again(self, *, from_end: bool = False) -> None:
        """Have what the desk points at worked out, unless it is or is being."""
        desk = self.console_app.desk
        reading = desk.reading
        if desk.shown is None or desk.incident is None or reading is None:
            return
        asked = Asked(id(desk.shown), desk.incident.id, reading.key, desk.view.page, from_end)
        if self._asked is None or replace(self._asked, from_end=from_end) != asked:
            self._asked = asked
            self.compute("lineage", lambda: told_of(desk, asked), self._take)

    def _take(self, told: Told | None) -> None:
        """Draw it if it is still what is looked at: where it is not, another is on its way. Then the steps that waited for it."""
        if told is None or told.asked != self._asked:
            return
        if told.asked.from_end and told.story is not None:
            app = self.console_app
            app.desk = app.desk.select(page=told.story.page)
            told = replace(told, asked=replace(told.asked, page=told.story.page, from_end=False))
        self._asked, self._told = told.asked, told
        steps, self._steps = self._steps, 0
        self.draw()
        for _ in range(abs(steps)):
            self.find(1 if steps > 0 else -1)

    @property
    def here(self) -> Told | None:
        """What is worked out of the response that is looked at; its story may be of the page before."""
        told, asked = self._told, self._asked
        if told is None or asked is None:
            return None
        return told if replace(told.asked, page=asked.page, from_end=asked.from_end) == asked else None

    def tables(self) -> tuple[tuple[Sheet, Shown], ...]:
        """The responses of the incident, in their order here."""
        app = self.console_app
        incident = app.desk.incident
        if incident is None:
            raise Refused("at this moment the record shows nothing of this incident")
        sheet = responses_sheet(incident, app.desk.readings)
        return (unfiltered(sheet, replace(app.desk.view, sort=None), app.now_us()),)

    def exported(self, fmt: str) -> tuple[tuple[Exported, str], ...]:
        """As Markdown all of the incident, for a ticket."""
        app = self.console_app
        shown, incident = app.desk.shown, app.desk.incident
        if fmt != "md" or shown is None or incident is None:
            return super().exported(fmt)
        stands, view = app.standing(incident), self.addressed(app.desk.view)
        words = incident_report(shown, incident, stands, view, app.moment_us())
        return ((Exported(f"{app.known.name}-{incident.id}.md", FORMATS["md"], words.encode()), "the incident"),)

    def _draw_notes(self, incident: Incident, width: int) -> None:
        """How it stands and what was noted of it, where anybody said anything; what has no room scrolls."""
        app = self.console_app
        stands, now = app.standing(incident), app.moment_us()
        listed, head = self.query_one("#notes", LineList), self.query_one("#notes-rule", Static)
        none = stands.last is None and not stands.notes
        listed.set_class(none, "-absent")
        head.set_class(none, "-absent")
        if none:
            return
        wide, inner = is_workspace(width), self._right(width)
        lines = note_lines(standing_facts(stands, now), inner)
        listed.styles.height = min(len(lines), MOST_NOTES[wide])
        listed.show(lines)
        right = counted(len(stands.notes), "note") + (", tab scrolls" if len(lines) > MOST_NOTES[wide] else "")
        head.update(rule("NOTES", inner, self.palette, right))

    def _draw_without_response(self, width: int) -> None:
        """Detectors saw something, and no response rests on it."""
        words = " no response is concerned: detectors saw this, and nothing that is judged rests on it"
        self.query_one("#victim", Static).update(cut(Text(words, end=""), width))
        self.query_one("#pages", LineList).show([])
        self.query_one("#events", LineList).show([])
        for rule_id, title in (("#lineage-rule", "PAGES ◂ DONORS"), ("#events-rule", "ORDER OF EVENTS")):
            self.query_one(rule_id, Static).update(rule(title, width, self.palette))
        self._told = self._asked = self._asked_rank = None
        self.query_one("#rank", Static).add_class("-absent")
        self._drawn_of.clear()
        self.query_one("#proof", Static).update("")

    def page_of(self, known: Lineage) -> int | None:
        """The page that is looked at, else the first that was found."""
        selected = self.console_app.desk.view.page
        if selected in {page.page for page in known.pages}:
            return selected
        return known.found[0] if known.found else None

    def _draw_story(self, told: Told, reading: Reading, width: int) -> None:
        story, palette = told.story, self.palette
        if story is None:
            self.query_one("#events-rule", Static).update(rule("ORDER OF EVENTS", width, palette))
            self.query_one("#events", LineList).show([])
            self.query_one("#proof", Static).update("")
            return
        title = f"ORDER OF EVENTS on pg {story.page}, {printable(story.worker)}/{printable(story.pool)} (UTC)"
        self.query_one("#events-rule", Static).update(rule(title, width, palette, "Δ ms, ≈ by clock"))
        telling = (reading.key, self.console_app.desk.view.incident or "", story.page)
        cursor = offending_key(story) if telling != self._pointed_at else None
        self._pointed_at = telling
        self.query_one("#events", LineList).show(event_lines(story, width, palette), cursor)
        self._draw_proof()

    def _draw_proof(self) -> None:
        """One line about what is under the cursor: the whole event, or how the page was judged."""
        told, listed = self.here, self.query_one("#events", LineList)
        if told is None or told.story is None:
            return
        story = told.story
        line = proof_line(told.known, story.page, self.app.size.width, self.palette)
        if listed.has_focus and listed.cursor_key is not None:
            event = story.events[int(listed.cursor_key)]
            where = f" {printable(event.worker)} seq {event.seq} {event.kind}"
            line = Text(f"{where} {printable(event.rid)}: {printable(event.note)}", end="", style=self.palette.strong)
        self.query_one("#proof", Static).update(cut(line, self.app.size.width))

    def _draw_left(self, shown: Snapshot, incident: Incident, reading: Reading, width: int) -> None:
        desk, palette = self.console_app.desk, self.palette
        inner = (width if self.alone == "responses" else LEFT_WIDTH[is_workspace(width)]) - 1
        self.query_one("#responses-rule", Static).update(rule("RESPONSES", inner, palette, f"{len(desk.readings)}"))
        titles, lines = reading_table(shown, incident, inner, palette)
        self.query_one("#responses-titles", Static).update(titles)
        self.query_one("#responses", LineList).show(lines, reading.key)
        self.query_one("#summary-rule", Static).update(rule(incident.id, inner, palette))
        self.query_one("#summary", Static).update(fact_lines(shown.rollup, incident, inner, palette))

    def _draw_map(self, shown: Snapshot, incident: Incident, width: int) -> None:
        palette, asked = self.palette, (id(shown), incident.id, width - 9)
        if asked != self._asked_map:
            self._asked_map = asked
            self.compute("map", lambda: (asked, mapped(shown, incident, asked[2])), self._take_map)
        told, drawn = self.pending("map", Notice("Drawing the pages …", "", "")), self._map
        if not self._is_new("map", told, id(drawn), width):
            return
        if told is not None or drawn is None:
            self.query_one("#map-rule", Static).update(rule("PAGES", width, palette))
            self.query_one("#map", Static).update("" if told is None else f" {told.title}  {told.cause}")
            return
        area = drawn.area
        title = f"PAGES of {printable(area.key[0])}/{printable(area.pool)} space–time"
        scale = f"{drawn.pages_per_row} pages × {drawn.bin_us / 1000:.1f} ms"
        self.query_one("#map-rule", Static).update(rule(title, width, palette, scale))
        self.query_one("#map", Static).update(Text("\n").join(map_lines(shown.owners, drawn, palette)))

    def _take_map(self, found: tuple[tuple[int, str, int], PageMap | None]) -> None:
        asked, drawn = found
        if asked == self._asked_map:
            self._map = drawn
            self.draw()

    @on(LineList.Moved, "#pages")
    def _select_page(self, event: LineList.Moved) -> None:
        app = self.console_app
        app.desk = app.desk.select(page=int(event.key))
        self.look_again()

    @on(LineList.Opened, "#pages")
    def _to_events(self) -> None:
        if self.alone is not None:
            self.zoom("events")
            self.draw()
        self.query_one("#events", LineList).focus()

    @on(LineList.Moved, "#events")
    @on(events.DescendantFocus)
    def _explain(self) -> None:
        self._draw_proof()

    @on(LineList.Moved, "#responses")
    def _select_response(self, event: LineList.Moved) -> None:
        reading = next((r for r in self.console_app.desk.readings if r.key == event.key), None)
        if reading is not None:
            self.show_response(reading.rid)

    def pointed_us(self) -> int | None:
        """That of the event under the cursor, while it is in the order of events."""
        told, listed = self.here, self.query_one("#events", LineList)
        if told is None or told.story is None or not listed.has_focus or listed.cursor_key is None:
            return super().pointed_us()
        return told.story.events[int(listed.cursor_key)].t_us

    def do_back(self) -> None:
        """All panes again, else no mark, else to the list."""
        if not self.do_restore():
            self.console_app.leave_incident()
