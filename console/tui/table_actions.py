"""Actions on tables: filter, sort, export."""

from __future__ import annotations

from dataclasses import replace

from console.core.evidence_bundle import evidence_bundle, incident_scope, range_scope
from console.core.export import export
from console.core.filter_language import parse_filter
from console.core.looking import fields_of, left_of
from console.core.places import Place
from console.core.redaction import Redaction
from console.core.run_tables import RUNS
from console.core.sheet import shown
from console.core.view import Sort
from console.tui.app_base import DeskApp, Refused

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
        """Only one tenant's."""
        self.do_filter(f'"{text}"' if " " in text else text)

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
        at = self.looking()
        if at.fault:
            raise Refused(at.fault)
        sheet = self.known.sheets[self.sheet_name]
        left = left_of(self.known, self.sheet_name, at)
        made = export(self.known, sheet, left, self.desk.view, text.strip(), Redaction())
        self.say(f"{self.keep_file(made.name, made.content)}: {left.words}", title="Exported")

    def export_bundle(self) -> None:
        """Write the evidence of the incident that is open or selected, elsewhere of the range, made beside the event loop."""
        shown, at, incident = self.desk.shown, self.looking(), self.desk.incident
        if shown is None:
            raise Refused("the record has not been read yet; its evidence comes with the reading")
        if at.fault:
            raise Refused(at.fault)
        is_one = incident is not None and self.desk.view.place in (Place.INCIDENT, Place.INCIDENTS, Place.OVERVIEW)
        scope = incident_scope(incident) if is_one and incident is not None else range_scope(shown, at.span)

        def make() -> None:
            try:
                made = evidence_bundle(shown, scope, at.view, Redaction())
                words, title = f"{self.keep_file(made.name, made.content)}: the evidence of {scope.name}", "Exported"
            except Refused as error:
                words, title = str(error), "Not done"
            self.call_from_thread(self.say, words, title)

        self.run_worker(make, thread=True, group="bundle", exit_on_error=False)

    def keep_file(self, name: str, content: bytes) -> str:
        """Write a new file, numbered where the name is taken. Raises Refused."""
        stem, _, ending = name.rpartition(".")
        directory = self.around.exports
        if directory.resolve().is_relative_to(self.source.path.resolve()):
            raise Refused(
                f"{directory} is inside the ledger: evidence is never written to; start the console elsewhere"
            )
        for number in range(1, 1000):
            path = directory / (name if number == 1 else f"{stem}-{number}.{ending}")
            try:
                with path.open("xb") as file:
                    file.write(content)
                return str(path)
            except FileExistsError:
                continue
            except OSError as error:
                raise Refused(f"{path}: {error.strerror}; nothing was exported") from error
        raise Refused(f"{directory} holds a thousand files named {name}; move them away")
