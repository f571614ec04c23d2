"""A scenario's faults, switched on and off at their times, and what each one may be told.

Invariant: the faults are those of the live engine; a plan only turns their switches.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

from pydantic import BaseModel

from engine.defences import DETECTORS
from engine.faults import CLASSES, Faults
from engine.simulation.scenario import Fault, KnownNames
from engine.simulation.scenario_source import Micros, Model, Name, PositiveSize
from engine.simulation.world import World


class Pages(Model):
    """How many pages at the head of a table."""

    pages: PositiveSize = 1


class Delay(Model):
    """How long the writes, or acknowledgements, of an aborted handoff are held up."""

    delay: Micros = 0


class KeyField(Model):
    """The identity field that a key lacks."""

    field: Name = "tenant"


class OfComponent(Model):
    """The component that is handed over in part."""

    component: Name = "index"


PARAMETERS: dict[str, type[BaseModel]] = {
    **dict.fromkeys(("late-write", "early-ack", "lost-ack", "slow-drain"), Delay),
    **dict.fromkeys(("early-free", "double-free"), Pages),
    "incomplete-key": KeyField,
    "partial-state": OfComponent,
}
KNOWN = KnownNames(frozenset(DETECTORS), {one.name: PARAMETERS.get(one.name) for one in CLASSES})
GATEWAY_FAULTS = frozenset({"room-collision"})


def plan_faults(
    world: World, faults: Iterable[Fault], switches: Faults, names: frozenset[str], source: random.Random, start: int
) -> None:
    """Turn on the `switches` of one process, known under `names` (itself, its group), in every fault's window."""
    switches.seed(source)
    for fault in faults:
        if fault.workers and names.isdisjoint(fault.workers):
            continue
        one = switches.named(fault.name)
        one.probability = fault.probability
        model = PARAMETERS.get(fault.name)
        if model is not None:
            for name, value in model(**fault.parameters):
                setattr(one, "delay_us" if name == "delay" else name, value)
        world.at(start + fault.window.start, lambda name=fault.name: switches.switch(name, True))  # type: ignore[misc]
        if fault.window.end is not None:
            world.at(start + fault.window.end, lambda name=fault.name: switches.switch(name, False))  # type: ignore[misc]
