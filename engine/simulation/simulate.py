"""`engine simulate`: plays a scenario into a ledger.

Invariant: the same scenario and seed give the same bytes.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from engine.simulation.admission import admit
from engine.simulation.fleet import Fleet
from engine.simulation.scenario import Scenario
from engine.simulation.script_runner import ScriptRunner
from engine.simulation.traffic import Arrival, arrivals

COLLECT_EVERY = 1_000_000
"""New objects between two searches for garbage cycles. A run makes next to none, and keeps many objects that each search
would look at again."""


@dataclass(frozen=True)
class Outcome:
    """What came of a simulation: answers by HTTP status, and seconds of virtual time."""

    answers: dict[int, int]
    seconds: float


def simulate(
    scenario: Scenario,
    ledger: Path,
    progress: Callable[[float], None] = lambda share: None,
    at_end: Callable[[Fleet], None] = lambda fleet: None,
) -> Outcome:
    """Play `scenario` into the new ledger directory `ledger`; `progress` hears which share of its time has passed.

    `at_end` is shown the fleet as it stands when its time is over, before the ledger is closed. Raises FileExistsError
    where a ledger is there already.
    """
    if ledger.exists() and any(ledger.iterdir()):
        raise FileExistsError(f"{ledger} is not empty: give a new directory")
    ledger.mkdir(parents=True, exist_ok=True)
    with _collecting_rarely():
        return _play(scenario, ledger, progress, at_end)


def _play(
    scenario: Scenario, ledger: Path, progress: Callable[[float], None], at_end: Callable[[Fleet], None]
) -> Outcome:
    fleet = Fleet(scenario, ledger)
    world, coming = fleet.world, arrivals(scenario.traffic, scenario.seed, scenario.start, scenario.end)
    ScriptRunner(fleet, scenario).plan()
    _plan_next(fleet, coming)
    for part in count(1):
        until = scenario.start + min(scenario.duration * part // 100, scenario.duration)
        world.run(until)
        progress((until - scenario.start) / scenario.duration)
        if until >= scenario.end:
            break
    at_end(fleet)
    fleet.close()
    return Outcome(dict(sorted(fleet.gateway.ended.items())), scenario.duration / 1e6)


@contextmanager
def _collecting_rarely() -> Iterator[None]:
    usual = gc.get_threshold()
    gc.set_threshold(COLLECT_EVERY, *usual[1:])
    try:
        yield
    finally:
        gc.set_threshold(*usual)


def _plan_next(fleet: Fleet, coming: Iterator[Arrival]) -> None:
    """Let the next arrival come at its time; it plans the one after it."""
    arrival = next(coming, None)
    if arrival is None:
        return

    def arrive() -> None:
        admit(fleet, arrival)
        _plan_next(fleet, coming)

    fleet.world.at(arrival.at_us, arrive)
