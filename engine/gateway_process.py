"""The gateway as a process: its ledger and its door."""

from __future__ import annotations

from engine.clock import RealClock
from engine.config import ProcessConfig
from engine.door import open_recorder, serve_app
from engine.gateway import Gateway
from engine.gateway_app import gateway_app


def run_gateway(config: ProcessConfig) -> None:
    """Serve until told to stop; the ledger is closed and sealed on the way out."""
    clock = RealClock()
    recorder = open_recorder(config, clock)
    try:
        serve_app(gateway_app(Gateway(config, recorder, clock)), config.http_port)
    finally:
        recorder.close()
