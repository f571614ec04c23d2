"""The desk: a view and the snapshot it shows. Screens ask it what to draw and tell it what was asked for.

Invariant: while the view is paused the shown snapshot does not change; a failed reading never replaces a good one.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from console.core.incidents import Incident
from console.core.lineage import Lineage, lineage
from console.core.live_edge import Edge, with_edge
from console.core.looks import LastLook
from console.core.merged import Merged, Record
from console.core.own_time import at_own_time, given_back, gone_to
from console.core.page_events import PageStory, page_story
from console.core.places import Place
from console.core.readings import Reading
from console.core.rollup import Rollup
from console.core.snapshot import Snapshot
from console.core.source import Failure
from console.core.view import Cue, Mode, View

UNJUDGED_US = 2_000_000
"""How far the record may go on beyond the last reading before the picture says so."""


@dataclass(frozen=True)
class Desk:
    """What is shown, what has come in since, what is remembered of an earlier opening, and what went wrong last.

    `live`: the rollup of what is shown with the live edge; `rows_there`: how many rows the record has by the newest look.
    `whole`: what was shown before a replay began to show the record as it was; None = it is what is shown.
    `merged`: several ledgers as one, which are shown in the place of a reading; `rows_there` is of them then.
    `last_look`: how the looks at the ledger stand; None before it was seen.
    """

    view: View = field(default_factory=View)
    shown: Snapshot | None = None
    live: Rollup | None = None
    rows_there: int = 0
    newer: Snapshot | None = None
    whole: Snapshot | None = None
    remembered: Rollup | None = None
    failure: Failure | None = None
    last_look: LastLook | None = None
    merged: Merged | None = None

    def offer(self, reading: Snapshot | Failure) -> Desk:
        """The desk after a reading came in."""
        if isinstance(reading, Failure):
            return replace(self, failure=reading)
        cue = Cue.WRITERS_CAME if reading.writing else Cue.WRITERS_ENDED
        view = self.view.on(cue)
        if view.paused and self.shown is not None:
            return replace(self, newer=reading, failure=None)
        return replace(self, view=view, shown=reading, live=None, newer=None, failure=None)

    def offer_edge(self, of: Snapshot, edge: Edge | None) -> Desk:
        """The desk after a look at the streams beyond the reading `of`; while the view is paused it only counts."""
        if edge is None:
            return self
        there = max(self.rows_there, of.rollup.rows + edge.rows)
        if of is not self.shown or self.view.paused or (self.live is not None and there == self.rows_there):
            return replace(self, rows_there=there)
        return replace(self, rows_there=there, live=with_edge(of.rollup, edge))

    def offer_merged(self, merged: Merged) -> Desk:
        """The desk after there is something new of any of its ledgers; while the view is paused it only counts."""
        known = merged.rollup
        if known is None or merged is self.merged:
            return replace(self, merged=merged)
        view = self.view.on(Cue.WRITERS_CAME if known.writing else Cue.WRITERS_ENDED)
        if view.paused and self.merged is not None:
            return replace(self, rows_there=known.rows)
        return replace(self, view=view, merged=merged, rows_there=known.rows)

    def looking_at(self, view: View) -> Desk:
        """The desk with another view; one that replays nothing shows the whole record again, and what is newest if it follows."""
        desk = replace(self, view=view)
        if self.whole is not None and view.replay is None:
            desk = replace(desk, shown=self.whole, live=None, whole=None)
        if desk.newer is not None and not view.paused:
            return replace(desk, newer=None).offer(desk.newer)
        return desk

    def at(self, past: Snapshot | None) -> Desk:
        """The record as it was, while it is replayed; None = at its end, which is all of it."""
        if self.view.replay is None or (past is None and self.whole is None):
            return self
        if past is None:
            return replace(self, shown=self.whole, live=None, whole=None)
        return replace(self, shown=past, live=None, whole=self.whole or self.shown)

    @property
    def full(self) -> Snapshot | None:
        """All of the record that is looked at, also while it is shown as it was."""
        return self.whole or self.shown

    def on(self, cue: Cue) -> Desk:
        """The desk after `cue`; where it resumes, the newest reading is shown."""
        view = self.view.on(cue)
        if view.paused or self.newer is None:
            return replace(self, view=view)
        return replace(self, view=view, newer=None).offer(self.newer)

    def open_incident(self, incident: Incident, rid: str | None = None, *, keep_range: bool = False) -> Desk:
        """Look at an incident, its gravest response first, at its own time unless the range is to be kept."""
        readings = self.shown.readings(incident) if self.shown else ()
        chosen = next((r for r in readings if r.rid == rid), readings[0] if readings else None)
        view = replace(
            self.view, place=Place.INCIDENT, incident=incident.id, rid=chosen.rid if chosen else None, page=None
        )
        if not keep_range and self.rollup is not None:
            view = at_own_time(view, self.rollup.span)
        return replace(self, view=view).on(Cue.OPEN)

    def leave_incident(self, to: Place = Place.INCIDENTS) -> Desk:
        """Back to where it was opened, with the range of then."""
        view = given_back(replace(self.view, place=to, rid=None, page=None))
        return self.looking_at(view.on(Cue.LEAVE))

    def go(self, place: Place) -> Desk:
        """To another screen; an incident that was open stays looked at where its own time goes along."""
        view = gone_to(self.view, place)
        if self.view.place is Place.INCIDENT and place is not Place.INCIDENT:
            view = replace(view, rid=None, page=None)
            view = view if view.back is not None else view.on(Cue.LEAVE)
        return self.looking_at(view)

    def select(self, *, rid: str | None = None, page: int | None = None) -> Desk:
        """Look at another response (its first page with it) or another page."""
        if rid is not None and rid != self.view.rid:
            return replace(self, view=replace(self.view, rid=rid, page=page))
        return replace(self, view=replace(self.view, page=page))

    @property
    def rollup(self) -> Rollup | None:
        """What the first screens draw from: of what is shown, or until there is anything, what is remembered."""
        if self.merged is not None:
            return self.merged.rollup
        return self.live or (self.shown.rollup if self.shown else self.remembered)

    @property
    def record(self) -> Record | None:
        """What events are drawn from."""
        if self.merged is not None:
            return self.merged if self.merged.records else None
        return self.shown

    @property
    def unjudged_us(self) -> int:
        """For how long the record goes on beyond what verdicts are made of; 0 up to UNJUDGED_US, which is no news."""
        known = self.live
        behind = (known.data_us or 0) - (known.judged_us or 0) if known else 0
        return behind if behind > UNJUDGED_US else 0

    @property
    def is_remembered(self) -> bool:
        """Whether the picture is of an earlier opening: it has to say so, and how old it is."""
        return self.shown is None and self.remembered is not None

    @property
    def is_overdue(self) -> bool:
        """Whether what is shown may be old although nothing failed: looks at the ledger do not come back."""
        return self.shown is not None and self.last_look is not None and self.last_look.is_overdue

    @property
    def is_stale(self) -> bool:
        """Whether the picture is older than it should be: it has to say so, with its age."""
        return self.rollup is not None and (self.failure is not None or self.is_overdue)

    @property
    def look_age_us(self) -> int:
        """How long ago the ledger was last seen."""
        return round(self.last_look.age_s * 1e6) if self.last_look else 0

    @property
    def newer_rows(self) -> int:
        """Rows that have come in while the view stood still."""
        if self.record is None or self.rollup is None:
            return 0
        return max(self.rows_there, self.newer.rollup.rows if self.newer else 0, self.rollup.rows) - self.rollup.rows

    def incident_of(self, incident_id: str | None) -> Incident | None:
        """An incident by its id."""
        return self.rollup.incident(incident_id) if self.rollup else None

    @property
    def incident(self) -> Incident | None:
        """The incident that is open or selected."""
        return self.incident_of(self.view.incident)

    @property
    def reading(self) -> Reading | None:
        """The response that is looked at; None where the incident concerns none."""
        readings = self.readings
        return next((r for r in readings if r.rid == self.view.rid), readings[0] if readings else None)

    @property
    def readings(self) -> tuple[Reading, ...]:
        """The responses of the incident, gravest first."""
        incident = self.incident
        return self.shown.readings(incident) if self.shown and incident else ()

    def lineage(self) -> Lineage | None:
        """Pages and donors of that response."""
        shown, reading = self.shown, self.reading
        if shown is None or reading is None:
            return None
        return shown.once(("lineage", reading.key), lambda: lineage(shown, reading))

    def story(self, known: Lineage | None) -> PageStory | None:
        """Events of the selected page, or of the first page found."""
        shown, reading = self.shown, self.reading
        if shown is None or reading is None or known is None or not known.pages:
            return None
        pages = {page.page for page in known.pages}
        page = self.view.page if self.view.page in pages else known.found[0]
        return shown.once(("story", reading.key, page), lambda: page_story(shown, reading, page))

    @property
    def mode(self) -> Mode:
        """How the view relates to the ledger."""
        return self.view.mode
