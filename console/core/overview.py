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
from console.core.time_range import ALL
from console.core.triage import Entry, Standing, State, standing
from console.core.view import View


@dataclass(frozen=True)
class Stood:
    """An incident and how it stands with the people on call."""

    incident: Incident
    standing: Standing


@dataclass(frozen=True)
class Overview:
    """`incidents` are those not acknowledged or silenced, gravest first, as range and filter leave them; `left` says of how
    many, and `concerned` how many responses those that are left concern. `held`: the fullest pool, `latency`: the length
    whose p5 fell most; None = there is nothing to show. `whole`: what stands beside the figures that neither range nor
    filter narrows (responses by verdict, detectors, held, p5), while there is one.
    """

    incidents: tuple[Stood, ...]
    left: Shown
    concerned: int
    whole: str
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
    concerned = len({rid for s in stood for rid in s.incident.rids})
    return Overview(
        incidents=is_open, left=left, concerned=concerned, whole=whole_words(at.view),
        by_severity={s: sum(o.incident.severity is s for o in is_open) for s in Severity},
        detectors=known.detectors, held=next(iter(known.held), None), latency=known.latency.worst, strip=known.strip,
        events=left_of(known, "events", at),
    )  # fmt: skip


def whole_words(view: View) -> str:
    """What stands beside a figure that neither range nor filter narrows, while there is one."""
    if view.range != ALL:
        return "of the whole record"
    return "unfiltered" if view.filter else ""


def stood_of(known: Rollup, left: Shown, entries: Iterable[Entry], now_us: int) -> tuple[Stood, ...]:
    """The incidents of the rows that are left, in their order, with how they stand."""
    said = tuple(entries)
    by_key = {incident.key: incident for incident in known.incidents}
    return tuple(Stood(by_key[key], standing(by_key[key], said, now_us)) for key in incident_keys(left.rows))
