"""What a receiver has been told of an incident, and what it is told next.

Invariant: the end of an incident is only ever told after its beginning, and never because the record ended: a ledger
without writers says nothing about what went on.
"""

from __future__ import annotations

from enum import StrEnum


class Told(StrEnum):
    """How a receiver believes that an incident stands."""

    NOTHING = "nothing"
    GROWS = "grows"
    PAST = "past"  # told when it was over already: it stays open there until a person closes it
    ENDED = "ended"


class Cue(StrEnum):
    """How the incident is now, against what was told."""

    GROWS = "grows"
    GROWS_WORSE = "grows, graver than told"
    OVER = "over"
    OVER_WORSE = "over, graver than told"


class Action(StrEnum):
    """What a message says."""

    OPEN = "open"
    WORSE = "worse"
    OVER = "over"


TRANSITIONS: dict[tuple[Told, Cue], tuple[Told, Action | None]] = {
    (Told.NOTHING, Cue.GROWS): (Told.GROWS, Action.OPEN),
    (Told.NOTHING, Cue.GROWS_WORSE): (Told.GROWS, Action.OPEN),
    (Told.NOTHING, Cue.OVER): (Told.PAST, Action.OPEN),
    (Told.NOTHING, Cue.OVER_WORSE): (Told.PAST, Action.OPEN),
    (Told.GROWS, Cue.GROWS): (Told.GROWS, None),
    (Told.GROWS, Cue.GROWS_WORSE): (Told.GROWS, Action.WORSE),
    (Told.GROWS, Cue.OVER): (Told.ENDED, Action.OVER),
    (Told.GROWS, Cue.OVER_WORSE): (Told.PAST, Action.WORSE),
    (Told.PAST, Cue.GROWS): (Told.GROWS, Action.OPEN),
    (Told.PAST, Cue.GROWS_WORSE): (Told.GROWS, Action.WORSE),
    (Told.PAST, Cue.OVER): (Told.PAST, None),
    (Told.PAST, Cue.OVER_WORSE): (Told.PAST, Action.WORSE),
    (Told.ENDED, Cue.GROWS): (Told.GROWS, Action.OPEN),
    (Told.ENDED, Cue.GROWS_WORSE): (Told.GROWS, Action.OPEN),
    (Told.ENDED, Cue.OVER): (Told.ENDED, None),
    (Told.ENDED, Cue.OVER_WORSE): (Told.PAST, Action.WORSE),
}
