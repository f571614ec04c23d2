"""The gateway: OpenAI's door. Tenants from credentials, the admission gate, one body to both roles, decode's answer.

Invariant: what a client says about its own identity is never believed; a refusal of either role reaches the client
with its own status and words.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx
from fastapi import FastAPI, Response
from fastapi import Request as HttpRequest
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, StreamingResponse

from engine.clock import RealClock
from engine.config import ProcessConfig
from engine.defences import ADMISSION_GATE, Checks, Defences, Limits
from engine.door import VERSION
from engine.ledger.recorder import Recorder
from engine.metrics import GatewayCollector, render
from engine.openai_api import CHAT, COMPLETION, MODEL, Answer, ChatBody, CompletionBody, Shape, sse, usage
from engine.request import RequestError
from engine.tenants import Tenants
from engine.tokenizer import ByteTokenizer

log = logging.getLogger(__name__)

_RID = re.compile(r"[A-Za-z0-9._-]{1,64}")
UNAUTHORIZED = RequestError(401, "unauthorized", "no or unknown API key: send 'Authorization: Bearer KEY'")


class Refused(Exception):
    """A request that ends with a typed error."""

    def __init__(self, error: RequestError) -> None:
        super().__init__(error.message)
        self.error = error


@dataclass
class _Call:
    """One client request on its way."""

    rid: str
    req: int
    tokens: list[int]
    budget: int
    tenant: str
    purpose: str
    sent: int = 0
    last_token: int | None = None


class Gateway:
    """Carries requests to one prefill and one decode worker."""

    def __init__(self, config: ProcessConfig, recorder: Recorder, clock: RealClock) -> None:
        self.config, self.recorder, self.clock = config, recorder, clock
        self.tokenizer = ByteTokenizer()
        self.tenants = Tenants(config.engine.tenants, config.ledger_key)
        self.checks = Checks(Defences.parse(config.engine.defences), recorder)
        self.answers: Counter[int] = Counter()
        self.http = httpx.AsyncClient(timeout=httpx.Timeout(10, read=None), limits=httpx.Limits(max_connections=None))
        self.pools: dict[str, int] = {}
        self._next_req = 1

    async def learn_limits(self) -> None:
        """Ask both roles for their pools; say so where the advertised context does not fit."""
        for url in (self.config.prefill_url, self.config.decode_url):
            info = (await self.http.get(f"{url}/server_info")).json()
            self.pools[info["disaggregation_mode"]] = info["max_total_num_tokens"]
        context = self.config.engine.context_tokens
        for role, pool in self.pools.items():
            if pool < context:
                log.warning(
                    "advertised context %d tokens is larger than the %s KV pool of %d tokens", context, role, pool
                )

    def limit(self) -> int:
        """The longest prompt that every role can take."""
        return min([*self.pools.values(), self.config.engine.context_tokens - 1])

    def receive(self, request: HttpRequest, text: str, budget: int) -> _Call:
        """Identity and admission of one request. Raises Refused."""
        tenant = self.tenants.from_authorization(request.headers.get("authorization"))
        if tenant is None:
            raise Refused(UNAUTHORIZED)
        given = request.headers.get("x-request-id", "")
        if given and not _RID.fullmatch(given):
            raise Refused(RequestError(400, "bad_request_id", "x-request-id: use at most 64 of A-Z a-z 0-9 . _ -"))
        tokens = self.tokenizer.encode(text)
        purpose = request.headers.get("x-kvwitness-purpose", "customer")
        call = _Call(
            given or secrets.token_hex(8), self._next_req, tokens, budget, self.tenants.pseudonym(tenant), purpose
        )
        self._next_req += 1
        self.recorder.record(
            "requests", "receive", req=call.req, rid=call.rid, attempt=1, choice=0, tenant=call.tenant, purpose=purpose,
            weights=MODEL, kv_format="float32", prompt_tokens=len(tokens), limit_tokens=self.limit(),
        )  # fmt: skip
        error = self._refusal(call)
        if error is not None:
            self.recorder.record(
                "requests", "reject", req=call.req, status=str(error.status), reason=error.code, output_tokens=0
            )
            raise Refused(error)
        self.recorder.record("requests", "admit", req=call.req)
        return call

    def _refusal(self, call: _Call) -> RequestError | None:
        if not call.tokens:
            return RequestError(400, "empty_prompt", "the prompt has no tokens")
        for role, pool in self.pools.items():
            refusal = Limits(role, pool, self.config.engine.context_tokens).refusal(len(call.tokens), call.budget)
            if refusal is not None:
                limit, error = refusal
                if self.checks.failed(ADMISSION_GATE, call.req, expected=limit, found=len(call.tokens)):
                    return error
        return None

    def end(self, call: _Call, error: RequestError | None) -> None:
        """The last row of a request."""
        self.recorder.record(
            "requests", "abort" if error else "finish", req=call.req, status=str(error.status if error else 200),
            reason=error.code if error else None, output_tokens=call.sent, last_token=call.last_token, page_rows=0,
        )  # fmt: skip

    async def tokens(self, call: _Call) -> AsyncIterator[int]:
        """Tokens of one request as decode lets them go. Raises Refused; aborts both sides if it is not run to its end."""
        room = secrets.randbits(62)
        self.recorder.record("requests", "room", req=call.req, room=room)
        body = {
            "input_ids": call.tokens, "sampling_params": {"max_new_tokens": call.budget}, "rid": call.rid,
            "bootstrap_room": room, "bootstrap_host": "127.0.0.1", "bootstrap_port": self._wire_port(),
        }  # fmt: skip
        headers = {
            "x-kvwitness-hop": self.config.hop_key, "x-kvwitness-tenant": call.tenant, "x-kvwitness-purpose": call.purpose,
        }  # fmt: skip
        prefill = asyncio.create_task(self.http.post(f"{self.config.prefill_url}/generate", json=body, headers=headers))
        finished = False
        try:
            async with self.http.stream(
                "POST", f"{self.config.decode_url}/generate", json={**body, "stream": True}, headers=headers
            ) as answer:
                if answer.status_code != 200:
                    raise Refused(_error_of(json.loads(await answer.aread()), answer.status_code))
                async for line in answer.aiter_lines():
                    if not line.startswith("data: {"):
                        continue
                    event = json.loads(line[6:])
                    if "token" in event:
                        yield event["token"]
                    elif "error" in event:
                        raise Refused(await self._original(prefill, _error_of(event, event["status"])))
                    else:
                        finished = True
        except httpx.HTTPError as failure:
            raise Refused(
                RequestError(502, "worker_unreachable", f"a worker went away: {type(failure).__name__}")
            ) from failure
        finally:
            if not finished:
                await self._abort(call.rid, headers)
            if not prefill.done():
                prefill.cancel()

    def _wire_port(self) -> int:
        return int(self.config.prefill_wire.rpartition(":")[2])

    async def _original(self, prefill: asyncio.Task[httpx.Response], error: RequestError) -> RequestError:
        """Prefill's own refusal where there is one: decode only knows that its handoff failed."""
        if prefill.done() and not prefill.cancelled() and prefill.exception() is None:
            answer = prefill.result()
            if 400 <= answer.status_code < 499:
                return _error_of(answer.json(), answer.status_code)
        return error

    async def _abort(self, rid: str, headers: dict[str, str]) -> None:
        for url in (self.config.decode_url, self.config.prefill_url):
            try:
                await self.http.post(f"{url}/abort_request", json={"rid": rid}, headers=headers)
            except httpx.HTTPError:
                log.warning("abort of %s did not reach %s", rid, url)


