"""OpenAI's door: routes of the gateway, whole and streamed answers, and clients that go away.

Invariant: every request that was received gets exactly one last ledger row, whatever becomes of its client.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Response
from fastapi import Request as HttpRequest
from fastapi.responses import JSONResponse, StreamingResponse
from starlette.background import BackgroundTask

from engine.door import VERSION, answer_errors_as_openai, gone
from engine.fault_door import hop_check, switch_routes
from engine.gateway import Gateway
from engine.metrics import GatewayCollector, render
from engine.openai_api import CHAT, COMPLETION, MODEL, Answer, ChatBody, CompletionBody, Shape, sse, usage
from engine.relay import ABORTED, Call, Refused
from engine.request import RequestError

CLIENT_GONE = RequestError(ABORTED, "aborted", "the client went away")


class ClientGone(Exception):
    """Nobody waits for this answer any more."""


def gateway_app(gateway: Gateway) -> FastAPI:
    """The routes of the gateway."""

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        await gateway.start()
        yield
        await gateway.close()

    app = FastAPI(title="kvwitness gateway", docs_url=None, redoc_url=None, openapi_url=None, lifespan=life)
    answer_errors_as_openai(app, lambda status: gateway.answers.update([status]))

    @app.exception_handler(Refused)
    async def _refused(_: HttpRequest, refused: Refused) -> JSONResponse:
        gateway.answers[refused.error.status] += 1
        return JSONResponse(refused.error.body(), refused.error.status)

    @app.post("/v1/completions")
    async def completions(body: CompletionBody, request: HttpRequest) -> Response:
        return await _answer(gateway, COMPLETION, body, request)

    @app.post("/v1/chat/completions")
    async def chat_completions(body: ChatBody, request: HttpRequest) -> Response:
        return await _answer(gateway, CHAT, body, request)

    _info_routes(app, gateway)
    switch_routes(app, gateway.faults, hop_check(gateway.config.hop_key))
    return app


def _info_routes(app: FastAPI, gateway: Gateway) -> None:
    engine = gateway.config.engine

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        card = {
            "id": MODEL,
            "object": "model",
            "created": 0,
            "owned_by": "kvwitness",
            "max_model_len": engine.context_tokens,
        }
        return {"object": "list", "data": [card]}

    @app.get("/server_info")
    async def server_info() -> dict[str, Any]:
        return {
            "worker": gateway.config.name, "epoch": gateway.recorder.epoch, "version": VERSION, "ledger": engine.ledger,
            "disaggregation_mode": "gateway", "served_model_name": MODEL, "context_length": engine.context_tokens,
            "max_req_input_len": gateway.limit(), "pools": gateway.pools,
            "defences": gateway.checks.defences.modes(), "faults": gateway.faults.active(),
            "workers": [worker.state() for worker in gateway.fleet.workers],
        }  # fmt: skip

    @app.get("/metrics")
    async def metrics() -> Response:
        collector = GatewayCollector(gateway.answers, gateway.checks, engine.context_tokens, gateway.limit())
        return Response(render(collector), media_type="text/plain; version=0.0.4")


async def _answer(gateway: Gateway, shape: Shape, body: CompletionBody | ChatBody, request: HttpRequest) -> Response:
    call = gateway.receive(request.headers, body.text(), body.budget, body.user)
    answer = Answer(shape, call.rid, int(time.time()), body.model)
    tokens = gateway.tokens(call)
    headers = {"x-request-id": call.rid}
    try:
        if body.stream:
            # The first token is waited for, so that a refusal still has its status.
            first = await _unless_gone(request, anext(tokens))
            stream = _chunks(gateway, call, answer, first, tokens, body.include_usage)
            # A client that is gone before the first byte leaves the stream unread: the background settles it then.
            end = BackgroundTask(_settle, gateway, call, tokens, CLIENT_GONE)
            return StreamingResponse(stream, media_type="text/event-stream", headers=headers, background=end)
        text = await _unless_gone(request, _whole(call, answer, tokens))
    except BaseException as failure:
        call.sent, call.last_token = 0, None  # nothing of it leaves
        error = failure.error if isinstance(failure, Refused) else CLIENT_GONE
        await _settle(gateway, call, tokens, error)
        if isinstance(failure, Refused | ClientGone):
            raise Refused(error) from failure
        raise
    call.last_token = gateway.clock.now_us()
    gateway.end(call, None)
    gateway.answers[200] += 1
    return JSONResponse(answer.whole(text, usage(len(call.tokens), call.sent, call.cached_tokens)), headers=headers)


async def _settle(gateway: Gateway, call: Call, tokens: AsyncGenerator[int], error: RequestError | None) -> None:
    """Stop what still runs of a request and write its last row, if that was not done."""
    await tokens.aclose()
    gateway.end(call, error)


async def _unless_gone(request: HttpRequest, work: Any) -> Any:
    """The result of a coroutine, which is cancelled when the client goes away. Raises ClientGone."""
    task, left = asyncio.ensure_future(work), asyncio.create_task(gone(request))
    try:
        await asyncio.wait({task, left}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, Refused):
            await task
        raise ClientGone
    finally:
        left.cancel()


async def _whole(call: Call, answer: Answer, tokens: AsyncGenerator[int]) -> str:
    text = []
    async for token in tokens:
        text.append(answer.text(token))
        call.sent += 1
    return "".join(text) + answer.text(0, final=True)


async def _chunks(
    gateway: Gateway, call: Call, answer: Answer, first: int, tokens: AsyncGenerator[int], include_usage: bool
) -> AsyncIterator[bytes]:
    error: RequestError | None = CLIENT_GONE
    try:
        yield _leave(gateway, call, answer, first)
        async for token in tokens:
            yield _leave(gateway, call, answer, token)
        error = None
        yield answer.chunk(answer.text(0, final=True), "length")
        if include_usage:
            yield answer.usage_chunk(usage(len(call.tokens), call.sent, call.cached_tokens))
        yield b"data: [DONE]\n\n"
    except Refused as refused:
        error = refused.error
        yield sse(error.body())
    finally:
        await _settle(gateway, call, tokens, error)
        gateway.answers[error.status if error else 200] += 1


def _leave(gateway: Gateway, call: Call, answer: Answer, token: int) -> bytes:
    call.sent += 1
    call.last_token = gateway.clock.now_us()
    return answer.chunk(answer.text(token))
