"""What is being looked at: one immutable value, from which every screen draws.

Invariant: a view is changed only by making another one. The mode follows `TRANSITIONS` and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum


class Mode(StrEnum):
    """How the view relates to a growing ledger."""

    LIVE = "live"
    PAUSED = "paused"
    HELD = "held"  # paused by opening something; leaving it resumes
    FINISHED = "finished"


class Cue(StrEnum):
    """What may change the mode."""

    TOGGLE = "toggle"
    OPEN = "open"
    LEAVE = "leave"
    FOLLOW = "follow"
    WRITERS_ENDED = "writers ended"
    WRITERS_CAME = "writers came"


TRANSITIONS: dict[tuple[Mode, Cue], Mode] = {
    (Mode.LIVE, Cue.TOGGLE): Mode.PAUSED,
    (Mode.LIVE, Cue.OPEN): Mode.HELD,
    (Mode.LIVE, Cue.WRITERS_ENDED): Mode.FINISHED,
    (Mode.PAUSED, Cue.TOGGLE): Mode.LIVE,
    (Mode.PAUSED, Cue.FOLLOW): Mode.LIVE,
    (Mode.HELD, Cue.TOGGLE): Mode.LIVE,
    (Mode.HELD, Cue.FOLLOW): Mode.LIVE,
    (Mode.HELD, Cue.LEAVE): Mode.LIVE,
    (Mode.FINISHED, Cue.WRITERS_CAME): Mode.LIVE,
}
"""A pair that is not listed leaves the mode as it is."""


@dataclass(frozen=True)
class View:
    """Mode and selection. `incident`, `rid`, `page` are keys, never places in a list: they survive a refresh."""

    mode: Mode = Mode.LIVE
    incident: str | None = None
    rid: str | None = None
    page: int | None = None

    def on(self, cue: Cue) -> View:
        """The view after `cue`."""
        return replace(self, mode=TRANSITIONS.get((self.mode, cue), self.mode))

    @property
    def paused(self) -> bool:
        """Whether newer data are kept from view."""
        return self.mode in (Mode.PAUSED, Mode.HELD)
