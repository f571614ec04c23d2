"""What every group of actions of the terminal console works on: the source, the desk, and how a screen is drawn again.

Invariant: an action that cannot be done raises one of `REFUSALS`; it is said in words, and nothing has changed.
"""

from __future__ import annotations

import getpass
import os
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from textual.app import App

from console.core.commands import CommandError
from console.core.desk import Desk
from console.core.export import ExportError
from console.core.filter_language import FilterError
from console.core.incident_words import Fact
from console.core.incidents import Incident
from console.core.looking import Looking, looking, range_now
from console.core.nearest import Nearest
from console.core.rollup import Rollup
from console.core.run_start import RunSetting
from console.core.saved_views import SavedViewError, views_file
from console.core.source import LedgerSource
from console.core.standing_rows import with_standing
from console.core.standing_words import few_facts
from console.core.time_moves import extent
from console.core.time_range import BadRange
from console.core.triage import Entry, Standing, TriageBook, TriageError, standing, state_directory
from console.core.view import View
from console.core.what_if import WhatIfError
from forensics.safe_text import safe_text


class Refused(Exception):
    """What was asked for cannot be done: why, and what to do."""


REFUSALS = (Refused, CommandError, FilterError, BadRange, TriageError, SavedViewError, ExportError, WhatIfError)


@dataclass(frozen=True)
class Surroundings:
    """Where the console keeps and writes things, and for whom. `exports`: the directory that files are exported to.

    Of the terminal: how often the ledger is looked at, whether the mouse is taken, whether what opens rings, whether signs
    are ASCII although the locale does not ask for it.
    """

    state: Path
    views: Path
    exports: Path
    who: str
    environment: Mapping[str, str] = field(default_factory=dict)
    runs: RunSetting = field(default_factory=RunSetting)
    refresh_s: int = 1
    mouse: bool = True
    bell: bool = True
    ascii: bool = False

    @property
    def may_write(self) -> bool:
        """Whether anything may be said of incidents and any runbook be run from here."""
        return self.runs.may_start

    @classmethod
    def of_user(cls) -> Surroundings:
        """Those of the user who runs it."""
        return cls(state_directory(), views_file(), Path.cwd(), getpass.getuser(), dict(os.environ))


class DeskApp(App[None]):
    """An app over one desk at a time."""

    def __init__(self, source: LedgerSource, view: View, around: Surroundings) -> None:
        super().__init__()
        self.source, self.around, self.desk = source, around, Desk(view)
        self.said: tuple[Entry, ...] = ()
        self._said_once: set[str] = set()

    @property
    def now_us(self) -> Callable[[], int]:
        """The clock of the source, us UTC."""
        return self.source.now_us

    @property
    def seen(self) -> Rollup | None:
        """What is shown, and how its incidents stand; None before there is anything."""
        known = self.desk.rollup
        return None if known is None else with_standing(known, self.said, self.moment_us())

    @property
    def known(self) -> Rollup:
        """The same. Raises Refused before there is anything."""
        if self.seen is None:
            raise Refused("the ledger has not been read yet; wait for the first picture")
        return self.seen

    def looking(self) -> Looking:
        """What the view's range and filter mean. Raises Refused."""
        return looking(self.known, self.desk.view, self.now_us())

    def moment_us(self) -> int:
        """The moment whose state is shown, us UTC."""
        return self.desk.view.moment_us(self.now_us())

    def standing(self, incident: Incident) -> Standing:
        """How an incident stands at that moment with the people on call."""
        return standing(incident, self.said, self.moment_us())

    def standing_facts(self, incident: Incident) -> tuple[Fact, ...]:
        """The same in few words, with the latest note."""
        return few_facts(self.standing(incident), self.moment_us())

    def range_now(self) -> int:
        """What `now` means in a range, us UTC. Raises Refused."""
        return range_now(self.known, self.desk.view, self.now_us())

    @property
    def whole(self) -> Rollup:
        """Of all of the record, also while a replay shows it as it was. Raises Refused before there is anything."""
        return self.desk.full.rollup if self.desk.full is not None else self.known

    def looked(self) -> tuple[int, int]:
        """First and last moment that is looked at, us UTC. Raises Refused."""
        unplayed = replace(self.desk.view, replay=None)
        reach = extent(self.whole, looking(self.whole, unplayed, self.now_us()).span)
        if reach is None:
            raise Refused("nothing is recorded in this range; z shows the whole record")
        return reach

    def change(self, view: View) -> None:
        """Look at something else, and draw it; a view that follows again shows what is newest."""
        self.desk = self.desk.looking_at(view)
        self.redraw()

    def book(self, source: LedgerSource) -> TriageBook:
        """What people said of a ledger's incidents. Raises TriageError."""
        return TriageBook(self.around.state, source.path, who=self.around.who, now_us=self.now_us)

    @property
    @abstractmethod
    def paths(self) -> Sequence[Path]:
        """Where the ledgers are that are open."""

    @abstractmethod
    def redraw(self) -> None:
        """Draw the screen that is seen."""

    @abstractmethod
    def show_view(self, view: View) -> None:
        """Go to where a view looks."""

    @abstractmethod
    def nearest(self) -> Nearest | None:
        """What lies nearest to the range, where nothing of what the screen that is seen draws lies in it."""

    @abstractmethod
    def pointed_us(self) -> int | None:
        """The moment under the cursor of the screen that is seen, us UTC."""

    def say_once(self, words: str) -> None:
        """A message that is not repeated while the console is open."""
        if words not in self._said_once:
            self._said_once.add(words)
            self.say(words)

    def say(self, words: str, title: str = "") -> None:
        """A message that goes away by itself."""
        self.notify(safe_text(words), title=safe_text(title), markup=False)
