"""Where the vLLM recorder attaches: functions of the process that schedules, in vLLM 0.32.

Invariant: all of them run in the scheduler's one thread, and what they are given is what the workers are given: the
block table of a pass stands in the scheduler's output, the blocks of a pull in the connector's parameters.
"""

from __future__ import annotations

from functools import partial

from engine.adapters.hooks import AFTER, BEFORE, Hook

_at = partial(Hook, since="0.32.0", root="vllm.")
_SCHEDULER, _MANAGER = "v1.core.sched.scheduler.Scheduler.", "v1.core.kv_cache_manager.KVCacheManager."
_PULL = "distributed.kv_transfer.kv_connector.v1.nixl.pull_scheduler.NixlPullConnectorScheduler."

HOOKS: tuple[Hook, ...] = (
    _at("begin", _SCHEDULER + "__init__", AFTER, ("self",), "workers"),
    _at("received", _SCHEDULER + "add_request", AFTER, ("self", "request"), "requests"),
    _at("scheduled", _SCHEDULER + "schedule", AFTER, ("self",), "pages"),
    _at("passed", _SCHEDULER + "update_from_output", BEFORE, ("self", "scheduler_output", "model_runner_output"), "steps"),
    _at("ended", _SCHEDULER + "_free_request", AFTER, ("self", "request"), "requests"),
    _at("moved", _SCHEDULER + "_update_from_kv_xfer_finished", BEFORE, ("self", "kv_connector_output"), "transfers"),
    _at("stopped", "v1.engine.core.EngineCore.shutdown", BEFORE, ("self",), "workers"),
    _at("freed", _MANAGER + "free", BEFORE, ("self", "request"), "pages"),
    _at("freed_later", _MANAGER + "pop_blocks_for_free", BEFORE, ("self", "request"), "pages"),
    _at(
        "filed", "v1.core.block_pool.BlockPool.cache_full_blocks", AFTER,
        ("self", "request", "blocks", "num_cached_blocks", "num_full_blocks"), "cache",
    ),
    _at("asked", _PULL + "update_state_after_alloc", BEFORE, ("self", "request", "blocks", "num_external_tokens"), "transfers", "nixl"),
)  # fmt: skip
