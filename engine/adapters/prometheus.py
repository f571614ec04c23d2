"""Prometheus scrapes in the text format: pool sizes as configuration, queue lengths and page counts as a sample.

Invariant: a scrape carries no time of its own. It has the one in its file's name (`metrics@2026-09-14T12:00:00Z.txt`), or
none, and then stands behind everything that has one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from engine.adapters.metric_names import KNOWN, OF_THE_PROCESS, count, family
from engine.adapters.notes import Notes
from engine.adapters.observed import Identity, Observed, Said

SAMPLE = re.compile(r"(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(?P<labels>.*)\})? (?P<value>\S+)(?: \d+)?")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_CONFIG = {
    "sglang:max_total_num_tokens": "pool_tokens", "sglang:page_size": "page_tokens", "sglang:num_pages": "pool_pages",
    "sglang:context_len": "context_tokens",
}  # fmt: skip
_RUNNING = {"sglang:num_running_reqs": "running", "vllm:num_requests_running": "running"}
_WAITING = {"sglang:num_queue_reqs": "waiting", "vllm:num_requests_waiting": "waiting"}
_TOKENS = {
    "sglang:num_used_tokens": "used",
    "sglang:kv_available_tokens": "free",
    "sglang:kv_evictable_tokens": "cached",
}
_COUNTED = _RUNNING | _WAITING
_ROLES = frozenset({"unified", "prefill", "decode"})


def read_scrape(lines: Iterable[tuple[int, str]], where: str, t_us: int | None, notes: Notes) -> Iterator[Said]:
    """Rows of one scrape."""
    config: dict[str, int | None] = {}
    sample: dict[str, int | None] = {}
    tokens: dict[str, int | None] = {}
    identity: dict[str, str] = {}
    for number, line in lines:
        if not line.strip() or line.startswith("#"):
            continue
        match = SAMPLE.fullmatch(line)
        if match is None:
            notes.skip(f"{where}:{number}", "line is no Prometheus sample")
            continue
        name = family(match["name"])
        if name.startswith(OF_THE_PROCESS):
            notes.unread["metrics of the process"] += 1
            continue
        notes.take("metric sample")
        notes.know("metrics", {name}, KNOWN)
        labels = dict(_LABEL.findall(match["labels"] or ""))
        value = count(match["value"])
        if name in _CONFIG:
            config[_CONFIG[name]] = value
        elif name in _COUNTED:
            sample[_COUNTED[name]] = (sample.get(_COUNTED[name]) or 0) + (value or 0)
        elif name in _TOKENS:
            tokens[_TOKENS[name]] = value
        elif name == "vllm:cache_config_info":
            config |= {
                "page_tokens": count(labels.get("block_size", "")),
                "pool_pages": count(labels.get("num_gpu_blocks", "")),
            }
        if labels.get("engine_type") in _ROLES:
            identity["role"] = labels["engine_type"]
    if identity:
        yield Identity(identity)
    if config:
        yield Observed(None, "workers", "config", config)
    if sample or tokens:
        yield Observed(
            t_us, "gauges", "sample", {"pool": "kv", **sample, **{f"{k}_tokens": v for k, v in tokens.items()}}
        )
