"""One worker process: builds the parts of a role for real time and real bytes, and serves its door."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from engine.block_pool import BlockPool
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
from engine.peer_lives import PeerLives
from engine.prefill import PrefillEngine
from engine.role import Pace, Parts, Role
from engine.server import worker_app
from engine.torch_executor import TorchExecutor
from engine.truth import TruthLog
from engine.wire import ZmqWire


def build_role(
    config: ProcessConfig, recorder: Recorder, clock: RealClock, thread: EngineThread
) -> tuple[Role, KVCachePool]:
    """Everything a role needs, wired together, and the pool file that is to be removed at the end."""
    engine = config.engine
    weights, model = load_checkpoint(Path(config.checkpoint))
    pages = engine.prefill_pages if config.role == "prefill" else engine.decode_pages
    geometry = PageGeometry(model.layers, engine.page_tokens, model.kv_heads, model.head_dim)
    memory = KVCachePool(_pool_file(config, recorder.epoch), pages, geometry, create=True)
    truth = TruthLog(Path(engine.ledger) / "truth" if engine.truth else None, config.name)
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
    executor = TorchExecutor(Llama(weights, model, engine.context_tokens + 1), memory, truth, clock.now_us)
    wire = ZmqWire(config.hop_key, clock.now_us, f"tcp://127.0.0.1:{config.wire_port}", thread.wake)
    parts = Parts(
        worker=config.name, recorder=recorder, clock=clock, executor=executor, pool=pool, limits=limits,
        memory={**memory.describe(), "epoch": recorder.epoch}, wire=wire,
        checks=Checks(defences, recorder), faults=faults, truth=truth, emit=thread.emit,
        pace=Pace(max_run_us=engine.step_run_ms * 1000),
        names={worker.wire: worker.name for worker in config.workers if worker.role == "prefill"},
    )  # fmt: skip
    role = PrefillEngine(parts, PeerLives(memory)) if config.role == "prefill" else DecodeEngine(parts)
    return role, memory


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
        role, memory = build_role(config, recorder, clock, thread)
        try:
            thread.start(role, lambda: os.kill(os.getpid(), signal.SIGTERM))
            serve_app(worker_app(role, thread, config), config.http_port)
        finally:
            thread.stop()
            role.close()
            memory.unlink()
    finally:
        recorder.close()
    if thread.failure is not None:
        raise SystemExit(1)
