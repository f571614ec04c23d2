"""The outbox: messages kept in a file until their receivers have them, whatever ends in between.

Invariant: a message is in the file before anybody tries to send it, and leaves the queue only with an answer, by being
refused, or by age; what a receiver was told last is read from the same rows. The file is never inside a ledger.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from importlib.resources import files
from pathlib import Path
from typing import Any

from console.core.marks import Severity
from console.core.triage import short_name
from console.notify.errors import NotifyError
from console.notify.notice import Notice
from console.notify.told import Told

LOCK_SECONDS = 5.0


def _statements() -> dict[str, str]:
    parts = (files("console.notify") / "outbox.sql").read_text().split("-- step: ")[1:]
    return {name: body for name, _, body in (part.partition("\n") for part in parts)}


_SQL = _statements()


class Ending(StrEnum):
    """How a message left the queue."""

    SENT = "sent"
    REFUSED = "refused"
    GIVEN_UP = "given_up"


@dataclass(frozen=True)
class LastTold:
    """The newest message to a receiver about an incident, sent or not."""

    number: int
    told: Told
    severity: Severity | None
    notice: Notice | None


UNTOLD = LastTold(0, Told.NOTHING, None, None)


@dataclass(frozen=True)
class Message:
    """One that is due. `key` is the same at every try."""

    id: int
    key: str
    notice: Notice
    attempts: int
    queued_us: int


@dataclass(frozen=True)
class Count:
    """Messages to one receiver in one state (`waiting` or how they ended), and when the oldest was queued."""

    receiver: str
    state: str
    messages: int
    oldest_us: int


class Outbox:
    """One file; every call opens it anew, so that any thread may call. All raise NotifyError where it cannot be used."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._open() as connection:
            connection.executescript(_SQL["create"])

    def told(self, receiver: str) -> dict[str, LastTold]:
        """What the receiver was told last of each incident."""
        with self._open() as connection:
            rows = connection.execute(_SQL["told"], {"receiver": receiver}).fetchall()
        return {
            r["incident"]: LastTold(
                r["number"], Told(r["told"]), Severity(r["severity"]), Notice.from_json(r["notice"])
            )
            for r in rows
        }

    def queue(self, receiver: str, number: int, told: Told, severity: Severity, notice: Notice, now_us: int) -> None:
        """Keep a message for sending."""
        values = {
            "receiver": receiver, "incident": notice.incident, "number": number, "told": told.value, "severity": int(severity),
            "notice": notice.to_json(), "now": now_us,
        }  # fmt: skip
        self._run("queue", values)

    def due(self, receiver: str, now_us: int) -> tuple[Message, ...]:
        """What may be sent now."""
        with self._open() as connection:
            rows = connection.execute(_SQL["due"], {"receiver": receiver, "now": now_us}).fetchall()
        return tuple(
            Message(
                r["id"], f"{r['incident']}.{r['number']}", Notice.from_json(r["notice"]), r["attempts"], r["queued_us"]
            )
            for r in rows
        )

    def claim(self, message: Message, now_us: int, again_us: int) -> bool:
        """Take a message for sending; False = another console has it. Without an end it is due again at `again_us`."""
        return self._run("claim", {"id": message.id, "now": now_us, "again": again_us}) == 1

    def fail(self, message: Message, problem: str, again_us: int) -> None:
        """A try that did not work."""
        self._run("fail", {"id": message.id, "problem": problem, "again": again_us})

    def end(self, message: Message, ending: Ending, now_us: int, problem: str | None = None) -> None:
        """The message leaves the queue."""
        self._run("end", {"id": message.id, "ended": ending.value, "now": now_us, "problem": problem})

    def repeat(self, receiver: str, incidents: Iterable[str], now_us: int, sent_before_us: int) -> None:
        """Send again what was sent last about those of `incidents` that grow."""
        values = {
            "receiver": receiver, "incidents": json.dumps(list(incidents)), "now": now_us, "before": sent_before_us,
            "told": Told.GROWS.value,
        }  # fmt: skip
        self._run("repeat", values)

    def counts(self) -> tuple[Count, ...]:
        """All messages by receiver and state."""
        with self._open() as connection:
            rows = connection.execute(_SQL["counts"]).fetchall()
        return tuple(Count(r["receiver"], r["state"], r["messages"], r["oldest_us"]) for r in rows)

    def _run(self, step: str, values: Mapping[str, Any]) -> int:
        """How many rows one statement changed."""
        with self._open() as connection, connection:
            return connection.execute(_SQL[step], values).rowcount

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
            connection = sqlite3.connect(self.path, timeout=LOCK_SECONDS)
            try:
                connection.row_factory = sqlite3.Row
                yield connection
            finally:
                connection.close()
        except (OSError, sqlite3.Error) as error:
            raise NotifyError(f"the outbox {self.path} cannot be used: {error}") from error


def outbox_path(directory: Path, ledger: Path) -> Path:
    """Of one ledger, in the user's state directory. Raises NotifyError where that is inside the ledger."""
    whole = ledger.resolve()
    if directory.resolve().is_relative_to(whole):
        raise NotifyError(
            f"{directory} is inside the ledger: evidence is never written to; set XDG_STATE_HOME elsewhere"
        )
    return directory / f"outbox-{whole.name}-{short_name(ledger)}.sqlite"
