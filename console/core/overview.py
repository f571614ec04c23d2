"""The overview: one figure of everything that the person on call looks at first.

Invariant: made of one rollup, so that no two of its panels are of different readings; the view's filter and range hold
for every panel whose rows have what they ask for.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from console.core.detectors import Detector
from console.core.held_capacity import HeldFigure
from console.core.incidents import Incident
from console.core.latency import Length
from console.core.looking import Looking, incident_keys, left_of
from console.core.marks import Severity
from console.core.page_map import PageMap
from console.core.rollup import Rollup
from console.core.sheet import Shown
from console.core.triage import Entry, Standing, State, standing


@dataclass(frozen=True)
class Stood:
    """An incident and how it stands with the people on call."""

    incident: Incident
    standing: Standing


@dataclass(frozen=True)
class Overview:
    """`incidents` are those not acknowledged or silenced, gravest first, as the filter leaves them; `left` says of how
    many. `held`: the fullest pool, `latency`: the length whose p5 fell most; None = there is nothing to show.
    """

    incidents: tuple[Stood, ...]
    left: Shown
    by_severity: dict[Severity, int]
    detectors: tuple[Detector, ...]
    held: HeldFigure | None
    latency: Length | None
    strip: PageMap | None
    events: Shown


def overview(known: Rollup, at: Looking, entries: Iterable[Entry], clock_us: int) -> Overview:
    """`clock_us`: the time of the wall, by which silences end where nothing is replayed. Raises FilterError."""
    said = tuple(entries)
    left = left_of(known, "incidents", at)
    stood = stood_of(known, left, said, at.view.moment_us(clock_us))
    is_open = tuple(s for s in stood if s.standing.state in (State.OPEN, State.BACK))
    return Overview(
        incidents=is_open, left=left, by_severity={s: sum(o.incident.severity is s for o in is_open) for s in Severity},
        detectors=known.detectors, held=next(iter(known.held), None), latency=known.latency.worst, strip=known.strip,
        events=left_of(known, "events", at),
    )  # fmt: skip


def stood_of(known: Rollup, left: Shown, entries: Iterable[Entry], now_us: int) -> tuple[Stood, ...]:
    """The incidents of the rows that are left, in their order, with how they stand."""
    said = tuple(entries)
    by_key = {incident.key: incident for incident in known.incidents}
    return tuple(Stood(by_key[key], standing(by_key[key], said, now_us)) for key in incident_keys(left.rows))
