"""The web console's HTML: one page for each screen, templates over the core.

Invariant: autoescape is on and every text of the ledger has been through `printable`; the address holds the selection.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from console.core.filter_language import ORDERED
from console.core.flows import flows_of
from console.core.incident_tables import responses_sheet
from console.core.incident_words import facts, reading_words, tenant_words
from console.core.lineage import Lineage
from console.core.marks import SEVERITY_MARKS, VERDICT_MARKS
from console.core.overview import overview, stood_of
from console.core.own_time import own_words
from console.core.places import MERGED, Place
from console.core.pool_names import pool_name
from console.core.prefill_rank import prefill_rank
from console.core.printable import counted, printable, ranges, shorten
from console.core.rollup import Rollup
from console.core.run_list import STEP_MARKS, expectation, located, next_words, outcome, run_words
from console.core.run_tables import in_order_of
from console.core.saved_views import saved_links
from console.core.sheet import Sheet
from console.core.standing_rows import open_by_severity, open_by_source
from console.core.standing_words import silence_words, standing_words
from console.core.time_range import ALL
from console.core.times import age, clock, clock_ms, duration, moment
from console.core.triage import silences, standing
from console.core.trouble import trouble_of
from console.core.view_link import to_query
from console.web.asked import Asked, OutsideRecord, PageNotFound, area_asked
from console.web.charts import held_asked, latency_asked, what_if
from console.web.event_list import event_list
from console.web.fault import Fault
from console.web.feed import AnyFeed, Feed
from console.web.gate import Gate, Visitor
from console.web.keys import web_key
from console.web.lineage_svg import draw
from console.web.replaying import STEPS
from console.web.run_forms import RunForms
from console.web.shortcuts import helped, shortcuts
from console.web.table_pages import stretch
from console.web.tables import Grid, grid, left_of, sheet_asked
from forensics.verdict import Verdict
from runbooks.going_on import STANDING, next_step

TEMPLATES = Path(__file__).parent / "templates"
MOST_ROWS, MOST_DETECTIONS, MOST_LATEST = 200, 50, 12
PLACES = (Place.OVERVIEW, Place.INCIDENTS, Place.PAGES, Place.HELD, Place.LATENCY, Place.RUNS, Place.EVENTS)


@dataclass(frozen=True)
class Caller:
    """Who asks: `address` as asked for, whether only what changes is wanted."""

    address: str
    visitor: Visitor | None
    fragment: bool = False


class Pages:
    """Renders what a feed shows. `plotly`: the address of its script; `runs`: runbooks, and what was asked of them here;
    `views`: the file of saved views.
    """

    def __init__(self, feed: AnyFeed, plotly: str, gate: Gate, runs: RunForms, views: Path) -> None:
        ledger = feed.source.path if isinstance(feed, Feed) else Path(feed.name)
        self._ledger, self._plotly, self._gate, self._runs, self._views = ledger, plotly, gate, runs, views
        self._environment = Environment(
            loader=FileSystemLoader(TEMPLATES),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters |= {
            "printable": printable, "clock": clock, "clock_ms": clock_ms, "moment": moment, "duration": duration,
            "ranges": ranges, "shorten": shorten, "counted": counted, "age": age,
        }  # fmt: skip
        self._screens = {
            Place.OVERVIEW: self._overview, Place.INCIDENTS: self._incidents, Place.INCIDENT: self._incident,
            Place.PAGES: self._pages, Place.HELD: self._held, Place.LATENCY: self._latency, Place.EVENTS: self._events,
        }  # fmt: skip

    def login(self, target: str, problem: str) -> str:
        """The page that asks for the token."""
        return self._environment.get_template("login.html").render(target=target, problem=problem)

    def screen(self, asked: Asked, caller: Caller) -> str:
        """The page of the view; what was not there yet at the moment of a replay is no fault. Raises PageNotFound, BadLink,
        FilterError.
        """
        try:
            return self._screen(asked, caller)
        except PageNotFound as error:
            if asked.replaying is None:
                raise
            return self._render("not_then.html", asked, caller, title=asked.view.place.capitalize(), words=str(error))

    def _screen(self, asked: Asked, caller: Caller) -> str:
        place = asked.view.place
        if asked.desk.merged is not None and place not in MERGED:
            raise PageNotFound(_of_one_ledger(asked))
        if place is Place.RUNS:
            return self._render(
                "runs.html", asked, caller, title="Runbook", words_of=run_words,
                listed=in_order_of(self._runs.listed_in(asked), asked.view.sort), marks=STEP_MARKS,
                outcome=outcome, next_words=next_words, next_step=next_step, standing=STANDING, ended=self._runs.ended(),
                located=located, expectation=expectation, has_engine=self._runs.setting.engine is not None,
                may_run=self._may_write(asked, caller) and self._runs.setting.may_start,
            )  # fmt: skip
        known = asked.rollup
        if known is None:
            return self._render("waiting.html", asked, caller, title=place.capitalize())
        return self._screens[place](asked, known, caller)

    def missing(self, asked: Asked, caller: Caller, words: str) -> str:
        """What was asked for is not there."""
        return self._render("missing.html", asked, caller, title="Not found", words=words)

    def unreadable(self, asked: Asked, caller: Caller, fault: Fault) -> str:
        """What was asked for cannot be read, or not be done."""
        title = "Cannot be read" if fault.typed is not None else "Not done"
        return self._render("unreadable.html", asked, caller, title=title, fault=fault, typed=fault.typed)

    def _overview(self, asked: Asked, known: Rollup, caller: Caller) -> str:
        known = asked.counted(Place.OVERVIEW) or known
        if asked.desk.merged is not None:
            return self._all_overview(asked, known, caller)
        seen = overview(known, asked.looking, asked.said, asked.clock_us)
        rows = seen.events.rows
        latest = replace(seen.events, rows=rows.slice(max(len(rows) - MOST_LATEST, 0)))
        return self._render(
            "overview.html", asked, caller, title="Overview", seen=seen, tenant_words=tenant_words, most=MOST_LATEST,
            detectors=self._grid("detectors", asked, MOST_ROWS), latest=grid(known.sheets["events"], latest, asked, MOST_LATEST),
        )  # fmt: skip

    def _all_overview(self, asked: Asked, known: Rollup, caller: Caller) -> str:
        seen = overview(known, asked.looking, asked.said, asked.clock_us)
        rows = seen.events.rows
        latest = replace(seen.events, rows=rows.slice(max(len(rows) - MOST_LATEST, 0)))
        return self._render(
            "all_overview.html", asked, caller, title="Overview", seen=seen, tenant_words=tenant_words, most=MOST_ROWS,
            is_open=open_by_source(known), latest=grid(known.sheets["events"], latest, asked, MOST_LATEST),
        )  # fmt: skip

    def _incidents(self, asked: Asked, known: Rollup, caller: Caller) -> str:
        sheet = known.sheets["incidents"]
        left = left_of(sheet, asked)
        return self._render(
            "incidents.html", asked, caller, title="Incidents",
            part=stretch("incidents", left.rows, asked, MOST_ROWS), tenant_words=tenant_words, left=left,
            stood=stood_of(known, left, asked.said, asked.moment_us),
            heads={h.name: h for h in grid(sheet, left, asked, 0).headings}, detections=self._grid("detections", asked, MOST_DETECTIONS),
            problem=asked.desk.shown.first_problem if asked.desk.shown else None, silence_words=silence_words,
            silences=silences(known.incidents, asked.said, asked.moment_us),
        )  # fmt: skip

    def _incident(self, asked: Asked, known: Rollup, caller: Caller) -> str:
        incident = known.incident(asked.view.incident)
        if incident is None:
            there = ", ".join(i.id for i in known.incidents[:20]) or "none"
            raise PageNotFound(
                f"There is no incident {printable(asked.view.incident)} in this ledger. It has: {there}."
            )
        desk = asked.desk.open_incident(incident, asked.view.rid).select(page=asked.view.page)
        lineage = desk.lineage()
        story = desk.story(lineage)
        shown = desk.shown
        drawing = draw(shown, lineage, story.page if story else None) if shown and lineage and lineage.pages else None
        responses = responses_sheet(incident, desk.readings)
        flows = Sheet("flows", flows_of(desk.readings))
        inside = replace(asked, view=replace(asked.view, filter=""))
        return self._render(
            "incident.html", asked, caller, title=f"{incident.id} {incident.title}", incident=incident, shown=shown,
            readings=desk.readings, reading=desk.reading, lineage=lineage, story=story, facts=facts(known, incident),
            drawing=drawing, reading_words=reading_words,
            rank=prefill_rank(shown, desk.reading.rid) if shown and desk.reading else None,
            part=stretch("responses", responses.rows, asked, MOST_ROWS), proofs=_proofs(lineage),
            flows=grid(flows, left_of(flows, inside), asked, MOST_ROWS),
            standing=standing(incident, asked.said, asked.moment_us), standing_words=standing_words,
            may_write=self._may_write(asked, caller),
            link=lambda resp, page=None: asked.link(rid=resp, page=page),
        )  # fmt: skip

    def _pages(self, asked: Asked, known: Rollup, caller: Caller) -> str:
        if asked.kept is None or not asked.kept.snapshot.pools:
            return self._render("waiting.html", asked, caller, title="Pages")
        shown = asked.kept.snapshot
        try:
            area = area_asked(shown, asked)
        except OutsideRecord as error:
            whole = error.whole
            return self._render(
                "outside.html", asked, caller, title="Pages", words=str(error), there=whole,
                pool_name=pool_name(whole.key[0], whole.pool, whole.key[1]),
            )  # fmt: skip
        drawn = asked.kept.page_map(area)
        return self._render(
            "pages.html", asked, caller, title="Pages", area=area, drawn=drawn, pool_name=pool_name(area.key[0], area.pool, area.key[1]),
            pools=[pool_name(worker, name, epoch) for (worker, epoch), name in shown.pools],
            grids={name: self._grid(name, asked, MOST_ROWS) for name in ("marks", "allocations")},
        )  # fmt: skip

    def _held(self, asked: Asked, known: Rollup, caller: Caller) -> str:
        return self._render(
            "held.html", asked, caller, title="Held", figure=held_asked(known, asked.view),
            stretch=held_asked(asked.counted(Place.HELD) or known, asked.view), pools=[f.name for f in known.held],
            tried=what_if(asked.view), holders=self._grid("holders", asked, MOST_ROWS),
        )  # fmt: skip

    def _latency(self, asked: Asked, known: Rollup, caller: Caller) -> str:
        grids, counted = {"latency": self._grid("latency", asked, MOST_ROWS)}, asked.counted(Place.LATENCY) or known
        return self._render(
            "latency.html", asked, caller, title="Latency", figure=latency_asked(asked, counted), grids=grids
        )

    def _events(self, asked: Asked, known: Rollup, caller: Caller) -> str:
        listed = event_list(asked)
        rows = grid(listed.sheet, listed.left, asked, len(listed.left.rows))
        return self._render("events.html", asked, caller, title="Events", listed=listed, rows=rows)

    def _may_write(self, asked: Asked, caller: Caller) -> bool:
        """Whether forms are drawn: never over the record as it was."""
        return asked.view.replay is None and caller.visitor is not None and self._gate.may_write(caller.visitor)

    def _grid(self, name: str, asked: Asked, most: int) -> Grid:
        sheet = sheet_asked(name, asked)
        return grid(sheet, left_of(sheet, asked), asked, most)

    def _render(self, template: str, asked: Asked, caller: Caller, **values: Any) -> str:
        desk, known, visitor = asked.desk, asked.rollup, caller.visitor
        return self._environment.get_template(template).render(
            {
                "layout": "fragment.html" if caller.fragment else "base.html", "desk": desk, "known": known, "failure": desk.failure,
                "trouble": trouble_of(desk, asked.clock_us),
                "asked": asked, "view": asked.view, "mark": asked.mark, "ledger": self._ledger, "severities": SEVERITY_MARKS,
                "verdicts": VERDICT_MARKS, "Verdict": Verdict, "by_severity": open_by_severity(known) if known else None,
                "places": PLACES if desk.merged is None else MERGED, "plotly": self._plotly, "address": caller.address, "visitor": visitor,
                "may_write": visitor is not None and self._gate.may_write(visitor), "shortcuts": shortcuts(asked.view.place),
                "helped": helped(asked.view.place), "orders": ORDERED["severity"], "views": saved_links(self._views, asked.view.ledger),
                "role": visitor.role.value if visitor else "", "writes": self._gate.can_write,
                # The query of the view for charts and tables, which have no screen of their own.
                "whole": ALL, "query": to_query(replace(asked.view, place=Place.OVERVIEW)),
                "own": to_query(replace(asked.view, place=Place.OVERVIEW, filter="", sort=None)),
                "in_order": to_query(replace(asked.view, place=Place.OVERVIEW, filter="", range=ALL)),
                "typed": None, "fault": None, "key": web_key, "replaying": asked.replaying, "steps": STEPS,
                "own_words": own_words, **values,
            }
        )  # fmt: skip


def _of_one_ledger(asked: Asked) -> str:
    place, incident = asked.view.place, asked.view.incident
    if place is not Place.INCIDENT:
        return f"{place.capitalize()} is of one ledger; choose it in the place of all."
    known = asked.rollup.incidents if asked.rollup else ()
    there = ", ".join(i.key for i in known if i.id == incident) or "none of that id"
    return f"There is no incident {printable(incident)}, or more than one; there are: {printable(there)}."


def _proofs(known: Lineage | None) -> dict[int, str]:
    """How each page was judged, in words."""
    if known is None:
        return {}
    return {
        page.page: ", ".join(sorted({link.style.value for link in page.links})) or "no donor" for page in known.pages
    }
