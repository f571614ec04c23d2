"""The Incident screen: one response's pages and donors, and the order of events on the selected page."""

from __future__ import annotations

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
from console.core.marks import VERDICT_MARKS
from console.core.page_events import PageStory
from console.core.page_map import incident_area, page_map
from console.core.places import Place
from console.core.printable import counted, printable, shorten
from console.core.sheet import Sheet, Shown
from console.core.standing_words import standing_facts
from console.core.view import Cue
from console.tui.app_base import Refused
from console.tui.incident_lines import fact_lines, note_lines, reading_table
from console.tui.line_list import LineList
from console.tui.lineage_lines import LEGEND, event_lines, lineage_lines, map_lines, offending_key, victim_line
from console.tui.lines import cut, rule
from console.tui.notices import Notice
from console.tui.own_tables import OwnTables, unfiltered
from console.tui.screen_base import bindings_of

MAP_ROWS, LEFT_WIDTH = 8, 52
MOST_PAGES = {False: 6, True: 14}
"""Lines of lineage in sight, by whether the terminal is wide."""
MOST_NOTES = {False: 3, True: 8}
"""Lines of notes in sight, likewise."""


class IncidentScreen(OwnTables):
    """Lineage and event order."""

    PLACE: ClassVar[Place] = Place.INCIDENT
    BINDINGS: ClassVar[list[BindingType]] = bindings_of(Place.INCIDENT)

    def __init__(self) -> None:
        super().__init__()
        self._told: tuple[str, str, int] | None = None
        self._story: PageStory | None = None

    def compose_body(self) -> ComposeResult:
        """Responses and facts on the left where there is room; lineage, events and the map strip."""
        yield Static(id="victim", markup=False)
        with Horizontal(id="workspace"):
            with Vertical(id="left"):
                yield Static(id="responses-rule", markup=False)
                yield Static(id="responses-titles", markup=False)
                yield LineList(id="responses")
                yield Static(id="summary-rule", markup=False)
                yield Static(id="summary", markup=False)
            with Vertical(id="right"):
                yield Static(id="lineage-rule", markup=False)
                yield LineList(id="pages")
                yield Static(id="events-rule", markup=False)
                yield LineList(id="events")
                yield Static(id="map-rule", markup=False)
                yield Static(id="map", markup=False)
                yield Static(id="notes-rule", markup=False)
                yield LineList(id="notes")
        yield Static(id="proof", markup=False)

    def on_mount(self) -> None:
        """The pages have the focus."""
        super().on_mount()
        self.query_one("#pages", LineList).focus()

    def crumbs(self) -> Text:
        """Incidents › I-xxxx mechanism › response › page."""
        desk, width = self.console_app.desk, self.app.size.width
        incident, reading = desk.incident, desk.reading
        line = Text(" Incidents › ", end="", style=self.palette.quiet)
        if incident is None:
            when = "any more" if desk.whole is None else "at this moment of the replay"
            return cut(line.append(f"{printable(desk.view.incident)} is not in this ledger {when}"), width)
        if reading is None:
            return cut(line.append(f"{incident.id} {incident.title}", style=self.palette.strong), width)
        rids = list(dict.fromkeys(r.rid for r in desk.readings))
        line.append(f"{incident.id} {incident.title}", style=self.palette.strong)
        line.append(f" › {shorten(printable(reading.rid), 20)} ({rids.index(reading.rid) + 1} of {len(rids)})")
        return cut(line, width)

    def draw_body(self, width: int) -> None:
        """Everything below the breadcrumb."""
        desk, palette = self.console_app.desk, self.palette
        shown, incident, reading, known = desk.shown, desk.incident, desk.reading, desk.lineage()
        if shown is None:
            return
        gone = Notice("Not there", "At this moment the record shows nothing of it.", "] and } move on, esc goes back.")
        self.tell(None if incident is not None else gone)
        if incident is None:
            return
        self._draw_notes(incident, width)
        if reading is None or known is None:
            self._draw_without_response(width)
            return
        wide = width >= 140
        right = width - LEFT_WIDTH if wide else width
        self.query_one("#victim", Static).update(victim_line(shown, reading, known, width, palette))
        self.query_one("#lineage-rule", Static).update(rule("PAGES ◂ DONORS", right, palette, LEGEND))
        page = self._page(known)
        lines = lineage_lines(shown, known, right, palette)
        pages = self.query_one("#pages", LineList)
        pages.styles.height = min(max(len(lines), 2), MOST_PAGES[wide])
        pages.show(lines, None if page is None else str(page))
        self._draw_story(known, right)
        if wide:
            self._draw_left()
            self._draw_map(right)

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
        listed.display = head.display = stands.last is not None or bool(stands.notes)
        if not listed.display:
            return
        wide = width >= 140
        inner = width - LEFT_WIDTH if wide else width
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
        self._story = None
        self.query_one("#proof", Static).update("")

    def _page(self, known: Lineage) -> int | None:
        selected = self.console_app.desk.view.page
        if selected in {page.page for page in known.pages}:
            return selected
        return known.found[0] if known.found else None

    def _draw_story(self, known: Lineage, width: int) -> None:
        desk, palette = self.console_app.desk, self.palette
        story, reading = desk.story(known), desk.reading
        self._story = story
        if story is None or reading is None:
            self.query_one("#events-rule", Static).update(rule("ORDER OF EVENTS", width, palette))
            self.query_one("#events", LineList).show([])
            self.query_one("#proof", Static).update("")
            return
        title = f"ORDER OF EVENTS on pg {story.page}, {printable(story.worker)}/{printable(story.pool)} (UTC)"
        self.query_one("#events-rule", Static).update(rule(title, width, palette, "Δ ms, ≈ by clock"))
        telling = (reading.key, self.console_app.desk.view.incident or "", story.page)
        cursor = offending_key(story) if telling != self._told else None
        self._told = telling
        self.query_one("#events", LineList).show(event_lines(story, width, palette), cursor)
        self._draw_proof(known)

    def _draw_proof(self, known: Lineage) -> None:
        """One line about what is under the cursor: the whole event, or how the page was judged."""
        story, listed = self._story, self.query_one("#events", LineList)
        if story is None:
            return
        line = self._proof(known, story.page)
        if listed.has_focus and listed.cursor_key is not None:
            event = story.events[int(listed.cursor_key)]
            where = f" {printable(event.worker)} seq {event.seq} {event.kind}"
            line = Text(f"{where} {printable(event.rid)}: {printable(event.note)}", end="", style=self.palette.strong)
        self.query_one("#proof", Static).update(cut(line, self.app.size.width))

    def _proof(self, known: Lineage, page: int) -> Text:
        palette, width = self.palette, self.app.size.width
        found = next(p for p in known.pages if p.page == page)
        styles = ", ".join(sorted({link.style.value for link in found.links})) or "no donor"
        mark = VERDICT_MARKS[found.verdict]
        line = Text(
            f" pg {page} {mark.glyph} {mark.word} ({styles})", end="", style=palette.verdict(found.verdict, bold=True)
        )
        reason = (
            printable(found.reason)
            if found.reason
            else "seq and edges decide; g = seq of the reserve that began the life"
        )
        line.append(f"  {reason}", style=palette.quiet)
        return cut(line, width)

    def _draw_left(self) -> None:
        desk, palette = self.console_app.desk, self.palette
        shown, incident, reading = desk.shown, desk.incident, desk.reading
        if shown is None or incident is None or reading is None:
            return
        inner = LEFT_WIDTH - 1
        self.query_one("#responses-rule", Static).update(rule("RESPONSES", inner, palette, f"{len(desk.readings)}"))
        titles, lines = reading_table(shown, incident, inner, palette)
        self.query_one("#responses-titles", Static).update(titles)
        self.query_one("#responses", LineList).show(lines, reading.key)
        self.query_one("#summary-rule", Static).update(rule(incident.id, inner, palette))
        self.query_one("#summary", Static).update(fact_lines(shown.rollup, incident, inner, palette))

    def _draw_map(self, width: int) -> None:
        desk, palette = self.console_app.desk, self.palette
        shown, incident = desk.shown, desk.incident
        area = incident_area(shown, incident, 5_000_000) if shown and incident else None
        if shown is None or area is None:
            self.query_one("#map-rule", Static).update(rule("PAGES", width, palette))
            self.query_one("#map", Static).update("")
            return
        drawn = page_map(shown, area, rows=MAP_ROWS, cols=width - 9)
        title = f"PAGES of {printable(area.key[0])}/{printable(area.pool)} space–time"
        scale = f"{drawn.pages_per_row} pages × {drawn.bin_us / 1000:.1f} ms"
        self.query_one("#map-rule", Static).update(rule(title, width, palette, scale))
        self.query_one("#map", Static).update(Text("\n").join(map_lines(shown.owners, drawn, palette)))

    @on(LineList.Moved, "#pages")
    def _select_page(self, event: LineList.Moved) -> None:
        app = self.console_app
        app.desk = app.desk.select(page=int(event.key))
        known = app.desk.lineage()
        if known is not None:
            width = self.app.size.width
            self._draw_story(known, width - LEFT_WIDTH if width >= 140 else width)

    @on(LineList.Opened, "#pages")
    def _to_events(self) -> None:
        self.query_one("#events", LineList).focus()

    @on(LineList.Moved, "#events")
    @on(events.DescendantFocus)
    def _explain(self) -> None:
        known = self.console_app.desk.lineage()
        if known is not None:
            self._draw_proof(known)

    @on(LineList.Moved, "#responses")
    def _select_response(self, event: LineList.Moved) -> None:
        reading = next((r for r in self.console_app.desk.readings if r.key == event.key), None)
        if reading is not None:
            self._show_response(reading.rid)

    def _show_response(self, rid: str) -> None:
        app = self.console_app
        app.desk = app.desk.select(rid=rid)
        self.draw()

    def do_back(self) -> None:
        """To the list."""
        self.console_app.leave_incident()

    def do_next_found(self) -> None:
        """The next page with a foreign read, over responses and round."""
        self._find(1)

    def do_previous_found(self) -> None:
        """The previous one."""
        self._find(-1)

    def _find(self, by: int) -> None:
        app = self.console_app
        incident, reading, known = app.desk.incident, app.desk.reading, app.desk.lineage()
        if incident is None or reading is None or known is None:
            return
        page = self._page(known)
        at = known.found.index(page) + by if page in known.found else 0
        if 0 <= at < len(known.found):
            app.desk = app.desk.select(page=known.found[at])
        else:
            rids = list(dict.fromkeys(r.rid for r in app.desk.readings))
            rid = rids[(rids.index(reading.rid) + by) % len(rids)]
            app.desk = replace(app.desk, view=replace(app.desk.view, rid=rid, page=None))
            there = app.desk.lineage()
            if by < 0 and there is not None and there.found:
                app.desk = app.desk.select(page=there.found[-1])
        self.draw()

    def do_next_response(self) -> None:
        """The next response of the incident, round."""
        self._step_response(1)

    def do_previous_response(self) -> None:
        """The previous one."""
        self._step_response(-1)

    def _step_response(self, by: int) -> None:
        incident, reading = self.console_app.desk.incident, self.console_app.desk.reading
        if incident is not None and reading is not None:
            rids = list(dict.fromkeys(r.rid for r in self.console_app.desk.readings))
            self._show_response(rids[(rids.index(reading.rid) + by) % len(rids)])

    def do_next_incident(self) -> None:
        """The next incident of the list, round."""
        self._step_incident(1)

    def do_previous_incident(self) -> None:
        """The previous one."""
        self._step_incident(-1)

    def _step_incident(self, by: int) -> None:
        app = self.console_app
        if app.desk.shown is None or app.desk.incident is None:
            return
        incidents = app.desk.shown.incidents
        at = incidents.index(app.desk.incident)
        app.desk = app.desk.open_incident(incidents[(at + by) % len(incidents)]).on(Cue.OPEN)
        self.draw()
