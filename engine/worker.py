"""One worker process: builds the parts of a role for real time and real bytes, and serves its door."""

from __future__ import annotations

import hashlib
import hmac
import os
import signal
from pathlib import Path

from engine.block_pool import BlockPool
from engine.cached_prefix import CachedPrefix, Host
from engine.checkpoint import load_checkpoint
from engine.clock import RealClock
from engine.config import ProcessConfig
from engine.decode import DecodeEngine
from engine.defences import Checks, Defences, Limits
from engine.door import open_recorder, serve_app
from engine.engine_thread import EngineThread
from engine.faults import Faults
from engine.kv_cache import KVCachePool, PageGeometry
from engine.ledger.recorder import Recorder
from engine.model import Llama
from engine.page_keys import Scope
from engine.peer_lives import PeerLives
from engine.prefill import PrefillEngine
from engine.role import HoldPolicy, Pace, Parts, Role
from engine.server import worker_app
from engine.torch_executor import TorchExecutor
from engine.truth import TruthLog
from engine.wire import ZmqWire

SCOPES = {"user": Scope.USER, "tenant": Scope.TENANT, "organisation": Scope.ORGANISATION, "global": Scope.SHARED}


def build_role(
    config: ProcessConfig, recorder: Recorder, clock: RealClock, thread: EngineThread
) -> tuple[Role, list[KVCachePool]]:
    """Everything a role needs, wired together, and the pool files that are to be removed at the end."""
    engine = config.engine
    weights, model = load_checkpoint(Path(config.checkpoint))
    pages = engine.prefill_pages if config.role == "prefill" else engine.decode_pages
    geometry = PageGeometry(model.layers, engine.page_tokens, model.kv_heads, model.head_dim)
    path = _pool_file(config, recorder.epoch)
    memory = KVCachePool(path, pages, geometry, create=True)
    truth = TruthLog(Path(engine.ledger) / "truth" if engine.truth else None, config.name, engine.page_tokens)
    pool = BlockPool("kv", pages, engine.page_tokens, recorder)
    defences = Defences.parse(engine.defences)
    limits = Limits(config.role, pool.usable_pages * engine.page_tokens, engine.context_tokens)
    faults = Faults()
    for name in engine.faults:
        faults.switch(name, True)
    recorder.record(
        "workers", "config", pool="kv", pool_pages=pages, page_tokens=engine.page_tokens,
        page_bytes=geometry.page_bytes, kv_format="float32", layers=geometry.layers, kv_heads=geometry.kv_heads,
        head_dim=geometry.head_dim, context_tokens=engine.context_tokens,
        prompt_limit_tokens=limits.prompt_limit_tokens,
        defences=[f"{name}={mode}" for name, mode in defences.modes().items()],
    )  # fmt: skip
    host, host_memory = _host(config, recorder, path, geometry)
    executor = TorchExecutor(
        Llama(weights, model, engine.context_tokens + 1), memory, truth, clock.now_us, host_memory
    )  # fmt: skip
    checks = Checks(defences, recorder)
    wire = ZmqWire(config.hop_key, clock.now_us, f"tcp://127.0.0.1:{config.wire_port}", thread.wake)
    parts = Parts(
        worker=config.name, recorder=recorder, clock=clock, executor=executor, pool=pool, limits=limits,
        memory={**memory.describe(), "epoch": recorder.epoch}, wire=wire,
        checks=checks, faults=faults, truth=truth, emit=thread.emit, host=host,
        prefix=_prefix(config, recorder, pool, faults, checks, Host(host, executor.copy) if host is not None else None),
        pace=Pace(
            max_run_us=engine.step_run_ms * 1000, transfer_pages=engine.transfer_pages,
            reserved_tokens=engine.reserved_tokens,
        ),
        holds=HoldPolicy(engine.hold_timeout_ms * 1000, engine.on_timeout, engine.scrub),
        names={worker.wire: worker.name for worker in config.workers if worker.role == "prefill"},
    )  # fmt: skip
    role = PrefillEngine(parts, PeerLives(memory)) if config.role == "prefill" else DecodeEngine(parts)
    return role, [memory, *([host_memory] if host_memory is not None else [])]


def _prefix(
    config: ProcessConfig, recorder: Recorder, pool: BlockPool, faults: Faults, checks: Checks, host: Host | None
) -> CachedPrefix | None:
    """The prefix cache of a worker, where one is asked for; decode's has no tier."""
    prefill, engine = config.role == "prefill", config.engine
    scope = engine.prefix_cache if prefill else engine.decode_prefix_cache
    if scope == "off":
        return None
    # A key of its own: who learns the one of pseudonyms and digests cannot make cache keys with it, nor the reverse.
    secret = hmac.new(config.ledger_key.encode(), b"prefix cache keys", hashlib.sha256).digest()
    return CachedPrefix(pool, recorder, SCOPES[scope], secret, faults, checks, host if prefill else None)


def _host(
    config: ProcessConfig, recorder: Recorder, beside: Path, geometry: PageGeometry
) -> tuple[BlockPool | None, KVCachePool | None]:
    """The host pool of a worker and its memory, where one is asked for: decode retracts requests to it, prefill keeps there
    what its prefix cache evicts."""
    engine = config.engine
    if not engine.host_pages or (config.role == "prefill" and engine.prefix_cache == "off"):
        return None, None
    memory = KVCachePool(beside.with_stem(f"{beside.stem}-host"), engine.host_pages, geometry, create=True)
    recorder.record(
        "workers", "config", pool="host", pool_pages=engine.host_pages, page_tokens=engine.page_tokens,
        page_bytes=geometry.page_bytes, kv_format="float32",
    )  # fmt: skip
    return BlockPool("host", engine.host_pages, engine.page_tokens, recorder), memory


def _pool_file(config: ProcessConfig, epoch: int) -> Path:
    """A pool file of this life alone, those of former ones removed: what peers have mapped of them stays theirs."""
    begin = Path(config.memory)
    for stale in begin.parent.glob(f"{begin.name}-*.kv"):
        stale.unlink(missing_ok=True)
    return begin.with_name(f"{begin.name}-{epoch}.kv")


def run_worker(config: ProcessConfig) -> None:
    """Serve one role until told to stop; the ledger is closed and sealed on the way out."""
    clock, thread = RealClock(), EngineThread()
    recorder = open_recorder(config, clock)
    try:
        role, memories = build_role(config, recorder, clock, thread)
        try:
            thread.start(role, lambda: os.kill(os.getpid(), signal.SIGTERM))
            serve_app(worker_app(role, thread, config), config.http_port)
        finally:
            thread.stop()
            role.close()
            for memory in memories:
                memory.unlink()
    finally:
        recorder.close()
    if thread.failure is not None:
        raise SystemExit(1)
