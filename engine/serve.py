"""`engine serve`: starts prefill, decode and gateway as processes, watches them, and ends them in order.

Invariant: children end with their parent; a child that ends by itself ends the engine, with words.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from engine.config import EngineConfig, ProcessConfig
from engine.kv_cache import PageGeometry, shared_directory

START_SECONDS, STOP_SECONDS = 60, 15
ROLES = ("prefill", "decode", "gateway")


class EngineError(Exception):
    """The engine cannot start or has ended; says what, where and what to do."""


def free_port(wanted: int = 0) -> int:
    """A free loopback port. Raises EngineError where `wanted` is in use."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", wanted))
        except OSError as error:
            raise EngineError(
                f"port {wanted} on 127.0.0.1: {error.strerror}; choose another with --port, or 0"
            ) from error
        return int(probe.getsockname()[1])


@dataclass
class RunningEngine:
    """A started engine. `state` is what stands in `engine.json`."""

    state: dict[str, object]
    children: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    memory: Path | None = None

    def failed(self) -> str | None:
        """Name and exit code of a child that has ended, if one has."""
        for name, child in self.children.items():
            if child.poll() is not None:
                return f"{name} ended with exit code {child.returncode}; its messages are above"
        return None

    def stop(self) -> None:
        """End the gateway first, then the workers; what does not end is killed."""
        for name in ("gateway-0", "decode-0", "prefill-0"):
            child = self.children.get(name)
            if child is not None and child.poll() is None:
                child.send_signal(signal.SIGTERM)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(STOP_SECONDS)
                if child.poll() is None:
                    child.kill()
                    child.wait()
        if self.memory is not None:
            shutil.rmtree(self.memory, ignore_errors=True)


def start_engine(config: EngineConfig) -> RunningEngine:
    """Start all processes and wait until they are healthy. Raises EngineError."""
    run_dir = Path(config.run_dir)
    for place, mode in ((run_dir, 0o700), (Path(config.ledger), 0o755)):
        try:
            place.mkdir(mode, parents=True, exist_ok=True)
        except OSError as error:
            raise EngineError(f"{place}: {error.strerror}; name a directory that can be made or written") from error
    os.chmod(run_dir, 0o700)
    ports = {role: free_port(config.port if role == "gateway" else 0) for role in ROLES}
    wires = {role: free_port() for role in ROLES}
    urls = {role: f"http://127.0.0.1:{port}" for role, port in ports.items()}
    hop_key = secrets.token_urlsafe(32)
    (run_dir / "hop.key").touch(mode=0o600)
    (run_dir / "hop.key").write_text(hop_key)
    from engine.checkpoint import ModelConfig, default_checkpoint  # noqa: PLC0415  torch: only where it is needed

    checkpoint, model = default_checkpoint(run_dir), ModelConfig()
    geometry = PageGeometry(model.layers, config.page_tokens, model.kv_heads, model.head_dim)
    memory = shared_directory((config.prefill_pages + config.decode_pages) * geometry.stored_bytes)
    state: dict[str, object] = {
        "gateway": urls["gateway"], "prefill": [urls["prefill"]], "decode": [urls["decode"]], "ledger": config.ledger,
        "api_keys": config.tenants, "hop_key_file": str(run_dir / "hop.key"), "pid": os.getpid(),
    }  # fmt: skip
    running = RunningEngine(state, memory=memory)
    ledger_key = _ledger_key(run_dir)
    try:
        for ordinal, role in enumerate(("gateway", "prefill", "decode")):
            name = f"{role}-0"
            child = ProcessConfig(
                engine=config, role=role, name=name, ordinal=ordinal, http_port=ports[role], wire_port=wires[role],
                prefill_url=urls["prefill"], decode_url=urls["decode"],
                prefill_wire=f"tcp://127.0.0.1:{wires['prefill']}", memory=str(memory / f"{name}.kv"),
                checkpoint=str(checkpoint), hop_key=hop_key, ledger_key=ledger_key,
            )  # fmt: skip
            child.save(run_dir / f"{name}.json")
        for role in ROLES:
            running.children[f"{role}-0"] = _spawn(run_dir / f"{role}-0.json")
            if role != "prefill":
                _wait_healthy(running, [urls[r] for r in ROLES[: ROLES.index(role) + 1]])
    except BaseException:
        running.stop()
        raise
    (run_dir / "engine.json").touch(mode=0o600)
    (run_dir / "engine.json").write_text(json.dumps(state, indent=1) + "\n")
    return running


def _ledger_key(run_dir: Path) -> str:
    """The key of pseudonyms and digests: made once per run directory, so that restarts keep them comparable."""
    path = run_dir / "ledger.key"
    if not path.exists():
        path.touch(mode=0o600)
        path.write_text(secrets.token_urlsafe(32))
    return path.read_text()


def _spawn(config: Path) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "engine.child", str(config)], env=environment, stdin=subprocess.DEVNULL
    )


def _wait_healthy(running: RunningEngine, urls: list[str]) -> None:
    deadline = time.monotonic() + START_SECONDS
    waiting = list(urls)
    while waiting:
        failure = running.failed()
        if failure is not None:
            raise EngineError(f"the engine did not start: {failure}")
        if time.monotonic() > deadline:
            raise EngineError(f"the engine did not start: {waiting[0]} is not healthy after {START_SECONDS} s")
        try:
            if httpx.get(f"{waiting[0]}/health", timeout=1).status_code == 200:
                waiting.pop(0)
                continue
        except httpx.HTTPError:
            pass
        time.sleep(0.05)