def _error_of(body: dict[str, Any], status: int) -> RequestError:
    error = body.get("error") or {}
    return RequestError(
        status, error.get("code") or "worker_error", error.get("message") or "a worker refused the request"
    )


def gateway_app(gateway: Gateway) -> FastAPI:
    """The routes of the gateway."""
    app = FastAPI(title="kvwitness gateway", docs_url=None, redoc_url=None, openapi_url=None)
    app.router.add_event_handler("startup", gateway.learn_limits)

    @app.exception_handler(Refused)
    async def _refused(_: HttpRequest, refused: Refused) -> JSONResponse:
        gateway.answers[refused.error.status] += 1
        return JSONResponse(refused.error.body(), refused.error.status)

    @app.exception_handler(RequestValidationError)
    async def _invalid(_: HttpRequest, invalid: RequestValidationError) -> JSONResponse:
        first = invalid.errors()[0]
        words = f"{'.'.join(str(part) for part in first['loc'][1:])}: {first['msg']}"
        gateway.answers[400] += 1
        return JSONResponse(RequestError(400, "invalid_body", words).body(), 400)

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": [{"id": MODEL, "object": "model", "created": 0, "owned_by": "kvwitness"}]}

    @app.get("/server_info")
    async def server_info() -> dict[str, Any]:
        return {
            "worker": gateway.config.name, "epoch": gateway.recorder.epoch, "version": VERSION, "disaggregation_mode": "gateway",
            "context_length": gateway.config.engine.context_tokens, "max_req_input_len": gateway.limit(), "pools": gateway.pools,
            "ledger": gateway.config.engine.ledger, "defences": gateway.checks.defences.modes(), "faults": [],
        }  # fmt: skip

    @app.get("/metrics")
    async def metrics() -> Response:
        collector = GatewayCollector(lambda: dict(gateway.answers), gateway.config.engine.context_tokens, gateway.limit)
        return Response(render(collector), media_type="text/plain; version=0.0.4")

    @app.post("/v1/completions")
    async def completions(body: CompletionBody, request: HttpRequest) -> Response:
        return await _answer(gateway, COMPLETION, body, request)

    @app.post("/v1/chat/completions")
    async def chat_completions(body: ChatBody, request: HttpRequest) -> Response:
        return await _answer(gateway, CHAT, body, request)

    return app


