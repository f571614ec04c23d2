"""Answers of a SGLang server's `/server_info` and `/v1/loads`, kept as files.

Invariant: `max_req_input_len` is the real bound of a role and is itself refused: the longest prompt is one token shorter.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from zoneinfo import ZoneInfo

from engine.adapters.json_values import mapping, text, whole
from engine.adapters.notes import Notes
from engine.adapters.observed import Identity, Observed, Said
from engine.adapters.times import from_text, from_unix

_UTC = ZoneInfo("UTC")
_ROLES = {"prefill": "prefill", "decode": "decode", "null": "unified", None: "unified"}
_LOAD = frozenset(
    {
        "timestamp", "dp_rank", "num_running_reqs", "num_waiting_reqs", "num_waiting_uncached_tokens",
        "num_used_tokens", "num_total_tokens", "num_active_tokens", "num_prealloc_ready_tokens",
        "max_total_num_tokens", "max_running_requests", "token_usage", "gen_throughput", "cache_hit_rate",
        "utilization", "total_prefill_uncached_tokens", "total_prefill_busy_us", "decode_moments", "disaggregation",
        "queues", "memory", "speculative", "lora",
    }
)  # fmt: skip
_READ = frozenset(
    {
        "disaggregation_mode", "page_size", "context_length", "max_total_num_tokens", "max_req_input_len", "version",
        "model_path", "served_model_name", "tp_size", "pp_size", "kv_cache_dtype", "kv_canary",
        "disaggregation_enable_kv_checksum",
    }
)  # fmt: skip


def is_server_info(record: dict[str, Any]) -> bool:
    """Whether an answer is one of /server_info."""
    return "max_total_num_tokens" in record and "max_req_input_len" in record


def is_loads(record: dict[str, Any]) -> bool:
    """Whether an answer is one of /v1/loads."""
    return isinstance(record.get("loads"), list)


def read_server_info(record: dict[str, Any], notes: Notes) -> Iterator[Said]:
    """Role, version, pool and limits. The many other resolved arguments are counted as unread."""
    notes.take("server info")
    notes.unread["fields of /server_info"] += len(set(record) - _READ)
    mode = record.get("disaggregation_mode")
    identity = {
        "engine": "sglang", "role": _ROLES.get(mode) if mode is None or isinstance(mode, str) else None,
        "version": text(record.get("version")), "model": text(record.get("served_model_name")),
        "tp_size": whole(record.get("tp_size")), "pp_size": whole(record.get("pp_size")),
    }  # fmt: skip
    yield Identity({name: value for name, value in identity.items() if value is not None})
    least = whole(record.get("max_req_input_len"))
    config = {
        "pool_tokens": whole(record.get("max_total_num_tokens")), "page_tokens": whole(record.get("page_size")),
        "prompt_limit_tokens": least - 1 if least is not None else None,
        "context_tokens": whole(record.get("context_length")), "kv_format": text(record.get("kv_cache_dtype")),
        "defences": _defences(record),
    }  # fmt: skip
    yield Observed(None, "workers", "config", {name: value for name, value in config.items() if value is not None})


def _defences(record: dict[str, Any]) -> list[str] | None:
    """Checksum and canary, where the answer names them."""
    found = []
    checksum = record.get("disaggregation_enable_kv_checksum")
    if isinstance(checksum, bool):
        found.append(f"kv-checksum={'enforce' if checksum else 'off'}")
    canary = {None: "off", "none": "off", "log": "log", "raise": "enforce"}
    if "kv_canary" in record and isinstance(record["kv_canary"], str | None) and record["kv_canary"] in canary:
        found.append(f"kv-canary={canary[record['kv_canary']]}")
    return found or None


def read_loads(record: dict[str, Any], where: str, notes: Notes) -> Iterator[Said]:
    """One sample per data-parallel rank."""
    outer = record.get("timestamp")
    for index, load in enumerate(record["loads"]):
        if not isinstance(load, dict):
            notes.skip(f"{where} load {index}", "load is no object")
            continue
        notes.take("load")
        notes.know("load", set(load), _LOAD)
        stamp = load.get("timestamp", outer)
        t_us = from_unix(stamp) or from_text(stamp, _UTC)
        queues = mapping(load.get("queues"))
        sample = {
            "pool": "kv", "running": whole(load.get("num_running_reqs")),
            "waiting": whole(load.get("num_waiting_reqs", queues.get("waiting"))),
            "used_tokens": whole(load.get("num_used_tokens")),
        }  # fmt: skip
        yield Observed(t_us, "gauges", "sample", sample)
        pool = whole(load.get("max_total_num_tokens"))
        mode = mapping(load.get("disaggregation")).get("mode")
        if mode in ("prefill", "decode"):
            yield Identity({"role": mode})
        if pool is not None:
            yield Observed(None, "workers", "config", {"pool_tokens": pool})
