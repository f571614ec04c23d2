"""`kv_transfer_params` of vLLM's NIXL connector: prefill's physical block ids of one request.

Invariant: what a caller passes to decode is the caller's word; only what prefill answered or logged names prefill's
blocks.
"""

from __future__ import annotations

import ast
from typing import Any

from engine.adapters.json_values import mapping, whole
from engine.adapters.notes import Notes

KNOWN = frozenset(
    {
        "do_remote_prefill", "do_remote_decode", "remote_block_ids", "remote_engine_id", "remote_request_id",
        "remote_host", "remote_port", "tp_size", "dcp_size", "pp_size", "remote_num_tokens",
        "remote_blocks_expiry_time", "transfer_mode", "remote_prefill_cached_tokens",
        "transfer_id", "remote_bootstrap_addr", "_remote_blocks_processed",
    }
)  # fmt: skip
MOST_CHARACTERS = 1 << 20


def printed(text: str) -> dict[str, Any] | None:
    """A dictionary as Python prints it; None where it is none."""
    if len(text) > MOST_CHARACTERS:
        return None
    try:
        found = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def lease(params: object, notes: Notes) -> dict[str, Any] | None:
    """Columns of the grant that prefill gives to a reader; None where the parameters name no blocks of its own."""
    said = mapping(params)
    if not said:
        return None
    notes.know("kv_transfer_params", {str(name) for name in said}, KNOWN)
    pages = block_ids(said)
    if said.get("do_remote_prefill") is not True or not pages:
        return None
    columns: dict[str, Any] = {"dir": "pull", "src_pool": "kv", "src_pages": pages, "n": len(pages)}
    return {**columns, "tokens": whole(said.get("remote_num_tokens"))}


def block_ids(params: dict[str, Any]) -> list[int]:
    """Block ids of the first KV cache group; empty where there are none that are numbers of blocks."""
    groups = params.get("remote_block_ids")
    first = groups[0] if isinstance(groups, list | tuple) and groups and isinstance(groups[0], list | tuple) else []
    return list(first) if all(type(page) is int and 0 <= page < 1 << 31 for page in first) else []
