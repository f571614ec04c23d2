"""The web console's HTML: templates over the core.

Invariant: autoescape is on and every text of the ledger has been through `printable`; the address holds the selection.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from console.core.desk import Desk
from console.core.incident_words import facts, reading_words, tenant_words
from console.core.lineage import Lineage
from console.core.marks import SEVERITY_MARKS, VERDICT_MARKS, Severity
from console.core.page_map import Area, incident_area, page_map, whole_area
from console.core.printable import counted, printable, ranges, shorten
from console.core.snapshot import Snapshot
from console.core.times import clock, clock_ms, duration, moment
from console.web.lineage_svg import draw
from forensics.verdict import Verdict

TEMPLATES = Path(__file__).parent / "templates"
MOST_ROWS = 200


class PageNotFound(Exception):
    """There is no such incident or pool; the message says what there is."""


class Pages:
    """Renders pages of one ledger."""

    def __init__(self, ledger: Path, plotly: str) -> None:
        self._ledger, self._plotly = ledger, plotly
        self._environment = Environment(
            loader=FileSystemLoader(TEMPLATES),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters |= {
            "printable": printable, "clock": clock, "clock_ms": clock_ms, "moment": moment, "duration": duration,
            "ranges": ranges, "shorten": shorten, "counted": counted,
        }  # fmt: skip

    def login(self, target: str, problem: str) -> str:
        """The page that asks for the token."""
        return self._environment.get_template("login.html").render(target=target, problem=problem)

    def incidents(self, desk: Desk, version: int, fragment: bool) -> str:
        """The list."""
        return self._render(
            "incidents.html", desk, version, fragment, title="Incidents", most=MOST_ROWS, tenant_words=tenant_words
        )

    def incident(
        self, desk: Desk, version: int, incident_id: str, rid: str | None, page: int | None, fragment: bool
    ) -> str:
        """One incident. Raises PageNotFound."""
        shown = desk.shown
        if shown is None:
            return self._render("waiting.html", desk, version, fragment, title=incident_id)
        incident = shown.incident(incident_id)
        if incident is None:
            there = ", ".join(i.id for i in shown.incidents[:20]) or "none"
            raise PageNotFound(f"There is no incident {printable(incident_id)} in this ledger. It has: {there}.")
        opened = desk.open_incident(incident, rid).select(page=page)
        known = opened.lineage()
        story = opened.story(known)
        drawing = draw(shown, known, story.page if story else None) if known and known.pages else None
        return self._render(
            "incident.html", opened, version, fragment, title=f"{incident.id} {incident.title}", incident=incident,
            readings=opened.readings,
            reading=opened.reading, lineage=known, story=story, facts=facts(shown.rollup, incident), drawing=drawing,
            reading_words=reading_words, most=MOST_ROWS, proofs=_proofs(known),
            link=lambda **query: f"/incidents/{incident.id}?{urlencode(query)}",
        )  # fmt: skip

    def page_map(self, desk: Desk, version: int, incident: str | None, pool: str | None, fragment: bool) -> str:
        """The map. Raises PageNotFound."""
        shown = desk.shown
        if shown is None or not shown.pools:
            return self._render("waiting.html", desk, version, fragment, title="Pages")
        area = area_of(shown, incident, pool, (None, None), (None, None))
        drawn = page_map(shown, area, rows=1, cols=1)
        query = {"incident": incident} if incident else {"pool": pool_name(area)}
        return self._render(
            "pages.html", desk, version, fragment, title="Pages", area=area, drawn=drawn, pool_name=pool_name(area),
            pools=[f"{key[0]}:{key[1]}:{name}" for key, name in shown.pools], incident_id=incident, plotly=self._plotly,
            source=f"/api/pages?{urlencode(query)}",
        )  # fmt: skip

    def missing(self, desk: Desk, version: int, words: str, fragment: bool) -> str:
        """What was asked for is not there."""
        return self._render("missing.html", desk, version, fragment, title="Not found", words=words)

    def _render(self, template: str, desk: Desk, version: int, fragment: bool, **values: Any) -> str:
        return self._environment.get_template(template).render(
            layout="fragment.html" if fragment else "base.html", desk=desk, shown=desk.shown, failure=desk.failure,
            version=version, ledger=self._ledger, severities=SEVERITY_MARKS, verdicts=VERDICT_MARKS, Verdict=Verdict,
            by_severity=_by_severity(desk.shown), **values,
        )  # fmt: skip


def _by_severity(shown: Snapshot | None) -> dict[Severity, int]:
    return {s: sum(i.severity is s for i in shown.incidents) if shown else 0 for s in Severity}


def _proofs(known: Lineage | None) -> dict[int, str]:
    """How each page was judged, in words."""
    if known is None:
        return {}
    return {
        page.page: ", ".join(sorted({link.style.value for link in page.links})) or "no donor" for page in known.pages
    }


def pool_name(area: Area) -> str:
    """`decode-0:1:kv`."""
    return f"{area.key[0]}:{area.key[1]}:{area.pool}"


def area_of(
    shown: Snapshot,
    incident_id: str | None,
    pool: str | None,
    time: tuple[int | None, int | None],
    pages: tuple[int | None, int | None],
) -> Area:
    """What is asked for: an incident's surroundings or a pool, narrowed to a time and pages. Raises PageNotFound."""
    area = _base_area(shown, incident_id, pool)
    start = max(area.start_us, time[0]) if time[0] is not None else area.start_us
    end = min(area.end_us, time[1]) if time[1] is not None else area.end_us
    first = max(area.first_page, pages[0]) if pages[0] is not None else area.first_page
    last = min(area.last_page, pages[1]) if pages[1] is not None else area.last_page
    if start >= end or first > last:
        raise PageNotFound("Nothing is recorded in that range of time and pages.")
    return Area(area.key, area.pool, start, end, first, last)


def _base_area(shown: Snapshot, incident_id: str | None, pool: str | None) -> Area:
    if incident_id is not None:
        incident = shown.incident(incident_id)
        area = incident_area(shown, incident) if incident else None
        if area is None:
            raise PageNotFound(f"Incident {printable(incident_id)} is not in this ledger, or names no pages.")
        return area
    for key, name in shown.pools:
        if pool is None or pool == f"{key[0]}:{key[1]}:{name}":
            return whole_area(shown, key, name)
    known = ", ".join(f"{key[0]}:{key[1]}:{name}" for key, name in shown.pools) or "none"
    raise PageNotFound(f"There is no pool {printable(pool)} in this ledger. It has: {known}.")
