"""Reading an engine's own limits, and judging them.

Invariant: a limit counts only if the running process states it; where two sources of one process disagree, no value
is chosen, and what follows is undecided.
"""

from __future__ import annotations

import math
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from runbooks.actions.registry import Action, ActionContext, ActionModel, Effect
from runbooks.deadline import Deadline
from runbooks.engine_client import EngineClient, HttpFailure
from runbooks.errors import StepUndecided

# What is read: /server_info's name (SGLang's) and the gauge of the same meaning.
WORKER_SOURCES: dict[str, tuple[str, str]] = {
    "pool_tokens": ("max_total_num_tokens", "kvwitness_pool_tokens"),
    "context_tokens": ("context_length", "kvwitness_context_tokens"),
    "page_tokens": ("page_size", "kvwitness_page_tokens"),
    "prompt_limit_tokens": ("max_req_input_len", "kvwitness_prompt_limit_tokens"),
}
SOURCE_TIMEOUT_S = 5.0


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
    """Ask every worker's /server_info and /metrics, and the gateway's /v1/models and /server_info."""
    client = _client(context)
    unreachable: list[str] = []
    disagreements: list[str] = []
    missing: list[str] = []
    workers = []
    for role, url in client.engine.workers():
        limits, faults = _read_worker(client, role, url, context.deadline)
        unreachable += faults
        if limits is not None:
            workers.append(_agreed(limits, disagreements, missing))
    missing += [f"the engine file names no {role} worker" for role in ("prefill", "decode") if not _has(client, role)]
    advertised = _read_gateway(client, context.deadline, unreachable, disagreements, missing)
    return PoolReading(
        workers=workers,
        advertised_tokens=advertised,
        unreachable=unreachable,
        disagreements=disagreements,
        missing=missing,
    )


def _has(client: EngineClient, role: str) -> bool:
    return any(named == role for named, _ in client.engine.workers())


def _read_worker(
    client: EngineClient, role: str, url: str, deadline: Deadline
) -> tuple[dict[str, Any] | None, list[str]]:
    """Both sources of one worker: {name: (info value, metric value)}, and what could not be read."""
    info: dict[str, Any] = {}
    metrics: dict[str, int | None] = {}
    faults = []
    try:
        info = client.read_json(f"{url}/server_info", deadline.within(SOURCE_TIMEOUT_S))
    except HttpFailure as failure:
        faults.append(f"{role}: {failure}")
    try:
        metrics = gauges(client.read_text(f"{url}/metrics", deadline.within(SOURCE_TIMEOUT_S)))
    except HttpFailure as failure:
        faults.append(f"{role}: {failure}")
    except ValueError as error:
        faults.append(f"{role}: {url}/metrics is no Prometheus text ({error})")
    if not info and not metrics:
        return None, faults
    values = {name: (_whole(info.get(key)), metrics.get(gauge)) for name, (key, gauge) in WORKER_SOURCES.items()}
    stated = str(info.get("disaggregation_mode") or role)
    return {"role": role, "stated": stated, "worker": str(info.get("worker") or url), "url": url, **values}, faults


def _agreed(found: dict[str, Any], disagreements: list[str], missing: list[str]) -> WorkerLimits:
    worker = found["worker"]
    if found["stated"] != found["role"]:
        disagreements.append(f"{worker}: the engine file calls it {found['role']}, it calls itself {found['stated']}")
    values: dict[str, int | None] = {}
    for name, (key, gauge) in WORKER_SOURCES.items():
        stated, measured = found[name]
        values[name] = stated if stated is not None and stated == measured else None
        if stated is None or measured is None:
            absent = [f"/server_info {key}"] * (stated is None) + [f"/metrics {gauge}"] * (measured is None)
            missing.append(f"{worker}: {name} is not stated by {' nor by '.join(absent)}")
        elif stated != measured:
            disagreements.append(f"{worker}: {name} is {stated} in /server_info and {measured} in /metrics")
    return WorkerLimits(role=found["role"], worker=worker, url=found["url"], **values)


def _read_gateway(
    client: EngineClient, deadline: Deadline, unreachable: list[str], disagreements: list[str], missing: list[str]
) -> int | None:
    """Context that customers are promised: /v1/models and the gateway's /server_info have to agree."""
    url = client.engine.gateway
    found: list[int | None] = []
    for path, pick in (("/v1/models", _model_length), ("/server_info", lambda info: info.get("context_length"))):
        try:
            found.append(_whole(pick(client.read_json(f"{url}{path}", deadline.within(SOURCE_TIMEOUT_S)))))
        except HttpFailure as failure:
            unreachable.append(f"gateway: {failure}")
            found.append(None)
            continue
        if found[-1] is None:
            missing.append(f"gateway: {path} does not state the advertised context")
    if None in found:
        return None
    if found[0] != found[1]:
        disagreements.append(f"gateway: advertises {found[0]} in /v1/models and {found[1]} in /server_info")
        return None
    return found[0]


def _model_length(models: dict[str, Any]) -> Any:
    entries = models.get("data")
    lengths = {entry.get("max_model_len") for entry in entries} if isinstance(entries, list) else set()
    return lengths.pop() if len(lengths) == 1 else None


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


def _client(context: ActionContext) -> EngineClient:
    if context.engine is None:
        raise StepUndecided("no engine was named; give --engine RUN_DIR/engine.json")
    return context.engine


READ_POOLS = Action("engine.read_pools", Effect.OBSERVE, NoInput, PoolReading, read_pools)
CHECK_LIMITS = Action("engine.check_limits", Effect.OBSERVE, LimitsInput, LimitsJudged, check_limits)
