"""What is wrong with the picture as a whole, and what to do: the same words in every skin.

Invariant: the gravest alone is said; where none is said, the picture is as the ledger was a moment ago.
"""

from __future__ import annotations

from dataclasses import dataclass

from console.core.desk import Desk
from console.core.times import age, duration

CLOCK_BEHIND_US = 10_000_000
"""By how much a record may seem to come from the future before it is said."""


@dataclass(frozen=True)
class Trouble:
    """A title, what is wrong, and what to do."""

    title: str
    what: str
    remedy: str


def trouble_of(desk: Desk, clock_us: int) -> Trouble | None:
    """What is wrong; `clock_us`: the time of the wall, us UTC."""
    if desk.failure is not None:
        title = "The last reading failed; what follows is older" if desk.rollup else "The ledger could not be read"
        return Trouble(title, desk.failure.what, desk.failure.remedy)
    if desk.is_overdue:
        what = f"no look at the ledger has come back for {age(desk.look_age_us)}"
        remedy = "see whether the disk that it lies on answers; this view goes on by itself when it does"
        return Trouble("The ledger does not answer; what follows is older", what, remedy)
    ahead = ((desk.rollup.data_us if desk.rollup else None) or 0) - clock_us
    if ahead > CLOCK_BEHIND_US:
        what = f"this machine's clock is {duration(ahead)} behind the record: ages are wrong"
        return Trouble("This machine's clock is behind the record", what, "set the clock")
    return None
