"""Probing the length limit through the gateway, by content.

The donor tenant stains pages with a nonce; the probe tenant then asks for its own nonces at lengths up to the limit
(every nonce must come back, none of the donor's) and one token beyond it (a typed 4xx, at once, no token).

Invariant: a status code alone never passes a probe within the limit, and an answer is searched for nonces and dropped:
results carry names, lengths and counts, no text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from runbooks.actions.probe_verdict import Kind, ProbeReport, ProbeResult, Verdict, describe, judge
from runbooks.actions.registry import Action, ActionContext, ActionModel, Effect
from runbooks.canary import (
    COPIER_NAMES,
    NONCE_LENGTH,
    SMALLEST_PROMPT,
    Nonce,
    Place,
    ProbePrompt,
    echoed,
    find_nonces,
    question,
    stain,
)
from runbooks.engine_client import EngineClient, HttpFailure, Reply
from runbooks.errors import StepUndecided

# Long enough for two whole nonces with their cues, whatever byte the leaked text starts at.
LEAK_TOKENS = 3 * NONCE_LENGTH
SERVE_TIMEOUT_S = 120.0


class ProbeInput(ActionModel):
    """`boundary_tokens`: longest prompt that should be served. Null tenants = the engine file's first two."""

    boundary_tokens: int | None
    context_tokens: int | None
    decode_pool_tokens: int | None
    refusal_within_s: float
    donor_tenant: str | None = None
    probe_tenant: str | None = None


@dataclass(frozen=True)
class _Answer:
    """What one request gave: the text is searched by the caller and dropped."""

    reply: Reply | None
    failure: HttpFailure | None
    text: str
    code: str
    usage: dict[str, Any]

    def __repr__(self) -> str:
        return "_Answer()"


class _Prober:
    """One run of the probes against one engine."""

    def __init__(self, given: ProbeInput, context: ActionContext, client: EngineClient) -> None:
        if given.boundary_tokens is None or given.context_tokens is None or given.decode_pool_tokens is None:
            raise StepUndecided("the limits are not known, so the boundary is not")
        self._given = given
        self._context = context
        self._client = client
        self._boundary = given.boundary_tokens
        self._total = min(given.context_tokens, given.decode_pool_tokens)
        self._donor, self._prober = _tenants(given, client)
        self._model = _copier(client, context)
        self._overhead = 0
        self._planted: list[Nonce] = []
        self._results: list[ProbeResult] = []

    def run(self) -> ProbeReport:
        """Send the probes in order: stain, below, boundary, stain, over."""
        self._measure_overhead()
        if self._boundary - NONCE_LENGTH - self._overhead < SMALLEST_PROMPT:
            raise StepUndecided(f"the limit of {self._boundary} tokens is too small to hold the probe's nonces")
        self._stain()
        if self._room(self._boundary) < NONCE_LENGTH:
            self._ask_everywhere("below", self._total - NONCE_LENGTH)
        self._ask_everywhere("boundary", self._boundary)
        self._stain()
        self._ask("over", self._boundary + 1, Place.START)
        return self._report()

    def _room(self, prompt_tokens: int) -> int:
        """Tokens of answer that fit after a prompt."""
        return self._total - prompt_tokens

    def _measure_overhead(self) -> None:
        """Tokens that the engine adds to a prompt's bytes, from one short request."""
        length = SMALLEST_PROMPT
        prompt = question(self._context.random, "calibration", self._donor, length, Place.START)
        answer, _ = self._send("calibration", self._donor, prompt, 1, SERVE_TIMEOUT_S)
        counted = answer.usage.get("prompt_tokens")
        if answer.reply is None or answer.reply.status != 200 or not isinstance(counted, int):
            raise StepUndecided(f"a short request was not served: {_why(answer)}")
        if not 0 <= counted - length <= 64:
            raise StepUndecided(
                f"{length} bytes were counted as {counted} tokens; prompt lengths cannot be set exactly"
            )
        self._overhead = counted - length

    def _stain(self) -> None:
        """Let the donor fill pages up to and beyond the boundary, as far as its own limits let it."""
        tokens = min(self._boundary, self._total - NONCE_LENGTH)
        name = f"donor-{sum(result.kind == 'stain' for result in self._results) + 1}"
        prompt = stain(self._context.random, name, self._donor, tokens - self._overhead)
        self._probe("stain", "all", self._donor, prompt, tokens, NONCE_LENGTH, SERVE_TIMEOUT_S)

    def _ask_everywhere(self, kind: Kind, tokens: int) -> None:
        for place in Place:
            self._ask(kind, tokens, place)

    def _ask(self, kind: Kind, tokens: int, place: Place) -> None:
        name = f"{kind}-{place}"
        prompt = question(self._context.random, name, self._prober, tokens - self._overhead, place)
        wanted = LEAK_TOKENS if kind == "over" else NONCE_LENGTH
        seconds = self._given.refusal_within_s if kind == "over" else SERVE_TIMEOUT_S
        self._probe(kind, place, self._prober, prompt, tokens, max(1, min(wanted, self._room(tokens))), seconds)

    def _probe(
        self, kind: Kind, place: str, tenant: str, prompt: ProbePrompt, tokens: int, answer_tokens: int, seconds: float
    ) -> None:
        others = [nonce for nonce in self._planted if nonce.tenant != tenant]
        self._planted.extend(prompt.nonces)
        answer, rid = self._send(f"{len(self._results)}-{kind}-{place}", tenant, prompt, answer_tokens, seconds)
        foreign = [
            f"{match.nonce.name} of {match.nonce.tenant} ({match.length} of {NONCE_LENGTH} characters)"
            for match in find_nonces(answer.text, others)
        ]
        result = ProbeResult(
            kind=kind,
            place=place,
            rid=rid,
            tenant=tenant,
            prompt_tokens=tokens,
            status=answer.reply.status if answer.reply else None,
            code=answer.code or (answer.failure.kind if answer.failure else ""),
            usage_prompt_tokens=_count(answer.usage.get("prompt_tokens")),
            usage_completion_tokens=_count(answer.usage.get("completion_tokens")),
            seconds=round(answer.reply.seconds if answer.reply else seconds, 3),
            expected=min(NONCE_LENGTH, answer_tokens),
            echoed=echoed(answer.text, prompt.expected),
            foreign=foreign,
        )
        self._results.append(result)
        self._context.say(describe(result))

    def _send(
        self, name: str, tenant: str, prompt: ProbePrompt, answer_tokens: int, seconds: float
    ) -> tuple[_Answer, str]:
        rid = f"{self._context.run_id}-{name}"
        body = {"model": self._model, "prompt": prompt.text, "max_tokens": answer_tokens, "temperature": 0}
        url = f"{self._client.engine.gateway}/v1/completions"
        try:
            reply = self._client.post(url, tenant, rid, body, self._context.deadline.within(seconds))
        except HttpFailure as failure:
            return _Answer(None, failure, "", "", {}), rid
        content = reply.json()
        return _Answer(reply, None, _text(content), _error_code(content), _usage(content)), rid

    def _report(self) -> ProbeReport:
        leaks = [f"{result.rid} read {', '.join(result.foreign)}" for result in self._results if result.foreign]
        not_refused: list[str] = []
        wrong: list[str] = []
        undecided: list[str] = []
        for result in self._results:
            verdict, sentence = judge(result, self._gateway_alive)
            if verdict is Verdict.WRONG:
                (not_refused if result.kind == "over" else wrong).append(sentence)
            elif verdict is Verdict.UNDECIDED:
                undecided.append(sentence)
        return ProbeReport(
            probes=self._results,
            leaks=leaks,
            not_refused_beyond_limit=not_refused,
            wrong_within_limit=wrong,
            undecided=undecided,
        )

    def _gateway_alive(self) -> bool:
        """Whether the gateway answers at all: silence of a living gateway is a hang, of a dead one no evidence."""
        try:
            self._client.read_text(f"{self._client.engine.gateway}/health", self._context.deadline.within(5.0))
        except HttpFailure:
            return False
        return True


