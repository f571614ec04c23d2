"""`engine simulate`: plays a scenario into a ledger.

Invariant: the same scenario and seed give the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import numpy as np

from engine.request import GenerateRequest
from engine.simulation.fleet import Fleet
from engine.simulation.people import Person
from engine.simulation.prompts import SyntheticPrompt
from engine.simulation.scenario import Scenario
from engine.simulation.traffic import Arrival, arrivals
from engine.truth import stamp_of

WEIGHTS = "simulated"
BLANK = np.zeros(1, np.int32)


class PromptTokens:
    """A synthetic prompt in the place of token ids: it has a length, and every token is 0."""

    def __init__(self, prompt: SyntheticPrompt) -> None:
        self.prompt = prompt

    def __len__(self) -> int:
        return len(self.prompt)

    def __getitem__(self, part: slice) -> np.ndarray:
        start, stop, _ = part.indices(len(self.prompt))
        return np.broadcast_to(BLANK, (stop - start,))


@dataclass(frozen=True)
class Outcome:
    """What came of a simulation: answers by HTTP status, and seconds of virtual time."""

    answers: dict[int, int]
    seconds: float


def simulate(scenario: Scenario, ledger: Path, progress: Callable[[float], None] = lambda share: None) -> Outcome:
    """Play `scenario` into the new ledger directory `ledger`; `progress` hears which share of its time has passed.

    Raises FileExistsError where a ledger is there already.
    """
    if ledger.exists() and any(ledger.iterdir()):
        raise FileExistsError(f"{ledger} is not empty: give a new directory")
    ledger.mkdir(parents=True, exist_ok=True)
    fleet = Fleet(scenario, ledger)
    world, coming = fleet.world, arrivals(scenario.traffic, scenario.seed, scenario.start, scenario.end)
    _plan_next(fleet, coming)
    for part in count(1):
        until = scenario.start + min(scenario.duration * part // 100, scenario.duration)
        world.run(until)
        progress((until - scenario.start) / scenario.duration)
        if until >= scenario.end:
            break
    fleet.close()
    return Outcome(dict(sorted(fleet.gateway.ended.items())), scenario.duration / 1e6)


def _plan_next(fleet: Fleet, coming: Iterator[Arrival]) -> None:
    """Let the next arrival come at its time; it plans the one after it."""
    arrival = next(coming, None)
    if arrival is None:
        return

    def arrive() -> None:
        admit(fleet, arrival)
        _plan_next(fleet, coming)

    fleet.world.at(arrival.at_us, arrive)


def admit(fleet: Fleet, arrival: Arrival, prefill: str | None = None, decode: str | None = None) -> None:
    """A client's request comes to the door; perhaps its client goes away later."""
    kv_format = fleet.scenario.fleet[0].kv_format
    given = GenerateRequest(
        rid=arrival.rid, tenant=fleet.pseudonym(arrival.tenant), room=0, tokens=PromptTokens(arrival.prompt),  # type: ignore[arg-type]
        max_tokens=arrival.max_tokens, purpose=arrival.purpose, adapter=arrival.adapter, media=arrival.media,
        weights=WEIGHTS, kv_format=kv_format,
    )  # fmt: skip
    person = Person(arrival.rid, given.tenant, (arrival.adapter, arrival.media, WEIGHTS, kv_format), arrival.prompt)
    fleet.people.add(stamp_of(arrival.rid), person)
    fleet.gateway.ask(given, prefill, decode)
    if arrival.disconnect_after_us is not None:
        fleet.world.at(fleet.world.now + arrival.disconnect_after_us, lambda: fleet.gateway.hang_up(arrival.rid))
