"""Actions that are kept: what is said of incidents, and views saved under a name. Never in the ledger."""

from __future__ import annotations

from dataclasses import replace

from console.core.incidents import Incident
from console.core.saved_views import load_views, save_view
from console.core.time_range import length_us
from console.core.triage import TriageBook, TriageError, silences
from console.tui.app_base import Refused
from console.tui.reading_actions import ReadingActions
from console.tui.silences_screen import SilencesScreen


class KeptActions(ReadingActions):
    """Seen, silenced, noted, saved. Saved views are the user's own: they are kept without --write, too."""

    def _check_writer(self) -> None:
        if self.desk.view.replay is not None:
            raise Refused("this is a replay of what was: F goes back to what is, and there it can be said")
        if not self.around.may_write:
            raise Refused("this console only reads: open it with --write, and what is said of incidents is kept")

    def _chosen(self) -> tuple[Incident, TriageBook]:
        self._check_writer()
        incident = self.desk.incident
        if incident is None:
            raise Refused("no incident is selected; 2 lists them")
        return self.own(incident)

    def do_ack(self, words: str = "") -> None:
        """Say that an incident is seen as it stands now."""
        incident, book = self._chosen()
        book.ack(incident, words)
        self._heard(f"{incident.id} is acknowledged; it opens again if it grows")

    def do_silence(self, text: str) -> None:
        """Silence an incident for a time."""
        (incident, book), (length, _, words) = self._chosen(), text.partition(" ")
        book.silence(incident, length_us(length), words)
        self._heard(f"{incident.id} is silent for {length}, or until it is over")

    def do_unsilence(self, text: str = "") -> None:
        """End the silence of an incident before its time: of the one that is named, else of the selected one."""
        self._check_writer()
        name, _, words = text.partition(" ")
        named = self.known.incident(name)
        incident, book = self._chosen() if named is None else self.own(named)
        book.unsilence(incident, text if named is None else words)
        self._heard(f"the silence of {incident.id} is ended")

    def do_silences(self) -> None:
        """The silences that go on."""
        now = self.moment_us()
        self.push_screen(SilencesScreen(silences(self.known.incidents, self.said, now), now))

    def do_note(self, words: str) -> None:
        """Note something of an incident."""
        incident, book = self._chosen()
        book.note(incident, words)
        self._heard(f"noted of {incident.id}")

    def _heard(self, words: str) -> None:
        self.listen()
        self.say(words)
        self.redraw()

    def listen(self) -> None:
        """Read again what people have said; what cannot be read is said once."""
        try:
            self.said, faults = self.heard()
        except (TriageError, OSError) as error:
            self.said = ()
            self.say_once(f"what was said of incidents cannot be read: {error}")
            return
        for fault in faults:
            self.say_once(fault)

    def do_save_view(self, name: str) -> None:
        """Save the view under a name."""
        # A view of one ledger is one of whichever is looked at.
        view = self.desk.view if self.is_all else replace(self.desk.view, ledger=None)
        save_view(self.around.views, name, view)
        self.say(f"{name} is saved in {self.around.views}; :view {name} opens it")

    def do_view(self, name: str) -> None:
        """Open a saved view."""
        saved = load_views(self.around.views)
        if name in saved.faults:
            raise Refused(f"{name} cannot be opened: {saved.faults[name]}")
        if name not in saved.views:
            there = ", ".join(sorted(saved.views)) or "none yet; V saves one"
            raise Refused(f"there is no saved view {name}; there are: {there}")
        self.show_view(saved.views[name])
