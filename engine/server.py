"""A worker's HTTP door, with SGLang's routes and names.

Invariant: handlers touch the control plane only through `submit`, `abort`, `pause` and the fault switches; everything
else happens in the engine thread, an audit too. What changes anything needs the hop credential. A request whose client has gone is
aborted, however far its answer had come.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Response
from fastapi import Request as HttpRequest
from fastapi.responses import JSONResponse, StreamingResponse
from starlette.background import BackgroundTask

from engine.config import ProcessConfig
from engine.door import VERSION, answer_errors_as_openai, gone
from engine.engine_thread import EngineThread, RequestIdInUse
from engine.fault_door import HopCheck, gate_route, hop_check, switch_routes
from engine.metrics import RoleCollector, render
from engine.request import GenerateRequest, RequestError
from engine.role import Ended, Event, Role, TokenLeft
from engine.sglang_api import AbortBody, GenerateAnswer, GenerateBody

MODEL_NAME = "induction-llama"
CLIENT_CLOSED_REQUEST = 499


def worker_app(role: Role, thread: EngineThread, config: ProcessConfig) -> FastAPI:
    """The routes of one worker."""
    app = FastAPI(title=config.name, docs_url=None, redoc_url=None, openapi_url=None)
    answer_errors_as_openai(app)
    check_hop = hop_check(config.hop_key)
    _info_routes(app, role, config)
    _generate_routes(app, role, thread, check_hop)
    _audit_route(app, role, thread, check_hop)
    switch_routes(app, role.faults, check_hop)
    gate_route(app, role.faults, check_hop, role.release_writes)
    return app


def _info_routes(app: FastAPI, role: Role, config: ProcessConfig) -> None:
    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/server_info")
    async def server_info() -> dict[str, Any]:
        return _server_info(role, config)

    @app.get("/model_info")
    async def model_info() -> dict[str, Any]:
        return {
            "model_path": MODEL_NAME, "tokenizer_path": MODEL_NAME, "served_model_name": MODEL_NAME,
            "is_generation": True,
        }  # fmt: skip

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(render(RoleCollector(role)), media_type="text/plain; version=0.0.4")


def _generate_routes(app: FastAPI, role: Role, thread: EngineThread, check_hop: HopCheck) -> None:
    @app.post("/generate")
    async def generate(body: GenerateBody, request: HttpRequest) -> Response:
        check_hop(request)
        given = body.request(request.headers)
        try:
            queue = thread.listen(given.rid)
        except RequestIdInUse:
            error = RequestError(HTTPStatus.CONFLICT, "request_id_in_use", f"request id {given.rid} is in use")
            return JSONResponse(error.body(), error.status)
        role.submit(given)
        thread.wake()
        answer = GenerateAnswer(given)
        waiting = _Waiting(role, thread, given, queue)
        if body.stream:
            # A client that is gone before the first byte leaves the stream unread: the background settles it then.
            settle = BackgroundTask(waiting.settle)
            return StreamingResponse(_stream(waiting, answer), media_type="text/event-stream", background=settle)
        return await _collect(waiting, answer, request)

    @app.post("/abort_request")
    async def abort_request(body: AbortBody, request: HttpRequest) -> dict[str, str | int]:
        check_hop(request)
        after = thread.abort(role, body.rid, "aborted by the client", body.bootstrap_room)
        return {"status": "ok", "after_pass": after}

    @app.post("/pause_generation")
    async def pause_generation(request: HttpRequest) -> dict[str, str]:
        check_hop(request)
        role.pause(True)
        thread.wake()
        return {"status": "ok"}

    @app.post("/continue_generation")
    async def continue_generation(request: HttpRequest) -> dict[str, str]:
        check_hop(request)
        role.pause(False)
        thread.wake()
        return {"status": "ok"}


def _audit_route(app: FastAPI, role: Role, thread: EngineThread, check_hop: HopCheck) -> None:
    @app.post("/audit")
    async def audit(request: HttpRequest) -> dict[str, Any]:
        check_hop(request)
        found: dict[str, Any] = await thread.call(lambda: _audited(role))
        return found


def _audited(role: Role) -> dict[str, Any]:
    """Every pool of a worker accounted for, page by page. In the engine thread."""
    role.runs.close()
    pools = {
        name: {"counts": one.counts, "wrong": one.wrong, "findings": [asdict(fact) for fact in one.findings]}
        for name, one in role.audit().items()
    }
    prefix = role.parts.prefix
    tiers = [prefix.tree, prefix.tier] if prefix is not None else []
    wrong = [words for tier in tiers if tier is not None for words in tier.audit()]
    return {"worker": role.parts.worker, "pools": pools, "cache": wrong}


def _server_info(role: Role, config: ProcessConfig) -> dict[str, Any]:
    limits = role.parts.limits
    return {
        "worker": config.name, "epoch": role.recorder.epoch, "version": VERSION, "disaggregation_mode": config.role,
        "served_model_name": MODEL_NAME, "model_path": MODEL_NAME, "tp_size": 1, "dp_size": 1, "stream_output": True,
        "disaggregation_bootstrap_port": config.wire_port, "context_length": limits.context_tokens,
        "max_total_num_tokens": limits.pool_tokens, "page_size": role.pool.page_tokens,
        "max_req_input_len": limits.prompt_limit_tokens, "ledger": config.engine.ledger,
        "defences": role.checks.defences.modes(), "faults": role.faults.active(),
        "paused": role.paused,
    }  # fmt: skip


@dataclass
class _Waiting:
    """Somebody who waits for a request's events."""

    role: Role
    thread: EngineThread
    given: GenerateRequest
    queue: asyncio.Queue[Event]
    settled: bool = False

    async def next(self) -> Event:
        """The next event; with `Ended` the waiting is over."""
        event = await self.queue.get()
        if isinstance(event, Ended):
            self.settled = True
            self.thread.forget(self.given.rid)
        return event

    async def settle(self) -> None:
        """Wait no more; what has not ended is aborted."""
        if not self.settled:
            self.settled = True
            self.thread.forget(self.given.rid)
            self.thread.abort(self.role, self.given.rid, "the client went away", self.given.room)


async def _stream(waiting: _Waiting, answer: GenerateAnswer) -> AsyncIterator[bytes]:
    """One SSE line per token, then one that says how it ended."""
    try:
        while not waiting.settled:
            event = await waiting.next()
            yield answer.token(event) if isinstance(event, TokenLeft) else answer.last(event)
        yield b"data: [DONE]\n\n"
    finally:
        await waiting.settle()


async def _collect(waiting: _Waiting, answer: GenerateAnswer, request: HttpRequest) -> Response:
    """Wait for the end of a request and answer in one piece."""
    left = asyncio.create_task(gone(request))
    try:
        while True:
            event_task = asyncio.create_task(waiting.next())
            await asyncio.wait({event_task, left}, return_when=asyncio.FIRST_COMPLETED)
            if not event_task.done():
                event_task.cancel()
                return Response(status_code=CLIENT_CLOSED_REQUEST)
            event = event_task.result()
            if isinstance(event, TokenLeft):
                answer.token(event)
            elif event.error is not None:
                return JSONResponse(event.error.body(), event.error.status)
            else:
                return JSONResponse(answer.whole(event))
    finally:
        left.cancel()
        await waiting.settle()
