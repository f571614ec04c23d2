"""What every process of the engine has: its ledger with a `start` row, and a loopback door."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path

import uvicorn
from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse

from engine.clock import RealClock
from engine.config import ProcessConfig
from engine.ledger.recorder import Recorder
from engine.request import RequestError

VERSION = "0.1.0"


def open_recorder(config: ProcessConfig, clock: RealClock) -> Recorder:
    """The ledger of one process, with its `start` row."""
    recorder = Recorder(
        Path(config.engine.ledger), config.name, ordinal=config.ordinal, now_us=clock.now_us,
        digest_key=config.ledger_key.encode(),
    )  # fmt: skip
    recorder.record(
        "workers", "start", role=config.role, ordinal=config.ordinal, host=socket.gethostname(),
        model="induction-llama", build=VERSION, engine="kvwitness", version=VERSION,
    )  # fmt: skip
    recorder.flush()
    return recorder


def answer_errors_as_openai(app: FastAPI, count: Callable[[int], None] = lambda _: None) -> None:
    """Errors of the framework itself in OpenAI's shape; `count` is told the status of each."""

    @app.exception_handler(HTTPException)
    async def _http(_: Request, error: HTTPException) -> JSONResponse:
        count(error.status_code)
        code = "unauthorized" if error.status_code == HTTPStatus.UNAUTHORIZED else "bad_request"
        return JSONResponse(RequestError(error.status_code, code, str(error.detail)).body(), error.status_code)

    @app.exception_handler(RequestValidationError)
    async def _invalid(_: Request, invalid: RequestValidationError) -> JSONResponse:
        count(HTTPStatus.BAD_REQUEST)
        first = invalid.errors()[0]
        place = ".".join(str(part) for part in first["loc"][1:]) or "body"
        error = RequestError(HTTPStatus.BAD_REQUEST, "invalid_body", f"{place}: {first['msg']}")
        return JSONResponse(error.body(), error.status)


async def gone(request: Request) -> None:
    """Returns when the client of a request, whose body was read, goes away."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def serve_app(app: FastAPI, port: int) -> None:
    """Run uvicorn on loopback until SIGTERM or SIGINT."""
    # uvicorn raises the signal again once it has shut down; the ledger is still to be closed then.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    uvicorn.run(
        app, host="127.0.0.1", port=port, log_level="warning", access_log=False, timeout_graceful_shutdown=2
    )  # fmt: skip
