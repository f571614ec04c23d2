"""Reading an engine's own limits, and judging them.

Invariant: a limit counts only if the running process states it; where two sources of one process disagree, no value
is chosen, and what follows is undecided.
"""

from __future__ import annotations

import math
import re
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from runbooks.actions.registry import Action, ActionContext, ActionModel, Effect
from runbooks.deadline import Deadline
from runbooks.engine_client import EngineClient, HttpFailure
from runbooks.errors import StepUndecided

# What is read: /server_info's name (SGLang's) and the gauge of the same meaning.
SOURCES: dict[str, tuple[str, str]] = {
    "pool_tokens": ("max_total_num_tokens", "kvwitness_pool_tokens"),
    "context_tokens": ("context_length", "kvwitness_context_tokens"),
    "page_tokens": ("page_size", "kvwitness_page_tokens"),
    "prompt_limit_tokens": ("max_req_input_len", "kvwitness_prompt_limit_tokens"),
}
SOURCE_TIMEOUT_S = 5.0
NO_ENGINE = "no engine was named; give --engine RUN_DIR/engine.json"


class WorkerLimits(ActionModel):
    """Limits of one worker, in tokens; null = not known from two agreeing sources."""

    role: str
    worker: str
    url: str
    pool_tokens: int | None
    context_tokens: int | None
    page_tokens: int | None
    prompt_limit_tokens: int | None


class NoInput(ActionModel):
    """An action that needs nothing."""


class PoolReading(ActionModel):
    """What the engine says of itself. Lists hold sentences; empty = nothing to complain of."""

    workers: list[WorkerLimits]
    advertised_tokens: int | None
    unreachable: list[str]
    disagreements: list[str]
    missing: list[str]


def read_pools(_: NoInput, context: ActionContext) -> PoolReading:
    """Ask /server_info and /metrics of every worker and of the gateway."""
    if context.engine is None:
        raise StepUndecided(NO_ENGINE)
    reader = _Reader(context.engine, context.deadline)
    workers = [reader.worker(role, url) for role, url in context.engine.engine.workers()]
    for role in ("prefill", "decode"):
        if not any(named == role for named, _ in context.engine.engine.workers()):
            reader.missing.append(f"the engine file names no {role} worker")
    return PoolReading(
        workers=[worker for worker in workers if worker is not None],
        advertised_tokens=reader.advertised(),
        unreachable=reader.unreachable,
        disagreements=reader.disagreements,
        missing=reader.missing,
    )


class _Reader:
    """Reads both sources of each process and collects what is wrong with them."""

    def __init__(self, client: EngineClient, deadline: Deadline) -> None:
        self._client = client
        self._deadline = deadline
        self.unreachable: list[str] = []
        self.disagreements: list[str] = []
        self.missing: list[str] = []

    def worker(self, role: str, url: str) -> WorkerLimits | None:
        """Limits of one worker; None where neither source answers."""
        info, metrics = self._sources(role, url)
        if info is None and metrics is None:
            return None
        name = self._name(info, url)
        stated_role = (info or {}).get("disaggregation_mode", role)
        if stated_role != role:
            self.disagreements.append(f"{name}: the engine file calls it {role}, it calls itself {_word(stated_role)}")
        values = {field: self._agreed(name, field, info, metrics, SOURCES[field]) for field in SOURCES}
        return WorkerLimits(role=role, worker=name, url=url, **values)

    def advertised(self) -> int | None:
        """Context that customers are promised, in tokens; None where the gateway's sources do not agree on it."""
        info, metrics = self._sources("gateway", self._client.engine.gateway)
        if info is None and metrics is None:
            return None
        return self._agreed("gateway", "context_tokens", info, metrics, SOURCES["context_tokens"])

    def _sources(self, role: str, url: str) -> tuple[dict[str, Any] | None, dict[str, int | None] | None]:
        info: dict[str, Any] | None = None
        metrics: dict[str, int | None] | None = None
        try:
            info = self._client.read_json(f"{url}/server_info", self._deadline.within(SOURCE_TIMEOUT_S))
        except HttpFailure as failure:
            self.unreachable.append(f"{role}: {failure}")
        try:
            metrics = gauges(self._client.read_text(f"{url}/metrics", self._deadline.within(SOURCE_TIMEOUT_S)))
        except HttpFailure as failure:
            self.unreachable.append(f"{role}: {failure}")
        except ValueError:
            self.unreachable.append(f"{role}: {url}/metrics is no Prometheus text")
        return info, metrics

    def _agreed(
        self,
        name: str,
        field: str,
        info: dict[str, Any] | None,
        metrics: dict[str, int | None] | None,
        names: tuple[str, str],
    ) -> int | None:
        stated, measured = _whole((info or {}).get(names[0])), (metrics or {}).get(names[1])
        if stated is not None and measured is not None and stated != measured:
            self.disagreements.append(f"{name}: {field} is {stated} in /server_info and {measured} in /metrics")
        # A source that gave no answer at all is reported as unreachable already.
        if info is not None and stated is None:
            self.missing.append(f"{name}: /server_info does not state {names[0]}")
        if metrics is not None and measured is None:
            self.missing.append(f"{name}: /metrics does not state {names[1]}")
        return stated if stated == measured else None

    @staticmethod
    def _name(info: dict[str, Any] | None, url: str) -> str:
        name = _word((info or {}).get("worker"))
        return name or url


