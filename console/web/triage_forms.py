"""What people say of incidents, as forms of a page: acknowledged, silenced, noted.

Invariant: nothing is written where writing is switched off, by a role that may not, or from a form that no page of this
server made; what was written names the token that did it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hmac import compare_digest
from pathlib import Path

from starlette.exceptions import HTTPException

from console.core.incidents import Incident
from console.core.source import LedgerSource
from console.core.time_range import length_us
from console.core.triage import Entry, TriageBook, TriageError
from console.web.gate import Gate, Visitor


class TriageForms:
    """Reads and writes the triage book of one ledger in `state`."""

    def __init__(self, state: Path, source: LedgerSource, gate: Gate) -> None:
        self._state, self._source, self._gate = state, source, gate

    def entries(self) -> tuple[Entry, ...]:
        """All that was said."""
        return self._book("").entries()

    def _book(self, who: str) -> TriageBook:
        return TriageBook(self._state, self._source.path, who=who, now_us=self._source.now_us)

    def check(self, visitor: Visitor | None, form: Mapping[str, str]) -> Visitor:
        """The visitor who may. Raises HTTPException for whoever may not, and for a form that is not of this server."""
        if visitor is None or not self._gate.may_write(visitor):
            why = "this console is read only" if not self._gate.can_write else "this token may look only"
            raise HTTPException(403, f"{why}: start it with --write and a token of the role operator")
        # A cookie goes along with whatever a browser sends; a bearer token is sent on purpose.
        if not visitor.bearer and not compare_digest(form.get("word", ""), visitor.word):
            raise HTTPException(403, "this form is not of this page: open the page again")
        return visitor

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
