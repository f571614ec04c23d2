"""A scenario: what `engine simulate FILE` plays, as frozen models. `docs/scenarios.md` is its users' reference.

Invariant: a loaded scenario is complete (every default filled in) and consistent: whatever it names, it has. Every
duration is whole microseconds, counted from `start` where it is a time; `canonical_json` is a scenario file itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import numpy as np
from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, ValidationInfo, model_validator

from engine.ledger.schema import TABLE_NAMES
from engine.ledger.tag import ORDINAL_BITS
from engine.simulation.arrivals import Window, key_of, uniforms
from engine.simulation.cost import CostModel
from engine.simulation.scenario_source import (
    Micros,
    Misfit,
    Model,
    Name,
    NonEmpty,
    Place,
    PositiveMicros,
    PositiveSize,
    Ppm,
    ScenarioError,
    ScenarioProblem,
    Share,
    SignedMicros,
    Size,
    Switch,
    UtcMicros,
    expected,
    fit,
    misfits,
    nearest,
    read_model,
    repeated,
    unknown,
    write_micros,
)
from engine.simulation.script import Action, Component, Seat, script_misfits
from engine.simulation.traffic import Scope, Stream

Role = Literal["prefill", "decode"]
Mode = Literal["off", "log", "enforce"]
KeyField = Literal["adapter", "media", "weights", "kv_format"]


GATEWAY = "gateway"
MOST_RANKS = (1 << ORDINAL_BITS) - 1


def _as_range(value: Any) -> Any:
    if isinstance(value, list | tuple) and len(value) != 2:
        raise expected("one value, or [lowest, highest]")
    return value if isinstance(value, list | tuple) else (value, value)


def _ascending(value: tuple[float, float]) -> tuple[float, float]:
    if value[1] < value[0]:
        raise expected("[lowest, highest] in this order")
    return value


def _table(name: str) -> str:
    if name not in TABLE_NAMES:
        raise expected(nearest(name, TABLE_NAMES))
    return name


OffsetRange = Annotated[tuple[SignedMicros, SignedMicros], BeforeValidator(_as_range), AfterValidator(_ascending)]
DriftRange = Annotated[tuple[Ppm, Ppm], BeforeValidator(_as_range), AfterValidator(_ascending)]


@dataclass(frozen=True)
class KnownNames:
    """What the simulator knows by name: its defences, and its faults with the model of each one's parameters (None:
    it takes none). Whoever adds one changes nothing here."""

    defences: frozenset[str]
    faults: Mapping[str, type[BaseModel] | None]


class WorkerClock(Model):
    """A group's clocks against true time: each worker's `offset` and `drift_ppm` are drawn from (low, high)."""

    offset: OffsetRange = (0, 0)
    drift_ppm: DriftRange = (0.0, 0.0)
    stated_error: Micros = 1_000  # what heartbeats state; the true error may be larger
    measured: Switch = True  # false: heartbeats state no offset


class Recording(Model):
    """How often workers write of themselves, and whether the physical truth is kept beside the ledger."""

    heartbeat: PositiveMicros = 1_000_000
    gauge: PositiveMicros = 1_000_000
    step_run: Micros = 1_000_000  # longest run of passes in one steps row; 0: a row per pass
    truth: Switch = True


class PoolPages(Model):
    """Pages of each component's pool on each worker, without the null block; 0: it has no such pool."""

    kv: PositiveSize
    index: Size = 0
    swa: Size = 0
    state: Size = 0
    draft: Size = 0
    slot: Size = 0

    def present(self) -> dict[str, int]:
        """Component -> pages, of the pools there are."""
        return {name: pages for name, pages in self.model_dump().items() if pages}


class PrefixCache(Model):
    """A worker's prefix cache. Keys always carry the tokens, the owner at `scope` level (global: no owner) and the
    listed `key_fields`."""

    enabled: Switch = False
    scope: Scope = "tenant"
    key_fields: tuple[KeyField, ...] = ("adapter", "media", "weights", "kv_format")


class Defences(Model):
    """Modes by name and what goes with them. What a group leaves out is as the scenario's, what that leaves out is as
    the simulator's defaults: `modes` of unnamed defences, quarantine, 30 s, no scrub."""

    modes: dict[str, Mode] = Field(default_factory=dict)
    on_timeout: Literal["quarantine", "release"] | None = None
    hold_timeout: Micros | None = None
    scrub: Switch | None = None

    def over(self, wider: Defences) -> Defences:
        """These, with what is left out taken from `wider`."""
        own = {name: value for name, value in self if value is not None and name != "modes"}
        return wider.model_copy(update={**own, "modes": {**wider.modes, **self.modes}})


DEFAULT_DEFENCES = Defences(on_timeout="quarantine", hold_timeout="30s", scrub=False)  # type: ignore[arg-type]