async def _answer(gateway: Gateway, shape: Shape, body: CompletionBody | ChatBody, request: HttpRequest) -> Response:
    call = gateway.receive(request, body.text(), body.budget)
    answer = Answer(shape, call.rid, int(time.time()), body.model)
    tokens = gateway.tokens(call)
    headers = {"x-request-id": call.rid}
    if body.stream:
        first = await _first(gateway, call, tokens)
        stream = _chunks(gateway, call, answer, first, tokens, body.stream_options.include_usage)
        return StreamingResponse(stream, media_type="text/event-stream", headers=headers)
    work = asyncio.create_task(_whole(gateway, call, answer, tokens))
    while not (await asyncio.wait({work}, timeout=0.1))[0]:
        if await request.is_disconnected():
            work.cancel()
            break
    return JSONResponse(await work, headers=headers)


async def _first(gateway: Gateway, call: _Call, tokens: AsyncIterator[int]) -> int:
    """The first token, so that a refusal still has its status."""
    try:
        return await anext(tokens)
    except Refused as refused:
        gateway.end(call, refused.error)
        raise


async def _whole(gateway: Gateway, call: _Call, answer: Answer, tokens: AsyncIterator[int]) -> dict[str, Any]:
    text = []
    try:
        async for token in tokens:
            text.append(answer.text(token))
            call.sent += 1
    except Refused as refused:
        call.sent = 0  # nothing of it leaves
        gateway.end(call, refused.error)
        raise
    except asyncio.CancelledError:
        call.sent = 0
        await tokens.aclose()  # type: ignore[attr-defined]
        gateway.end(call, RequestError(499, "aborted", "the client went away"))
        raise
    call.last_token = gateway.clock.now_us()
    gateway.end(call, None)
    gateway.answers[200] += 1
    return answer.whole("".join(text) + answer.text(0, final=True), usage(len(call.tokens), call.sent))


async def _chunks(
    gateway: Gateway, call: _Call, answer: Answer, first: int, tokens: AsyncIterator[int], include_usage: bool
) -> AsyncIterator[bytes]:
    error: RequestError | None = RequestError(499, "aborted", "the client went away")
    try:
        yield _leave(gateway, call, answer, first)
        async for token in tokens:
            yield _leave(gateway, call, answer, token)
        yield answer.chunk(answer.text(0, final=True), "length")
        if include_usage:
            yield answer.usage_chunk(usage(len(call.tokens), call.sent))
        yield b"data: [DONE]\n\n"
        error = None
    except Refused as refused:
        error = refused.error
        yield sse(error.body())
    finally:
        await tokens.aclose()  # type: ignore[attr-defined]
        gateway.end(call, error)
        gateway.answers[error.status if error else 200] += 1


def _leave(gateway: Gateway, call: _Call, answer: Answer, token: int) -> bytes:
    call.sent += 1
    call.last_token = gateway.clock.now_us()
    return answer.chunk(answer.text(token))
