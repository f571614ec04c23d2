"""What a served console says to the outside and hears from it, made from files that the command line names.

Invariant: both keep their files in the user's state directory; neither is there unless it was asked for.
"""

from __future__ import annotations

import sys
from pathlib import Path

from console.core.source import LedgerSource
from console.core.triage import TriageBook, TriageError, state_directory
from console.notify.errors import NotifyError
from console.notify.notifier import Notifier
from console.notify.outbox import Outbox, outbox_path
from console.notify.receivers import load_receivers
from console.web.errors import ServeError
from console.web.gate import load_token
from console.web.intake import Intake

WHO = "alert intake"


def load_notifier(source: LedgerSource, receivers_file: Path) -> Notifier:
    """Raises ServeError where the receivers or the outbox will not do."""
    try:
        receivers = load_receivers(receivers_file)
        outbox = Outbox(outbox_path(state_directory(), source.path))
        book = _book(source)
    except NotifyError as error:
        raise ServeError(str(error)) from error
    return Notifier(
        receivers, outbox, now_us=source.now_us, entries=book.entries, say=lambda words: print(words, file=sys.stderr)
    )


def load_intake(source: LedgerSource, token_file: Path, console_token: str) -> Intake:
    """Raises ServeError where the token will not do, or is the one that opens the console."""
    token, _ = load_token(token_file)
    if token == console_token:
        raise ServeError(f"{token_file} holds the console's own token: alerts need one that opens nothing else")
    return Intake(_book(source), token)


def _book(source: LedgerSource) -> TriageBook:
    try:
        return TriageBook(state_directory(), source.path, who=WHO, now_us=source.now_us)
    except TriageError as error:
        raise ServeError(str(error)) from error