class Group(Model):
    """`count` equal workers `<group>-0` .. `<group>-<count-1>` of `tp_size` ranks each."""

    group: Name
    role: Role
    count: PositiveSize = 1
    pages: PoolPages
    page_tokens: PositiveSize = 16
    page_bytes: PositiveSize = 1 << 20  # of a page of one rank, all layers
    component_bytes: dict[Component, PositiveSize] = Field(default_factory=dict)
    context_tokens: PositiveSize
    kv_format: Name = "bf16"
    layers: PositiveSize = 32
    kv_heads: PositiveSize = 8
    head_dim: PositiveSize = 128
    tp_size: PositiveSize = 1
    prefix_cache: PrefixCache = PrefixCache()
    host_pages: Size = 0
    clock: WorkerClock | None = None
    max_batch: PositiveSize = 64
    chunk_tokens: PositiveSize = 8_192
    batch_tokens: PositiveSize = 16_384
    transfer_pages: PositiveSize = 64  # in one write batch
    reserved_tokens: Size | None = None  # of an answer, kept free at its start; not all of it with host_pages only
    defences: Defences = Defences()

    def workers(self) -> tuple[str, ...]:
        """Names of the group's workers."""
        return tuple(f"{self.group}-{index}" for index in range(self.count))

    def bytes_of(self, component: Component) -> int:
        """Bytes of one page of a component."""
        return self.component_bytes.get(component, self.page_bytes)


class Fault(Model):
    """A fault, on in `window` on `workers` (of workers, groups or `gateway`; empty: all it applies to), each occasion
    with `probability`. `parameters` are the fault's own."""

    name: Name
    workers: tuple[Name, ...] = ()
    window: Window = Window()
    probability: Share = 1.0
    parameters: dict[str, Any] = Field(default_factory=dict)


class RowLoss(Model):
    """Rows of `tables` (empty: any) never reach the ledger of `workers`, each with `probability`."""

    kind: Literal["rows"]
    tables: tuple[Annotated[Name, AfterValidator(_table)], ...] = ()
    workers: tuple[Name, ...] = ()
    probability: Share
    window: Window = Window()


class KillLoss(Model):
    """A worker's process dies at `at`, and with it what its stream had not synced for `unsynced`."""

    kind: Literal["kill"]
    worker: Name
    at: Micros
    unsynced: Micros = 200_000
    restart_after: PositiveMicros | None = None


class ClockJump(Model):
    """A worker's clock jumps by `by` at `at`."""

    kind: Literal["clock-jump"]
    worker: Name
    at: Micros
    by: SignedMicros


Loss = Annotated[RowLoss | KillLoss | ClockJump, Field(discriminator="kind")]


