"""What a served console says to the outside and hears from it, made from files that the command line names.

Invariant: both keep their files in the user's state directory; neither is there unless it was asked for.
"""

from __future__ import annotations

import sys
from pathlib import Path

from console.core.source import LedgerSource
from console.core.triage import TriageBook, TriageError
from console.notify.errors import NotifyError
from console.notify.notifier import Notifier
from console.notify.outbox import Outbox, outbox_path
from console.notify.receivers import load_receivers
from console.web.errors import ServeError
from console.web.gate import Tokens, load_tokens
from console.web.intake import Intake

WHO = "alert intake"


def load_notifier(source: LedgerSource, state: Path, receivers_file: Path, one_of: str = "") -> Notifier:
    """`one_of`: the ledger's name where several are served. Raises ServeError where the receivers or the outbox will not do."""
    try:
        receivers = load_receivers(receivers_file)
        outbox = Outbox(outbox_path(state, source.path))
    except NotifyError as error:
        raise ServeError(str(error)) from error
    entries = _book(source, state).entries
    return Notifier(
        receivers, outbox, now_us=source.now_us, entries=entries, say=lambda w: print(w, file=sys.stderr), one_of=one_of
    )


def load_intake(source: LedgerSource, state: Path, token_file: Path, console_tokens: Tokens) -> Intake:
    """Raises ServeError where the token will not do, or opens the console too."""
    found, _ = load_tokens(token_file)
    if len(found) != 1:
        raise ServeError(f"{token_file} holds {len(found)} tokens: alerts come in with one")
    (token,) = found
    if token in console_tokens:
        raise ServeError(f"{token_file} holds a token of the console: alerts need one that opens nothing else")
    return Intake(_book(source, state), token)


def _book(source: LedgerSource, state: Path) -> TriageBook:
    try:
        return TriageBook(state, source.path, who=WHO, now_us=source.now_us)
    except TriageError as error:
        raise ServeError(str(error)) from error
