"""What reading took, what it could not take, and what it met and does not know.

Invariant: nothing is dropped in silence. Each skipped line or frame is counted with where and why; each field that no
reader knows is counted by name.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

SHOWN_SKIPS = 200
"""Most skips kept word for word; all are counted."""


@dataclass(frozen=True)
class Skip:
    """A line, frame or file that no reader could take: where (file and line, or frame) and why."""

    where: str
    why: str


@dataclass
class Notes:
    """Counts of one reading. `lost` says in words what a source itself shows to be missing."""

    taken: Counter[str] = field(default_factory=Counter)
    """By kind: lines or frames that were understood."""
    skipped: Counter[str] = field(default_factory=Counter)
    """By reason."""
    skips: list[Skip] = field(default_factory=list)
    unknown: Counter[str] = field(default_factory=Counter)
    """By `kind.field`: fields that were met and are not known."""
    unread: Counter[str] = field(default_factory=Counter)
    """By kind: lines and fields that are known to hold nothing for a ledger, such as start-up chatter."""
    lost: list[str] = field(default_factory=list)
    assumed: list[str] = field(default_factory=list)
    """What was taken as given because the source does not say it."""

    def take(self, kind: str, count: int = 1) -> None:
        """Count what was understood."""
        self.taken[kind] += count

    def skip(self, where: str, why: str) -> None:
        """Count what could not be taken, and keep the first ones word for word."""
        self.skipped[why] += 1
        if len(self.skips) < SHOWN_SKIPS:
            self.skips.append(Skip(where, why))

    def know(self, kind: str, fields: set[str], known: frozenset[str]) -> None:
        """Count those of `fields` that are not `known`."""
        for name in fields - known:
            self.unknown[f"{kind}.{name}"] += 1

    def lose(self, where: str, what: str) -> None:
        """Tell what a source shows to be missing."""
        self.lost.append(f"{where}: {what}")

    def assume(self, what: str) -> None:
        """Tell an assumption, once."""
        if what not in self.assumed:
            self.assumed.append(what)

    def absorb(self, other: Notes) -> None:
        """Count what another reading met, too."""
        for mine, theirs in (
            (self.taken, other.taken), (self.skipped, other.skipped), (self.unknown, other.unknown),
            (self.unread, other.unread),
        ):  # fmt: skip
            mine.update(theirs)
        self.skips += other.skips[: max(0, SHOWN_SKIPS - len(self.skips))]
        self.lost += other.lost
        for what in other.assumed:
            self.assume(what)
