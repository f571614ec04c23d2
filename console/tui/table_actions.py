"""Actions on tables: filter, sort, export."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, BinaryIO, TypeVar

from textual.worker import Worker, WorkerState

from console.core.event_export import Written, events_file, export_events
from console.core.event_window import Looked
from console.core.evidence_bundle import evidence_bundle, incident_scope, range_scope
from console.core.export import Exported, checked, export
from console.core.filter_language import parse_filter, with_value
from console.core.looking import Looking, fields_of, left_of
from console.core.places import Place
from console.core.redaction import Redaction
from console.core.run_tables import RUNS
from console.core.sheet import shown
from console.core.view import Sort
from console.tui.app_base import DeskApp, Refused

T = TypeVar("T")
EXPORT = "export"
"""The group of the worker that writes events into a file."""
SHEET_OF = {
    Place.OVERVIEW: "incidents", Place.INCIDENTS: "incidents", Place.INCIDENT: "incidents", Place.PAGES: "events",
    Place.HELD: "holders", Place.LATENCY: "latency", Place.EVENTS: "events", Place.RUNS: "incidents",
}  # fmt: skip
"""The table that a screen's filter, sort and export are about."""


class TableActions(DeskApp):
    """One filter for all screens; a screen whose rows lack a field says so."""

    @property
    def sheet_name(self) -> str:
        """Of the table that the present screen is about."""
        return SHEET_OF[self.desk.view.place]

    def sort_columns(self) -> tuple[str, ...]:
        """The columns of the table that is seen; none where no table can be put in another order."""
        place = self.desk.view.place
        if place is Place.RUNS:
            return tuple(RUNS.names)
        unsorted = place in (Place.PAGES, Place.INCIDENT)
        return () if unsorted else tuple(self.known.sheets[self.sheet_name].rows.column_names)

    def do_filter(self, text: str = "") -> None:
        """Filter every table; empty = no filter."""
        known, at = self.known, self.looking()
        parse_filter(text, fields_of(known))
        view = replace(self.desk.view, filter=text.strip())
        for sheet in known.sheets.values():
            shown(sheet, view, at.span, at.now_us)
        self.change(view)

    def do_tenant(self, text: str) -> None:
        """Only one tenant's, of what the filter leaves."""
        self.do_filter(with_value(self.desk.view.filter, "tenant", text))

    def do_sort(self, text: str) -> None:
        """Sort by a column; the same again turns it round."""
        wanted = Sort.parse(text)
        columns = self.sort_columns()
        if not columns:
            raise Refused("nothing here can be put in another order")
        if wanted.column not in columns:
            raise Refused(f"there is no column {wanted.column}; there are: {', '.join(columns)}")
        if self.desk.view.sort == wanted:
            wanted = replace(wanted, descending=not wanted.descending)
        self.change(replace(self.desk.view, sort=wanted))

    def do_export(self, text: str) -> None:
        """Write the table as it stands into a file that was not there before."""
        at, fmt = self.looking(), checked(text.strip())
        if at.fault:
            raise Refused(at.fault)
        if self.sheet_name == "events":
            self._export_events(at, fmt)
            return
        sheet = self.known.sheets[self.sheet_name]
        left = left_of(self.known, self.sheet_name, at)
        made = export(self.known, sheet, left, self.desk.view, fmt, Redaction())
        self.say(f"{self.keep(made)}: {left.words}", title="Exported")

    def keep(self, made: Exported) -> str:
        """Write a file that is made already; its path. Raises Refused."""
        return self.keep_file(made.name, lambda file: file.write(made.content))[0]

    def export_bundle(self) -> None:
        """Write the evidence of the incident that is open or selected, elsewhere of the range, made beside the event loop."""
        shown, at, incident = self.desk.shown, self.looking(), self.desk.incident
        if self.desk.merged is not None:
            raise Refused("evidence is of one ledger; L chooses it")
        if shown is None:
            raise Refused("the record has not been read yet; its evidence comes with the reading")
        if at.fault:
            raise Refused(at.fault)
        is_one = incident is not None and self.desk.view.place in (Place.INCIDENT, Place.INCIDENTS, Place.OVERVIEW)
        scope = incident_scope(incident) if is_one and incident is not None else range_scope(shown, at.span)

        def make() -> None:
            try:
                made = evidence_bundle(shown, scope, at.view, Redaction())
                words, title = f"{self.keep(made)}: the evidence of {scope.name}", "Exported"
            except Refused as error:
                words, title = str(error), "Not done"
            self.call_from_thread(self.say, words, title)

        self.run_worker(make, thread=True, group="bundle", exit_on_error=False)

    def _export_events(self, at: Looking, fmt: str) -> None:
        """All of range and filter, beside the event loop: it takes as long as the record is long."""
        shown, known, view = self.desk.record, self.known, self.desk.view
        if shown is None:
            raise Refused(
                "events are exported from the record, which has not been read yet; wait for the first picture"
            )
        looked = Looked(parse_filter(at.view.filter), at.span, at.now_us)

        def write(file: BinaryIO) -> Written:
            return export_events(known, shown.events, looked, view, fmt, Redaction(), file)

        self.run_worker(
            lambda: self.keep_file(events_file(known, fmt), write), thread=True, group=EXPORT, name=fmt, exit_on_error=False
        )  # fmt: skip

    def take_export(self, worker: Worker[Any]) -> None:
        """Say where the events are, or why they are nowhere."""
        if worker.state is WorkerState.ERROR:
            self.say(str(worker.error), title="Not done")
        elif worker.state is WorkerState.SUCCESS and worker.result is not None:
            path, written = worker.result
            self.say(f"{path}: {written.words}", title="Exported")

    def keep_file(self, name: str, write: Callable[[BinaryIO], T]) -> tuple[str, T]:
        """Have a new file written, numbered where the name is taken: its path, and what `write` gave; none is left where
        that failed. Raises Refused."""
        stem, _, ending = name.rpartition(".")
        directory = self.around.exports
        if any(directory.resolve().is_relative_to(path.resolve()) for path in self.paths):
            raise Refused(
                f"{directory} is inside the ledger: evidence is never written to; start the console elsewhere"
            )
        for number in range(1, 1000):
            path = directory / (name if number == 1 else f"{stem}-{number}.{ending}")
            try:
                file = path.open("xb")
            except FileExistsError:
                continue
            except OSError as error:
                raise Refused(f"{path}: {error.strerror}; nothing was exported") from error
            try:
                with file:
                    return str(path), write(file)
            except BaseException as error:
                path.unlink(missing_ok=True)
                if isinstance(error, OSError):
                    raise Refused(f"{path}: {error.strerror}; nothing was exported") from error
                raise
        raise Refused(f"{directory} holds a thousand files named {name}; move them away")
