"""Exact timings: the actions of a scenario's `script`, in the order in which they happen.

Invariant: an action says when (`at`, counted from the scenario's start), what, and on whom; it names requests by rid
and workers by name. `load_scenario` checks that both exist and that times never go back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from engine.simulation.arrivals import key_of
from engine.simulation.prompts import SyntheticPrompt
from engine.simulation.scenario_source import (
    Micros,
    Misfit,
    Model,
    Name,
    NonEmpty,
    PositiveMicros,
    PositiveSize,
    Size,
    Switch,
    misfits,
    unknown,
    write_micros,
)

Component = Literal["kv", "index", "swa", "state", "draft", "slot"]


class PromptSegment(Model):
    """`length` tokens of the content numbered `seed`: equal seeds are equal tokens. None: content of its own."""

    seed: Size | None = None
    length: PositiveSize


def _as_segments(value: Any) -> Any:
    return [{"length": value}] if isinstance(value, int | str) else value


class RequestAction(Model):
    """A request arrives. `prompt` is a list of segments; a number of tokens alone is one segment of its own."""

    action: Literal["request"]
    at: Micros
    rid: Name
    tenant: Name
    organisation: Name | None = None
    user: Name | None = None
    prompt: Annotated[tuple[PromptSegment, ...], NonEmpty, BeforeValidator(_as_segments)]
    max_tokens: PositiveSize
    prefill: Name | None = None  # worker; None: the router chooses
    decode: Name | None = None
    purpose: Name = "customer"
    adapter: Name | None = None
    media: Name | None = None

    def synthetic(self, seed: int) -> SyntheticPrompt:
        """Its prompt in a scenario of `seed`."""
        own = key_of(seed, "script", self.rid) >> 1
        return SyntheticPrompt(
            tuple((own + n if one.seed is None else one.seed, one.length) for n, one in enumerate(self.prompt))
        )


class AbortAction(Model):
    """The client of `rid` goes away."""

    action: Literal["abort"]
    at: Micros
    rid: Name


class PauseAction(Model):
    """A worker makes no pass and answers nothing until `continue`; writes it has handed over still land."""

    action: Literal["pause"]
    at: Micros
    worker: Name


class ContinueAction(Model):
    """The end of `pause`."""

    action: Literal["continue"]
    at: Micros
    worker: Name


class GateAction(Model):
    """The handoff of `rid` posts and lands only what `post` and `land` say from here on."""

    action: Literal["gate"]
    at: Micros
    rid: Name


class PostAction(Model):
    """The gated handoff of `rid` hands pages `first` .. `first + count - 1` (None: all that follow) to the wire."""

    action: Literal["post"]
    at: Micros
    rid: Name
    component: Component = "kv"
    first: Size = 0
    count: PositiveSize | None = None


class LandAction(Model):
    """Posted page `first + i` of the handoff of `rid` lands at `at + i * every`."""

    action: Literal["land"]
    at: Micros
    rid: Name
    component: Component = "kv"
    first: Size = 0
    count: PositiveSize | None = None
    every: Micros = 0


class StepsAction(Model):
    """The worker's next passes begin at `at + begins[i]` and take `lasts` each; afterwards the cost model rules."""

    action: Literal["steps"]
    at: Micros
    worker: Name
    begins: Annotated[tuple[Micros, ...], NonEmpty]
    lasts: PositiveMicros

    @model_validator(mode="after")
    def _apart(self) -> StepsAction:
        early = [
            Misfit(
                ("begins", number),
                write_micros(later),
                f"{write_micros(earlier + self.lasts)} or later, after the pass before",
            )
            for number, (earlier, later) in enumerate(pairwise(self.begins), 1)
            if later < earlier + self.lasts
        ]
        if early:
            raise misfits(early)
        return self


class ReserveAction(Model):
    """`outsider`, no request of the traffic, takes `pages` pages of a pool and, with `write`, fills them."""

    action: Literal["reserve"]
    at: Micros
    outsider: Name
    worker: Name
    component: Component = "kv"
    pages: PositiveSize
    write: Switch = True


class FreeAction(Model):
    """`outsider` frees what it holds in a pool, or pages of `rid`, which are not its own."""

    action: Literal["free"]
    at: Micros
    outsider: Name
    worker: Name
    component: Component = "kv"
    rid: Name | None = None
    first: Size = 0
    count: PositiveSize | None = None


class AuditAction(Model):
    """The worker audits the owners of its pages."""

    action: Literal["audit"]
    at: Micros
    worker: Name


class KillAction(Model):
    """The worker's process dies without closing its ledger; None: it stays dead."""

    action: Literal["kill"]
    at: Micros
    worker: Name
    restart_after: PositiveMicros | None = None


Action = Annotated[
    RequestAction
    | AbortAction
    | PauseAction
    | ContinueAction
    | GateAction
    | PostAction
    | LandAction
    | StepsAction
    | ReserveAction
    | FreeAction
    | AuditAction
    | KillAction,
    Field(discriminator="action"),
]


@dataclass(frozen=True)
class Seat:
    """What a script may ask of one worker: its role and the components it has pools of."""

    role: str
    components: tuple[str, ...]


def script_misfits(
    script: Sequence[Action], workers: Mapping[str, Seat], rid_prefixes: tuple[str, ...]
) -> Iterator[Misfit]:
    """What in a script does not fit the fleet, the rids of the traffic or the actions before it."""
    rids: set[str] = set()
    gated: set[str] = set()
    holding: set[tuple[str, str, str]] = set()
    for number, action in enumerate(script):
        place = ("script", number)
        yield from _worker_misfits(action, place, workers)
        rid = getattr(action, "rid", None)
        if isinstance(action, RequestAction):
            if rid in rids or action.rid.startswith(rid_prefixes):
                yield Misfit((*place, "rid"), f"'{rid}'", "a rid that no other request has")
            rids.add(action.rid)
        elif rid is not None and rid not in rids and not rid.startswith(rid_prefixes):
            yield Misfit((*place, "rid"), f"'{rid}'", "the rid of a request above it or of the traffic")
        elif isinstance(action, GateAction):
            gated.add(action.rid)
        elif isinstance(action, PostAction | LandAction) and rid not in gated:
            yield Misfit((*place, "rid"), f"'{rid}'", "the rid of a handoff gated above it")
        elif isinstance(action, ReserveAction):
            holding.add((action.outsider, action.worker, action.component))
        elif isinstance(action, FreeAction) and not (
            rid or (action.outsider, action.worker, action.component) in holding
        ):
            wanted = f"an outsider with reserved {action.component} pages on {action.worker}"
            yield Misfit((*place, "outsider"), f"'{action.outsider}'", wanted)


def _worker_misfits(action: Action, place: tuple[str, int], workers: Mapping[str, Seat]) -> Iterator[Misfit]:
    for key in ("worker", "prefill", "decode"):
        name = getattr(action, key, None)
        if name is None:
            continue
        if name not in workers:
            yield unknown((*place, key), name, workers)
        elif key != "worker" and workers[name].role != key:
            yield Misfit((*place, key), f"'{name}', a {workers[name].role} worker", f"a {key} worker")
        elif isinstance(action, ReserveAction | FreeAction) and action.component not in workers[name].components:
            yield unknown((*place, "component"), action.component, workers[name].components)
