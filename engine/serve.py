"""Starts prefill workers, decode workers and the gateway as processes, and ends them in order.

Invariant: children end with their parent; a child that is started again keeps its name, its ordinal and its ports.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from engine.checkpoint import ModelConfig, default_checkpoint
from engine.config import EngineConfig, ProcessConfig, WorkerAddress
from engine.kv_cache import PageGeometry, shared_directory
from engine.nursery import Child, Nursery, NurseryError

START_SECONDS, STOP_SECONDS = 60, 15
GATEWAY = "gateway-0"
STOP_ORDER = ("gateway", "decode", "prefill")  # whoever asks ends before those that it asks


class EngineError(Exception):
    """The engine cannot start or has ended; says what, where and what to do."""


@dataclass
class RunningEngine:
    """A started engine. `state` is what stands in `engine.json`, `children` are its processes by name."""

    state: dict[str, object]
    run_dir: Path
    memory: Path
    nursery: Nursery
    own_nursery: bool
    children: dict[str, Child] = field(default_factory=dict)

    def start(self, name: str) -> None:
        """Start a child, also again: it is a new epoch of the same worker then, at the same doors. Raises EngineError."""
        if self.own_nursery and self.nursery.ended():
            self.nursery.close()
            self.nursery = Nursery()
        try:
            self.children[name] = self.nursery.fork(self.run_dir / f"{name}.json")
        except NurseryError as error:
            raise EngineError(f"{name} did not start: {error}") from error

    def ended(self) -> dict[str, int]:
        """Exit codes of the children that have ended, by name."""
        codes = {name: child.poll() for name, child in self.children.items()}
        return {name: code for name, code in codes.items() if code is not None}

    def stop(self) -> None:
        """End the gateway first, then decode, then prefill; what does not end is killed."""
        for role in STOP_ORDER:
            group = [child for name, child in self.children.items() if name.startswith(f"{role}-")]
            for child in group:
                child.send_signal(signal.SIGTERM)
            deadline = time.monotonic() + STOP_SECONDS
            for child in group:
                if child.wait(max(deadline - time.monotonic(), 0)) is None:
                    child.kill()
                    child.wait()
        if self.own_nursery:
            self.nursery.close()
        shutil.rmtree(self.memory, ignore_errors=True)


def start_engine(config: EngineConfig, nursery: Nursery | None = None) -> RunningEngine:
    """Start all processes and wait until they are healthy. Raises EngineError.

    A `nursery` that several engines share stays open when one is stopped; without it the engine has its own."""
    run_dir = Path(config.run_dir)
    _make_directories(run_dir, Path(config.ledger))
    gateway_port, workers = _addresses(config)
    children = _children(config, gateway_port, workers)
    gateway = f"http://127.0.0.1:{gateway_port}"
    state: dict[str, object] = {
        "gateway": gateway, "prefill": [w.url for w in workers if w.role == "prefill"],
        "decode": [w.url for w in workers if w.role == "decode"], "ledger": config.ledger,
        "api_keys": config.tenants, "hop_key_file": str(run_dir / "hop.key"), "pid": os.getpid(),
    }  # fmt: skip
    running = RunningEngine(state, run_dir, Path(children[0].memory).parent, nursery or Nursery(), nursery is None)
    try:
        for child in children:
            child.save(run_dir / f"{child.name}.json")
        for worker in workers:
            running.start(worker.name)
        _wait_healthy(running, [worker.url for worker in workers])
        running.start(GATEWAY)
        _wait_healthy(running, [gateway])
    except BaseException:
        running.stop()
        raise
    (run_dir / "engine.json").touch(mode=0o600)
    (run_dir / "engine.json").write_text(json.dumps(state, indent=1) + "\n")
    return running


def _make_directories(run_dir: Path, ledger: Path) -> None:
    for place, mode in ((run_dir, 0o700), (ledger, 0o755)):
        try:
            place.mkdir(mode, parents=True, exist_ok=True)
        except OSError as error:
            raise EngineError(f"{place}: {error.strerror}; name a directory that can be made or written") from error
    os.chmod(run_dir, 0o700)


def _addresses(config: EngineConfig) -> tuple[int, list[WorkerAddress]]:
    """The gateway's port and where the workers will be reached. Raises EngineError where a port is in use."""
    names = [
        (f"{role}-{index}", role)
        for role, count in (("prefill", config.prefill_workers), ("decode", config.decode_workers))
        for index in range(count)
    ]
    gateway, *ports = _free_ports([config.port] + [0] * (2 * len(names)))
    doors, wires = ports[::2], ports[1::2]
    return gateway, [
        WorkerAddress(name, role, f"http://127.0.0.1:{door}", wire)
        for (name, role), door, wire in zip(names, doors, wires, strict=True)
    ]


