"""How each of several ledgers stands: its mode in words, how far its record goes, what is wrong with it.

Invariant: each is told of its own desk alone, so that one that is stale says nothing of another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from console.core.desk import Desk
from console.core.merged import Merged
from console.core.printable import printable
from console.core.rollup import Rollup
from console.core.times import age
from console.core.trouble import Trouble, trouble_of
from console.core.view import View


@dataclass(frozen=True)
class SourceState:
    """`mode`: LIVE, FINISHED, STALE and so on, with the lag or age; `known`: what there is of it, None = nothing yet."""

    name: str
    mode: str
    known: Rollup | None
    trouble: Trouble | None

    @property
    def is_broken(self) -> bool:
        """Whether its record contradicts itself."""
        return self.known is not None and "BROKEN" in self.known.record_words

    @property
    def is_troubled(self) -> bool:
        """Whether it is to be looked at before the others; so is one of which nothing is known yet."""
        return self.known is None or self.trouble is not None or self.is_broken

    @property
    def words(self) -> str:
        """`prod-a LIVE 2 s behind`."""
        return f"{printable(self.name)} {self.mode}" + (", RECORD BROKEN" if self.is_broken else "")

    @property
    def held(self) -> float | None:
        """Which share of its fullest pool is held; None = not known."""
        fullest = next(iter(self.known.held), None) if self.known else None
        return None if fullest is None else fullest.share


def source_states(desks: Mapping[str, Desk], clock_us: int) -> tuple[SourceState, ...]:
    """Of ledgers by name; `clock_us`: the time of the wall, us UTC."""
    return tuple(
        SourceState(name, _mode(desk, clock_us), desk.rollup, trouble_of(desk, clock_us))
        for name, desk in desks.items()
    )


def _mode(desk: Desk, clock_us: int) -> str:
    known = desk.rollup
    if known is None:
        return "READING" if desk.failure is None else "NO DATA"
    if desk.is_remembered:
        return f"REMEMBERED −{age(clock_us - known.taken_us)}"
    if desk.is_stale:
        return f"STALE −{age(desk.look_age_us)}"
    if not known.writing:
        return "FINISHED"
    judged = f", judged −{age(desk.unjudged_us)}" if desk.unjudged_us else ""
    return "LIVE" + (f" {age(clock_us - known.data_us)} behind" if known.data_us is not None else "") + judged


def states_words(states: Sequence[SourceState]) -> str:
    """All of them in one line, those with a trouble first."""
    ordered = sorted(states, key=lambda state: not state.is_troubled)
    return "  ".join(("! " if state.is_troubled else "") + state.words for state in ordered)


def merged_of(desks: Mapping[str, Desk], before: Merged | None) -> Merged:
    """What the ledgers show by now, also where a desk stands still; `before` where nothing of it is new."""
    current = {name: desk.looking_at(View()) if desk.view.paused else desk for name, desk in desks.items()}
    rollups = {name: desk.rollup for name, desk in current.items() if desk.rollup is not None}
    records = {name: desk.shown for name, desk in current.items() if desk.shown is not None}
    if before is not None and _same(before.rollups, rollups) and _same(before.records, records):
        return before
    return Merged(rollups, records, tuple(name for name in desks if name not in rollups))


def _same(before: Mapping[str, object], now: Mapping[str, object]) -> bool:
    return before.keys() == now.keys() and all(before[name] is now[name] for name in now)
