"""Going on from an open incident: to another page that was not its reader's, another response, another incident.

Invariant: steps that are asked for while a response is worked out wait until it is; another response forgets them.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace

from console.core.lineage import Lineage
from console.core.view import Cue
from console.tui.background import BackgroundScreen
from console.tui.incident_picture import Told


class IncidentSteps(BackgroundScreen):
    """The steps of the Incident screen."""

    _steps = 0

    @property
    @abstractmethod
    def here(self) -> Told | None:
        """What is worked out of the response that is looked at."""

    @abstractmethod
    def look_again(self, *, from_end: bool = False) -> None:
        """Have what the desk points at worked out."""

    @abstractmethod
    def page_of(self, known: Lineage) -> int | None:
        """The page that is looked at."""

    def show_response(self, rid: str) -> None:
        """Look at another response."""
        app, self._steps = self.console_app, 0
        app.desk = app.desk.select(rid=rid)
        self.draw()

    def do_next_found(self) -> None:
        """The next page with a foreign read, over responses and round."""
        self.find(1)

    def do_previous_found(self) -> None:
        """The previous one."""
        self.find(-1)

    def find(self, by: int) -> None:
        """The next page that was not its reader's, or the one before, over responses and round."""
        app = self.console_app
        told, reading = self.here, app.desk.reading
        if reading is None:
            return
        if told is None:
            self._steps += by
            return
        found, page = told.known.found, self.page_of(told.known)
        at = found.index(page) + by if page in found else 0
        if 0 <= at < len(found):
            app.desk = app.desk.select(page=found[at])
        else:
            rids = list(dict.fromkeys(r.rid for r in app.desk.readings))
            rid = rids[(rids.index(reading.rid) + by) % len(rids)]
            app.desk = replace(app.desk, view=replace(app.desk.view, rid=rid, page=None))
            self.look_again(from_end=by < 0)
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
            self.show_response(rids[(rids.index(reading.rid) + by) % len(rids)])

    def do_next_incident(self) -> None:
        """The next incident of the list, round."""
        self._step_incident(1)

    def do_previous_incident(self) -> None:
        """The previous one."""
        self._step_incident(-1)

    def _step_incident(self, by: int) -> None:
        app, self._steps = self.console_app, 0
        if app.desk.shown is None or app.desk.incident is None:
            return
        incidents = app.desk.shown.incidents
        at = incidents.index(app.desk.incident)
        app.desk = app.desk.open_incident(incidents[(at + by) % len(incidents)]).on(Cue.OPEN)
        self.draw()
