"""Reading the ledgers that are open, and which of them, or all, is looked at.

Invariant: reading happens in one worker thread a ledger at a time and never in the event loop; a ledger that hangs keeps no
other from being read. The desk of a ledger that is not looked at waits as it was left.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from textual.worker import Worker, WorkerState

from console.core.desk import Desk
from console.core.incidents import Incident
from console.core.ledger_names import ALL_LEDGERS, ledger_names
from console.core.live_edge import Looked
from console.core.merged import said_of
from console.core.places import MERGED, Place
from console.core.printable import printable
from console.core.snapshot import Snapshot
from console.core.source import Failure, LedgerSource
from console.core.source_states import SourceState, merged_of, source_states
from console.core.triage import Entry, TriageBook, TriageError
from console.core.view import View
from console.tui.app_base import Refused
from console.tui.screen_base import DeskScreen
from console.tui.terminal_actions import TerminalActions

REST_FACTOR = 4
"""A reading that computes for T seconds is followed by REST_FACTOR x T seconds of rest: a fifth of a core at most."""
READING, EDGE = "reading", "edge"
"""Groups of workers; each is named by its ledger."""


class ReadingActions(TerminalActions):
    """The ledgers, and the desk of each."""

    _back_to_all = False

    def open_ledgers(self, sources: Sequence[LedgerSource]) -> None:
        """Look at the ledger that the view names, else at the first. Raises Refused where there is none of that name."""
        self._sources = dict(zip(ledger_names([s.path for s in sources]), sources, strict=True))
        self._desks: dict[str, Desk] = {}
        self._rest_until: dict[str, float] = {}
        self.ledger_name = self.desk.view.ledger or next(iter(self._sources))
        self._check(self.ledger_name)
        self.source = self._sources.get(self.ledger_name, self.source)
        self.desk = Desk(replace(self.desk.view, ledger=self._named(self.ledger_name)))

    @property
    def ledgers(self) -> Sequence[str]:
        """Names of what can be looked at."""
        return (*self._sources, *([ALL_LEDGERS] if len(self._sources) > 1 else ()))

    @property
    def paths(self) -> Sequence[Path]:
        """Where the ledgers are that are open."""
        return [source.path for source in self._sources.values()]

    @property
    def is_all(self) -> bool:
        """Whether all ledgers are looked at as one."""
        return self.ledger_name == ALL_LEDGERS

    @property
    def states(self) -> tuple[SourceState, ...]:
        """How each ledger stands, where all are looked at."""
        return source_states(self._all_desks(), self.now_us()) if self.is_all else ()

    def _check(self, name: str) -> None:
        if name not in self.ledgers:
            raise Refused(f"there is no ledger {name}; there are: {', '.join(self.ledgers)}")

    def _named(self, name: str) -> str | None:
        """What a view says of the ledger: nothing where there is one only."""
        return name if len(self._sources) > 1 else None

    def _desk_of(self, name: str) -> Desk:
        """Of a ledger, looked at or not."""
        if name == self.ledger_name:
            return self.desk
        if name not in self._desks:
            remembered = self._sources[name].remembered() if name in self._sources else None
            self._desks[name] = Desk(View(ledger=self._named(name)), remembered=remembered)
        return self._desks[name]

    def _keep(self, name: str, desk: Desk) -> None:
        if name == self.ledger_name:
            self.desk = desk
        else:
            self._desks[name] = desk

    def _all_desks(self) -> dict[str, Desk]:
        return {name: self._desk_of(name) for name in self._sources}

    @property
    def has_been_read(self) -> bool:
        """Whether what is looked at has been read, or could not be."""
        desks = self._all_desks().values() if self.is_all else (self.desk,)
        return all(desk.shown is not None or (self.is_all and desk.failure is not None) for desk in desks)

    def own(self, incident: Incident) -> tuple[Incident, TriageBook]:
        """An incident as its own ledger has it, and what people said there. Raises TriageError."""
        if not incident.source:
            return incident, self.book(self.source)
        found = self.known.of(incident).incident(incident.id)
        assert found is not None
        return found, self.book(self._sources[incident.source])

    def heard(self) -> tuple[tuple[Entry, ...], tuple[str, ...]]:
        """What people have said of all that is looked at, and lines that cannot be read. Raises TriageError, OSError."""
        books = {name: self.book(source) for name, source in self.sources_of().items()}
        said = [said_of(name, b.entries()) if self.is_all else b.entries() for name, b in books.items()]
        return tuple(e for entries in said for e in entries), tuple(f for b in books.values() for f in b.faults())

    def sources_of(self) -> dict[str, LedgerSource]:
        """The ledgers that are looked at, by name."""
        return self._sources if self.is_all else {self.ledger_name: self.source}

    def look(self) -> None:
        """Read each ledger that is looked at if it has changed, unless that is going on or has just cost much."""
        self.open_wanted()
        going_on = {(worker.group, worker.name) for worker in self.workers if not worker.is_finished}
        for name, source in self.sources_of().items():
            desk = replace(self._desk_of(name), last_look=source.looks.last)
            self._keep(name, desk)
            if (EDGE, name) not in going_on and desk.shown is not None:
                self.run_worker(source.edge, thread=True, group=EDGE, name=name, exit_on_error=False)
            if (READING, name) not in going_on and time.monotonic() >= self._rest_until.get(name, 0.0):
                reading = partial(self._read, name)
                self.run_worker(reading, thread=True, group=READING, name=name, exit_on_error=False)
        if self.is_all:
            self._merge()
        self.redraw_header()

    def _read(self, name: str) -> tuple[Snapshot | Failure, Looked | None] | None:
        """A reading, if there is a new one, and what the streams hold beyond it by now."""
        started, source = time.thread_time(), self._sources[name]
        reading = source.read_if_changed()
        if isinstance(reading, Snapshot):
            # Computed here rather than while drawing.
            _ = (reading.rollup.incidents, reading.rollup.owners, reading.rollup.held, reading.order)
            self._rest_until[name] = time.monotonic() + REST_FACTOR * (time.thread_time() - started)
        return None if reading is None else (reading, source.edge())

    def take_worker(self, worker: Worker[Any]) -> None:
        """A reading or a look at the streams is done."""
        if worker.state is not WorkerState.SUCCESS or worker.result is None:
            return
        if worker.group == READING:
            reading, beyond = worker.result
            self.take(reading, beyond, worker.name)
        elif worker.group == EDGE:
            self._take_edge(worker.name, worker.result)

    def take(self, reading: Snapshot | Failure, beyond: Looked | None = None, name: str = "") -> None:
        """Put a reading on the desk of its ledger (that which is looked at), with what the streams hold beyond it, and draw
        it. One of a ledger that is not looked at waits until it is."""
        name = name or self.ledger_name
        desk = self._desk_of(name).offer(reading)
        self._keep(name, desk if beyond is None else desk.offer_edge(*beyond))
        if name not in self.sources_of():
            return
        if isinstance(reading, Snapshot):
            self._end_silences(name, reading)
            self.tell_opened(reading, self._sources[name].path, self._said_in(name))
            problem = reading.first_problem
            if problem is not None:
                told = f"{printable(problem.where)}: {printable(problem.what)}; next: {printable(problem.remedy)}"
                self.say_once(told)
        if self.is_all:
            self._merge()
        self.taken()
        self.redraw()

    def _take_edge(self, name: str, found: Looked) -> None:
        before = self._desk_of(name)
        desk = before.offer_edge(*found)
        self._keep(name, desk)
        if desk.live is not before.live and name in self.sources_of():
            if self.is_all:
                self._merge()
            self.redraw()

    def _merge(self) -> None:
        """Show what there is of all ledgers by now."""
        self.desk = self.desk.offer_merged(merged_of(self._all_desks(), self.desk.merged))

    def _end_silences(self, name: str, reading: Snapshot) -> None:
        """End what is over, where that may be written, and hear what others have said since."""
        try:
            if self.around.may_write:
                self.book(self._sources[name]).end_silences(reading.incidents)
        except (TriageError, OSError) as error:
            self.say_once(str(error))
            return
        self.listen()

    def _said_in(self, name: str) -> tuple[Entry, ...]:
        """What was said of one ledger's incidents, by their ids."""
        if not self.is_all:
            return self.said
        own = f"{name}:"
        mine = (entry for entry in self.said if entry.incident.startswith(own))
        return tuple(replace(entry, incident=entry.incident.removeprefix(own)) for entry in mine)

    def do_ledger(self, name: str) -> None:
        """Another of the ledgers that were given, or all of them; each keeps the view it was left with."""
        self._check(name)
        if name == self.ledger_name:
            return
        self.leave_incident_for(name)
        place = self.desk.view.place
        before, desk = self.ledger_name, self._desk_of(name)
        if name == ALL_LEDGERS and place not in MERGED:
            self.go(Place.OVERVIEW)
            place = Place.OVERVIEW
        self._desks[before] = self.desk
        self.ledger_name = name
        self.source = self._sources.get(name, self.source)
        self._desks.pop(name, None)
        self.desk = replace(desk, view=replace(desk.view, place=place))
        self._rest_until.pop(name, None)
        self.listen()
        self.look()
        self.redraw()

    def enter(self, name: str) -> None:
        """The ledger of something that was found among all; leaving its incident leads back to all."""
        self.do_ledger(name)
        self._back_to_all = True

    def came_from_all(self) -> bool:
        """Whether what is open was found among all ledgers; asked once."""
        came, self._back_to_all = self._back_to_all, False
        return came

    @abstractmethod
    def open_wanted(self) -> None:
        """Open what was asked for before there was anything."""

    @abstractmethod
    def taken(self) -> None:
        """What waits for a reading."""

    @abstractmethod
    def go(self, place: Place) -> None:
        """To one of the screens with a number."""

    @abstractmethod
    def leave_incident_for(self, name: str) -> None:
        """Close an open incident, since another ledger is looked at."""

    @abstractmethod
    def listen(self) -> None:
        """Read again what people have said."""

    def redraw_header(self) -> None:
        """Ages in the header move on although nothing else does; so does this machine's clock."""
        for top in self.screen_stack[-1:]:
            if isinstance(top, DeskScreen):
                top.draw_frame()
