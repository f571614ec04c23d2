"""What one probe's outcome means.

Invariant: within the limit only content passes; beyond it only a typed 4xx without a token does; an answer that says
nothing about lengths (no connection, overload, refused credentials) is undecided, never a pass.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Literal

from runbooks.actions.registry import ActionModel

OK = 200
CLIENT_ERRORS = range(400, 500)
# Answers about load, credentials or routes: they say nothing about lengths.
BESIDE_THE_POINT = frozenset({401, 403, 404, 429, 503})

Kind = Literal["stain", "below", "boundary", "over"]


class Verdict(StrEnum):
    """Verdict on one probe, foreign nonces apart."""

    RIGHT = "right"
    WRONG = "wrong"
    UNDECIDED = "undecided"


class ProbeResult(ActionModel):
    """One request's outcome. `echoed` of `expected` nonce characters came back; `foreign` names others' nonces."""

    kind: Kind
    place: str
    rid: str
    tenant: str
    prompt_tokens: int
    status: int | None
    code: str
    usage_prompt_tokens: int | None
    usage_completion_tokens: int | None
    seconds: float
    expected: int
    echoed: int
    foreign: list[str]


class ProbeReport(ActionModel):
    """Every probe and what was wrong; lists hold sentences."""

    probes: list[ProbeResult]
    leaks: list[str]
    not_refused_beyond_limit: list[str]
    wrong_within_limit: list[str]
    undecided: list[str]


def judge(result: ProbeResult, gateway_alive: Callable[[], bool]) -> tuple[Verdict, str]:
    """Verdict on one probe and a sentence. `gateway_alive` is asked only where no answer came in time."""
    what = f"{result.kind} ({result.prompt_tokens} tokens, {result.place})"
    if result.status is None:
        if result.kind == "over" and result.code == "timeout" and gateway_alive():
            return Verdict.WRONG, f"{what}: no answer within {result.seconds:g} s, while the gateway is alive"
        return Verdict.UNDECIDED, f"{what}: no answer ({result.code})"
    if result.status in BESIDE_THE_POINT:
        return Verdict.UNDECIDED, f"{what}: answered {result.status} {result.code}, which says nothing about lengths"
    return _judge_beyond(result, what) if result.kind == "over" else _judge_within(result, what)


def _judge_beyond(result: ProbeResult, what: str) -> tuple[Verdict, str]:
    if result.status in CLIENT_ERRORS and result.code and not result.usage_completion_tokens:
        return Verdict.RIGHT, f"{what}: refused with {result.status} {result.code}"
    return Verdict.WRONG, (
        f"{what}: answered {result.status} {result.code or 'without an error code'} with "
        f"{result.usage_completion_tokens or 0} tokens, {result.echoed} of {result.expected} own nonce characters"
    )


def _judge_within(result: ProbeResult, what: str) -> tuple[Verdict, str]:
    if result.status != OK:
        return Verdict.WRONG, f"{what}: refused with {result.status} {result.code}"
    if result.usage_prompt_tokens != result.prompt_tokens:
        return Verdict.UNDECIDED, f"{what}: the engine counted {result.usage_prompt_tokens} prompt tokens"
    if result.echoed < result.expected:
        return Verdict.WRONG, f"{what}: {result.echoed} of {result.expected} own nonce characters came back"
    return Verdict.RIGHT, f"{what}: all {result.expected} own nonce characters came back"


def describe(result: ProbeResult) -> str:
    """One line about a probe: numbers and nonce names only."""
    status = result.status if result.status is not None else "no answer"
    line = f"  {result.kind:<8} {result.place:<6} {result.prompt_tokens:>8} tokens -> {status} {result.code}".rstrip()
    line += f", {result.echoed} of {result.expected} own nonce characters, {result.seconds:.2f} s"
    return line + (f", FOREIGN: {'; '.join(result.foreign)}" if result.foreign else "")