def _free_ports(wanted: Iterable[int]) -> list[int]:
    """Loopback ports, all different, 0 = any free one. Raises EngineError where a wanted one is in use."""
    with contextlib.ExitStack() as held:
        ports = []
        for port in wanted:
            probe = held.enter_context(socket.socket())
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError as error:
                words = f"port {port} on 127.0.0.1: {error.strerror}; choose another with --port, or 0"
                raise EngineError(words) from error
            ports.append(int(probe.getsockname()[1]))
        return ports


def _children(config: EngineConfig, gateway_port: int, workers: list[WorkerAddress]) -> list[ProcessConfig]:
    """The configuration of every process, the gateway's first; ordinals count up from its 0."""
    run_dir = Path(config.run_dir)
    hop_key = secrets.token_urlsafe(32)
    (run_dir / "hop.key").touch(mode=0o600)
    (run_dir / "hop.key").write_text(hop_key)
    ledger_key = _ledger_key(run_dir)
    checkpoint, model = default_checkpoint(run_dir), ModelConfig()
    geometry = PageGeometry(model.layers, config.page_tokens, model.kv_heads, model.head_dim)
    tier_pages = 0 if config.prefix_cache == "off" else config.host_pages
    pages = config.prefill_workers * (config.prefill_pages + tier_pages)
    pages += config.decode_workers * (config.decode_pages + config.host_pages)
    memory = shared_directory(pages * geometry.stored_bytes)
    parts = [(GATEWAY, "gateway", gateway_port, 0)] + [
        (worker.name, worker.role, int(worker.url.rpartition(":")[2]), worker.wire_port) for worker in workers
    ]
    return [
        ProcessConfig(
            engine=config, role=role, name=name, ordinal=ordinal, http_port=port, wire_port=wire, workers=tuple(workers),
            memory=str(memory / name), checkpoint=str(checkpoint), hop_key=hop_key, ledger_key=ledger_key,
        )
        for ordinal, (name, role, port, wire) in enumerate(parts)
    ]  # fmt: skip


def _ledger_key(run_dir: Path) -> str:
    """The key of pseudonyms and digests: made once per run directory, so that restarts keep them comparable."""
    path = run_dir / "ledger.key"
    if not path.exists():
        path.touch(mode=0o600)
        path.write_text(secrets.token_urlsafe(32))
    return path.read_text()


def _wait_healthy(running: RunningEngine, urls: list[str]) -> None:
    deadline = time.monotonic() + START_SECONDS
    waiting = list(urls)
    with httpx.Client(timeout=1, trust_env=False) as client:
        while waiting:
            for name, code in running.ended().items():
                raise EngineError(
                    f"the engine did not start: {name} ended with exit code {code}; its messages are above"
                )
            if time.monotonic() > deadline:
                raise EngineError(f"the engine did not start: {waiting[0]} is not healthy after {START_SECONDS} s")
            try:
                if client.get(f"{waiting[0]}/health").status_code == 200:
                    waiting.pop(0)
                    continue
            except httpx.HTTPError:
                pass
            time.sleep(0.05)
