"""What people say of incidents, as forms of a page: acknowledged, silenced, noted.

Invariant: only a visitor that `write_check` let through writes; what was written names the token that did it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from console.core.incidents import Incident
from console.core.source import LedgerSource
from console.core.time_range import length_us
from console.core.triage import Entry, TriageBook, TriageError
from console.web.gate import Visitor


class TriageForms:
    """Reads and writes the triage book of one ledger in `state`."""

    def __init__(self, state: Path, source: LedgerSource) -> None:
        self._state, self._source = state, source

    def entries(self) -> tuple[Entry, ...]:
        """All that was said."""
        return self._book("").entries()

    def _book(self, who: str) -> TriageBook:
        return TriageBook(self._state, self._source.path, who=who, now_us=self._source.now_us)

    def write(self, visitor: Visitor, incident: Incident, form: Mapping[str, str]) -> None:
        """Write what the form says. Raises TriageError and BadRange."""
        book, words = self._book(visitor.who), form.get("words", "")
        acts: dict[str, Callable[[], Entry]] = {
            "ack": lambda: book.ack(incident, words),
            "silence": lambda: book.silence(incident, length_us(form.get("length", "")), words),
            "unsilence": lambda: book.unsilence(incident, words),
            "note": lambda: book.note(incident, words),
        }
        act = form.get("act", "")
        if act not in acts:
            raise TriageError(f"nothing is said by {act!r}; it can be {', '.join(acts)}")
        acts[act]()
