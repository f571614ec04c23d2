"""A worker's HTTP door, with SGLang's routes and names, and the thread that turns its control plane.

Invariant: HTTP handlers touch the control plane only through `submit`, `abort` and the fault switches; everything
else happens in the engine thread.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

from fastapi import FastAPI, HTTPException, Response
from fastapi import Request as HttpRequest
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel, Field

from engine.config import ProcessConfig
from engine.door import VERSION
from engine.metrics import RoleCollector, render
from engine.request import GenerateRequest, RequestError
from engine.role import Ended, Event, Role, TokenLeft

log = logging.getLogger(__name__)

IDLE_WAIT, BUSY_WAIT = 0.01, 0.0005


class SamplingParams(BaseModel):
    """The part of SGLang's sampling parameters that greedy decoding knows."""

    max_new_tokens: int = Field(16, ge=1)


class GenerateBody(BaseModel):
    """`POST /generate`."""

    input_ids: list[int]
    sampling_params: SamplingParams = SamplingParams()
    rid: str = Field(min_length=1, max_length=128)
    bootstrap_room: int
    bootstrap_host: str = "127.0.0.1"
    bootstrap_port: int
    stream: bool = False


class EngineThread:
    """Turns a role's `tick` in a thread of its own and carries its events to asyncio queues."""

    def __init__(self) -> None:
        self._queues: dict[str, tuple[asyncio.AbstractEventLoop, asyncio.Queue[Event]]] = {}
        self._stop = threading.Event()
        self._wake = threading.Event()
        self.failure: BaseException | None = None
        self._thread: threading.Thread | None = None

    def start(self, role: Role, on_failure: Callable[[], None]) -> None:
        """Begin to tick. `on_failure` is called if the control plane raises: the worker must then end."""

        def run() -> None:
            try:
                while not self._stop.is_set():
                    if not role.tick():
                        self._wake.wait(BUSY_WAIT if role.running() else IDLE_WAIT)
                        self._wake.clear()
            except Exception as error:
                self.failure = error
                log.exception("the control plane failed; this worker ends")
                on_failure()

        self._thread = threading.Thread(target=run, name="engine", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stop.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join()

    def emit(self, rid: str, event: Event) -> None:
        """Called by the engine thread."""
        entry = self._queues.get(rid)
        if entry is not None:
            entry[0].call_soon_threadsafe(entry[1].put_nowait, event)

    def events(self, rid: str) -> asyncio.Queue[Event]:
        """A queue of one request's events; call before `submit`."""
        queue: asyncio.Queue[Event] = asyncio.Queue()
        self._queues[rid] = (asyncio.get_running_loop(), queue)
        return queue

    def forget(self, rid: str) -> None:
        """No more events of a request are wanted."""
        self._queues.pop(rid, None)

    def wake(self) -> None:
        """There is something to do."""
        self._wake.set()


def worker_app(role: Role, thread: EngineThread, config: ProcessConfig) -> FastAPI:
    """The routes of one worker."""
    app = FastAPI(title=config.name, docs_url=None, redoc_url=None, openapi_url=None)

    def check_hop(request: HttpRequest) -> None:
        if not hmac.compare_digest(request.headers.get("x-kvwitness-hop", ""), config.hop_key):
            raise HTTPException(401, "this door is for the gateway: the hop credential is missing or wrong")

    @app.exception_handler(HTTPException)
    async def _http_error(_: HttpRequest, error: HTTPException) -> JSONResponse:
        code = "unauthorized" if error.status_code == 401 else "bad_request"
        return JSONResponse(RequestError(error.status_code, code, str(error.detail)).body(), error.status_code)

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/server_info")
    async def server_info() -> dict[str, Any]:
        return _server_info(role, config)

    @app.get("/model_info")
    async def model_info() -> dict[str, Any]:
        name = "induction-llama"
        return {"model_path": name, "tokenizer_path": name, "served_model_name": name, "is_generation": True}

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(render(RoleCollector(role)), media_type="text/plain; version=0.0.4")

    @app.post("/generate")
    async def generate(body: GenerateBody, request: HttpRequest) -> Response:
        check_hop(request)
        given = GenerateRequest(
            body.rid, request.headers.get("x-kvwitness-tenant", "t-unknown"), body.bootstrap_room, tuple(body.input_ids),
            body.sampling_params.max_new_tokens, f"tcp://{body.bootstrap_host}:{body.bootstrap_port}",
            request.headers.get("x-kvwitness-purpose", "customer"),
        )  # fmt: skip
        queue = thread.events(body.rid)
        role.submit(given)
        thread.wake()
        if body.stream:
            return StreamingResponse(_stream(role, thread, body.rid, queue), media_type="text/event-stream")
        return await _collect(role, thread, given, queue, request)

    @app.post("/abort_request")
    async def abort_request(body: dict[str, str], request: HttpRequest) -> dict[str, str]:
        check_hop(request)
        role.abort(body["rid"])
        thread.wake()
        return {"status": "ok"}

    @app.get("/faults")
    async def faults(request: HttpRequest) -> dict[str, Any]:
        check_hop(request)
        return _fault_state(role)

    @app.post("/faults")
    async def switch_faults(body: dict[str, bool], request: HttpRequest) -> dict[str, Any]:
        check_hop(request)
        for name, on in body.items():
            try:
                role.faults.switch(name, on)
            except ValueError as error:
                raise HTTPException(400, str(error)) from error
        return _fault_state(role)

    @app.post("/faults/late-write")
    async def late_write(body: dict[str, Any], request: HttpRequest) -> dict[str, Any]:
        check_hop(request)
        role.faults.late_write.armed += int(body.get("arm", 0))
        if body.get("release"):
            role.faults.late_write.armed = 0
            transport = getattr(role, "transport", None)
            if transport is not None:
                transport.ungate()
        return _fault_state(role)

    return app


def _fault_state(role: Role) -> dict[str, Any]:
    late = role.faults.late_write
    return {"active": role.faults.active(), "late-write": {"armed": late.armed, "gated": sorted(late.gated.values())}}


def _server_info(role: Role, config: ProcessConfig) -> dict[str, Any]:
    limits = role.parts.limits
    return {
        "worker": config.name, "epoch": role.recorder.epoch, "version": VERSION, "disaggregation_mode": config.role,
        "served_model_name": "induction-llama", "model_path": "induction-llama", "tp_size": 1, "dp_size": 1,
        "disaggregation_bootstrap_port": config.wire_port, "context_length": limits.context_tokens,
        "max_total_num_tokens": limits.pool_tokens, "page_size": role.pool.page_tokens,
        "max_req_input_len": limits.prompt_limit_tokens, "ledger": config.engine.ledger,
        "defences": role.checks.defences.modes(), "faults": role.faults.active(),
    }  # fmt: skip


async def _stream(role: Role, thread: EngineThread, rid: str, queue: asyncio.Queue[Event]) -> AsyncIterator[bytes]:
    """One SSE line per token, then one that says how it ended. A client that goes away aborts the request."""
    ended = False
    try:
        while not ended:
            event = await queue.get()
            ended = isinstance(event, Ended)
            yield f"data: {json.dumps(_line(event))}\n\n".encode()
        yield b"data: [DONE]\n\n"
    finally:
        thread.forget(rid)
        if not ended:
            role.abort(rid, "the client went away")
            thread.wake()


def _line(event: Event) -> dict[str, Any]:
    if isinstance(event, TokenLeft):
        return {"token": event.token}
    error = {"status": event.error.status, **event.error.body()} if event.error else {}
    return {"ended": True, "output_tokens": event.output_tokens, **error}


async def _collect(
    role: Role, thread: EngineThread, given: GenerateRequest, queue: asyncio.Queue[Event], request: HttpRequest
) -> Response:
    """Wait for the end of a request and answer in SGLang's shape."""
    tokens: list[int] = []
    try:
        while True:
            try:
                event = await asyncio.wait_for(queue.get(), 0.2)
            except TimeoutError:
                if await request.is_disconnected():
                    role.abort(given.rid, "the client went away")
                    thread.wake()
                    return Response(status_code=499)
                continue
            if isinstance(event, TokenLeft):
                tokens.append(event.token)
            elif event.error is not None:
                return JSONResponse(event.error.body(), event.error.status)
            else:
                break
    finally:
        thread.forget(given.rid)
    text = bytes(t for t in tokens if t).decode("utf-8", errors="replace")
    meta = {
        "id": given.rid,
        "prompt_tokens": len(given.tokens),
        "completion_tokens": len(tokens),
        "finish_reason": {"type": "length"},
    }
    return JSONResponse({"text": text, "output_ids": tokens, "meta_info": meta})