def _word(value: Any) -> str:
    """A short plain word from a process, or ''."""
    return value if isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9._-]{1,64}", value) else ""


def gauges(text: str) -> dict[str, int | None]:
    """Gauges of a Prometheus text by name. Of those with a `pool` label the `kv` pool counts; two values give None.

    Raises ValueError when the text cannot be parsed.
    """
    found: dict[str, set[int | None]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.labels.get("pool", "kv") == "kv":
                found.setdefault(sample.name, set()).add(_whole(sample.value))
    return {name: values.pop() if len(values) == 1 else None for name, values in found.items()}


def _whole(value: Any) -> int | None:
    """A positive whole number, or None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return int(value) if value > 0 and value == int(value) else None


class LimitsInput(ActionModel):
    """Limits to judge: what `engine.read_pools` found, and tokens to keep free in every pool."""

    workers: list[WorkerLimits]
    advertised_tokens: int | None
    reserve_tokens: int = 0


class LimitsJudged(ActionModel):
    """`pools_below_context` and `contexts_differ` hold a sentence per violation. Null = not known."""

    smallest_margin_tokens: int | None
    pools_below_context: list[str] | None
    contexts_differ: list[str] | None
    boundary_tokens: int | None
    context_tokens: int | None
    decode_pool_tokens: int | None


def check_limits(given: LimitsInput, context: ActionContext) -> LimitsJudged:
    """Judge per role: pool >= advertised context (rounded up to whole pages) + reserve; all contexts equal."""
    del context
    if not given.workers or given.advertised_tokens is None:
        raise StepUndecided("the limits were not read from every role, so there is nothing to compare")
    margins: list[int] = []
    below = []
    for worker in given.workers:
        if worker.pool_tokens is None or worker.page_tokens is None:
            continue
        whole = math.ceil(given.advertised_tokens / worker.page_tokens) * worker.page_tokens
        margins.append(worker.pool_tokens - given.reserve_tokens - whole)
        if margins[-1] < 0:
            reserve = f" less {given.reserve_tokens} in reserve" if given.reserve_tokens else ""
            below.append(
                f"{worker.worker}: its pool holds {worker.pool_tokens} tokens{reserve}, "
                f"the advertised context of {given.advertised_tokens} needs {whole}"
            )
    contexts = {worker.worker: worker.context_tokens for worker in given.workers}
    differ = [
        f"{worker}: its context is {tokens}, the gateway advertises {given.advertised_tokens}"
        for worker, tokens in contexts.items()
        if tokens is not None and tokens != given.advertised_tokens
    ]
    limits = [worker.prompt_limit_tokens for worker in given.workers]
    decode = [worker.pool_tokens for worker in given.workers if worker.role == "decode"]
    return LimitsJudged(
        smallest_margin_tokens=min(margins) if len(margins) == len(given.workers) else None,
        pools_below_context=below if below or len(margins) == len(given.workers) else None,
        contexts_differ=differ if differ or None not in contexts.values() else None,
        boundary_tokens=_smallest(limits),
        context_tokens=_smallest([given.advertised_tokens, *contexts.values()]),
        decode_pool_tokens=_smallest(decode),
    )


def _smallest(values: list[int | None]) -> int | None:
    """The smallest value, or None where any is unknown or there is none."""
    known = [value for value in values if value is not None]
    return min(known) if known and len(known) == len(values) else None


READ_POOLS = Action("engine.read_pools", Effect.OBSERVE, NoInput, PoolReading, read_pools)
CHECK_LIMITS = Action("engine.check_limits", Effect.OBSERVE, LimitsInput, LimitsJudged, check_limits)
