"""A notice: what leaves this machine about an incident.

Invariant: counts, causes and times only. No tenant, no request id, no path: who needs those follows the link.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from urllib.parse import quote

from console.core.filter_language import ORDERED
from console.core.incident_words import verdict_words
from console.core.incidents import Incident
from console.core.marks import Severity
from console.core.mechanisms import mechanism
from console.notify.told import Action


@dataclass(frozen=True)
class Notice:
    """One message, before it is dressed for a receiver. `severity`, `before`: words of the library, `before` as it was
    told last ("" = not at all); times in us UTC. `of_several`: the console serves more ledgers than `ledger`, in which the same
    incident id may mean another.
    """

    action: Action
    incident: str
    severity: str
    before: str
    cause: str
    title: str
    story: str
    verdict: str
    ledger: str
    detectors: tuple[str, ...]
    workers: tuple[str, ...]
    first_seen_us: int | None
    last_seen_us: int | None
    growing: bool
    of_several: bool = False

    @property
    def key(self) -> str:
        """What names the incident at a receiver."""
        return f"{self.ledger}:{self.incident}" if self.of_several else self.incident

    @property
    def path(self) -> str:
        """Where the console shows it."""
        return f"/incidents/{self.incident}" + (f"?ledger={quote(self.ledger)}" if self.of_several else "")

    @property
    def summary(self) -> str:
        """One line, 300 characters at most."""
        ends = {Action.OPEN: "", Action.WORSE: " (graver than told before)", Action.OVER: " (over)"}[self.action]
        return f"{self.severity}: {self.title}, {self.verdict}{ends}"[:300]

    def to_json(self) -> str:
        """For the outbox."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Notice:
        """Back from the outbox. Raises ValueError, TypeError or KeyError for anything else."""
        row = json.loads(text)
        lists = {name: tuple(row[name]) for name in ("detectors", "workers")}
        return cls(**{**row, **lists, "action": Action(row["action"])})


def notice_of(
    incident: Incident, action: Action, before: Severity | None, ledger: str, *, of_several: bool = False
) -> Notice:
    """`ledger`: its name. `before`: the severity that was told last."""
    return Notice(
        action=action, incident=incident.id, severity=word_of(incident.severity), before=word_of(before) if before else "",
        cause=incident.cause, title=incident.title, story=mechanism(incident.cause).story, verdict=verdict_words(incident),
        ledger=ledger, detectors=incident.detectors, workers=incident.workers, first_seen_us=incident.first_seen_us,
        last_seen_us=incident.last_seen_us, growing=incident.growing, of_several=of_several,
    )  # fmt: skip


def word_of(severity: Severity) -> str:
    """`critical` to `low`."""
    return str(ORDERED["severity"][severity - 1])
