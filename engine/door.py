"""What every process of the engine has: its ledger with a `start` row, and a loopback door."""

from __future__ import annotations

import signal
import socket
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from engine.clock import RealClock
from engine.config import ProcessConfig
from engine.ledger.recorder import Recorder

VERSION = "0.1.0"


def open_recorder(config: ProcessConfig, clock: RealClock) -> Recorder:
    """The ledger of one process, with its `start` row."""
    recorder = Recorder(
        Path(config.engine.ledger), config.name, ordinal=config.ordinal, now_us=clock.now_us,
        digest_key=config.ledger_key.encode(),
    )  # fmt: skip
    recorder.record(
        "workers", "start", role=config.role, ordinal=config.ordinal, host=socket.gethostname(), model="induction-llama",
        build=VERSION, engine="kvwitness", version=VERSION,
    )  # fmt: skip
    recorder.flush()
    return recorder


def serve_app(app: FastAPI, port: int) -> None:
    """Run uvicorn on loopback until SIGTERM or SIGINT."""
    # uvicorn raises the signal again once it has shut down; the ledger is still to be closed then.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    uvicorn.run(
        app, host="127.0.0.1", port=port, log_level="warning", access_log=False, timeout_graceful_shutdown=2
    )  # fmt: skip