class Scenario(Model):
    """Everything that a simulation is told."""

    name: Name
    seed: Size
    start: UtcMicros = 1_780_272_000_000_000  # 2026-06-01T00:00:00Z
    duration: PositiveMicros
    clock: WorkerClock = WorkerClock()
    recording: Recording = Recording()
    fleet: Annotated[tuple[Group, ...], NonEmpty]
    defences: Defences = Defences()
    costs: CostModel = CostModel()
    traffic: tuple[Stream, ...] = ()
    faults: tuple[Fault, ...] = ()
    script: tuple[Action, ...] = ()
    losses: tuple[Loss, ...] = ()

    @property
    def end(self) -> int:
        """Microseconds UTC at which it ends."""
        return self.start + self.duration

    def workers(self) -> dict[str, Group]:
        """Name of every worker -> its group, in the order of the fleet."""
        return {worker: group for group in self.fleet for worker in group.workers()}

    def selected(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Workers that `names` (of workers or groups; empty: everybody) name, in the order of the fleet."""
        return tuple(
            worker for worker, group in self.workers().items() if not names or {worker, group.group} & set(names)
        )

    def defences_of(self, group: Group) -> Defences:
        """A group's defences with nothing left out but the modes that neither it nor the scenario names."""
        return group.defences.over(self.defences.over(DEFAULT_DEFENCES))

    def clock_of(self, worker: str) -> tuple[int, float]:
        """A worker's clock against true time at the start: its offset in microseconds and its drift in ppm."""
        clock = self.workers()[worker].clock or self.clock
        (low, high), (slow, fast) = clock.offset, clock.drift_ppm
        ahead, faster = uniforms(key_of(self.seed, "clock", worker), np.arange(2, dtype=np.uint64)).tolist()
        return low + round(ahead * (high - low)), slow + faster * (fast - slow)

    def canonical_json(self) -> str:
        """The whole scenario, defaults included, in one line that is itself a scenario file; equal for equal ones."""
        return json.dumps(self.model_dump(mode="json", by_alias=True), sort_keys=True, separators=(",", ":"))

    @model_validator(mode="after")
    def _consistent(self, info: ValidationInfo) -> Scenario:
        known = info.context if isinstance(info.context, KnownNames) else None
        found = [*_fleet_misfits(self), *_time_misfits(self), *_name_misfits(self, known)]
        # Names of workers mean something only once those of the groups do.
        found = found or list(_reference_misfits(self))
        if found:
            raise misfits(found)
        return self


def _fleet_misfits(scenario: Scenario) -> Iterator[Misfit]:
    yield from repeated("fleet", scenario.fleet, "group")
    for role in get_args(Role):
        if all(group.role != role for group in scenario.fleet):
            yield Misfit(("fleet",), f"no {role} group", "at least one group of each role")
    ranks = sum(group.count * group.tp_size for group in scenario.fleet)
    if ranks > MOST_RANKS:
        yield Misfit(("fleet",), f"{ranks} worker ranks", f"at most {MOST_RANKS}, as page tags can name")
        return
    for place, group in enumerate(scenario.fleet):
        if group.group in (*scenario.workers(), GATEWAY):
            yield Misfit(("fleet", place, "group"), f"'{group.group}'", "a name that no worker has")
        for other in scenario.fleet if group.role == "decode" else ():
            few, many = sorted((group.tp_size, other.tp_size))
            if other.role == "prefill" and many % few:
                wanted = f"a multiple or a divisor of {other.tp_size}, the ranks of {other.group}"
                yield Misfit(("fleet", place, "tp_size"), str(group.tp_size), wanted)
        if group.chunk_tokens > group.batch_tokens:
            wanted = f"at most batch_tokens, {group.batch_tokens}"
            yield Misfit(("fleet", place, "chunk_tokens"), str(group.chunk_tokens), wanted)


def _time_misfits(scenario: Scenario) -> Iterator[Misfit]:
    wanted = f"a time before {write_micros(scenario.duration)}, the scenario's end"
    windows = [
        *((("traffic", place, "window", "from"), stream.window) for place, stream in enumerate(scenario.traffic)),
        *((("faults", place, "window", "from"), fault.window) for place, fault in enumerate(scenario.faults)),
        *(
            (("losses", n, "window", "from"), one.window)
            for n, one in enumerate(scenario.losses)
            if isinstance(one, RowLoss)
        ),
    ]
    moments = [
        *((place, window.start) for place, window in windows),
        *((("script", place, "at"), action.at) for place, action in enumerate(scenario.script)),
        *((("losses", n, "at"), one.at) for n, one in enumerate(scenario.losses) if not isinstance(one, RowLoss)),
    ]
    yield from (Misfit(place, write_micros(at), wanted) for place, at in moments if at >= scenario.duration)
    for place, (before, action) in enumerate(pairwise(scenario.script), 1):
        if action.at < before.at:
            wanted = f"no time before {write_micros(before.at)}, the action above"
            yield Misfit(("script", place, "at"), write_micros(action.at), wanted)


def _reference_misfits(scenario: Scenario) -> Iterator[Misfit]:
    workers = scenario.workers()
    either = [*workers, *(group.group for group in scenario.fleet), GATEWAY]
    named = [
        (("faults", place, "workers", n), name)
        for place, fault in enumerate(scenario.faults)
        for n, name in enumerate(fault.workers)
    ]
    for place, loss in enumerate(scenario.losses):
        if isinstance(loss, RowLoss):
            named += [(("losses", place, "workers", n), name) for n, name in enumerate(loss.workers)]
        elif loss.worker not in workers:
            yield unknown(("losses", place, "worker"), loss.worker, workers)
    yield from (unknown(place, name, either) for place, name in named if name not in either)
    prefixes = [stream.rid_prefix or stream.name for stream in scenario.traffic]
    yield from repeated("traffic", scenario.traffic) or repeated("traffic", (), "rid_prefix", prefixes)
    seats = {name: Seat(group.role, tuple(group.pages.present())) for name, group in workers.items()}
    yield from script_misfits(scenario.script, seats, tuple(f"{prefix}-" for prefix in prefixes))


def _name_misfits(scenario: Scenario, known: KnownNames | None) -> Iterator[Misfit]:
    if known is None:
        return
    modes: list[Place] = [("defences", "modes", name) for name in scenario.defences.modes]
    modes += [
        ("fleet", n, "defences", "modes", name) for n, one in enumerate(scenario.fleet) for name in one.defences.modes
    ]
    yield from (unknown(place, place[-1], known.defences) for place in modes if place[-1] not in known.defences)
    for place, fault in enumerate(scenario.faults):
        if fault.name not in known.faults:
            yield unknown(("faults", place, "name"), fault.name, known.faults)
            continue
        at = ("faults", place, "parameters")
        found = fit(known.faults[fault.name] or Model, fault.parameters)
        yield from (Misfit((*at, *one.place), one.found, one.expected) for one in found)


def load_scenario(path: Path, known: KnownNames | None = None) -> Scenario:
    """The scenario in a file; names of defences and faults are checked where `known` is given. Raises ScenarioError,
    and OSError where the file cannot be read."""
    try:
        text = path.read_bytes().decode()
    except UnicodeDecodeError as error:
        found = f"byte {error.object[error.start]:#04x} at {error.start}"
        raise ScenarioError([ScenarioProblem(str(path), 1, "", found, "UTF-8 text")]) from None
    return parse_scenario(text, str(path), known)


def parse_scenario(text: str, source: str = "scenario", known: KnownNames | None = None) -> Scenario:
    """The scenario in a text that came from `source`. Raises ScenarioError."""
    return read_model(Scenario, text, source, known)