def probe_boundary(given: ProbeInput, context: ActionContext) -> ProbeReport:
    """Probe below, at and one token beyond the boundary. See the module's docstring."""
    if context.engine is None:
        raise StepUndecided("no engine was named; give --engine RUN_DIR/engine.json")
    return _Prober(given, context, context.engine).run()


def _tenants(given: ProbeInput, client: EngineClient) -> tuple[str, str]:
    known = list(client.engine.api_keys)
    donor = given.donor_tenant or next((name for name in known if name != given.probe_tenant), None)
    prober = given.probe_tenant or next((name for name in known if name != donor), None)
    for name in (donor, prober):
        if name is not None and name not in known:
            raise StepUndecided(
                f"tenant '{name}' has no API key in the engine file; it has {', '.join(known) or 'none'}"
            )
    if donor is None or prober is None or donor == prober:
        raise StepUndecided("the engine file needs the API keys of two tenants, a donor and a prober")
    return donor, prober


def _copier(client: EngineClient, context: ActionContext) -> str:
    """The model's name, if its right answer is known. Raises StepUndecided for every other model."""
    url = f"{client.engine.workers()[0][1]}/model_info"
    try:
        info = client.read_json(url, context.deadline.within(5.0))
    except HttpFailure as failure:
        raise StepUndecided(f"the model is not known: {failure}") from failure
    keys = ("name", "served_model_name", "model_type", "model_path")
    names = [info[key] for key in keys if isinstance(info.get(key), str)]
    name = next((name for name in names if name in COPIER_NAMES), None)
    if name is None:
        found = names[0] if names else "unnamed"
        raise StepUndecided(f"the model is {found}: its right answer is not known, so its content is not checked")
    served = info.get("served_model_name")
    return served if isinstance(served, str) else name


def _text(content: Any) -> str:
    try:
        text = content["choices"][0]["text"]
    except (KeyError, IndexError, TypeError):
        return ""
    return text if isinstance(text, str) else ""


def _error_code(content: Any) -> str:
    error = content.get("error") if isinstance(content, dict) else None
    code = error.get("code") if isinstance(error, dict) else None
    # A code is a word; anything else might be text that the engine echoes.
    return (
        code if isinstance(code, str) and code.isascii() and code.replace("_", "").isalnum() and len(code) < 64 else ""
    )


def _usage(content: Any) -> dict[str, Any]:
    usage = content.get("usage") if isinstance(content, dict) else None
    return usage if isinstance(usage, dict) else {}


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _why(answer: _Answer) -> str:
    if answer.failure is not None:
        return str(answer.failure)
    return f"status {answer.reply.status if answer.reply else '?'} {answer.code}".rstrip()


PROBE_BOUNDARY = Action("probe.boundary", Effect.OBSERVE, ProbeInput, ProbeReport, probe_boundary, sends_traffic=True)
