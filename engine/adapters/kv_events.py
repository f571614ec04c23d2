"""KV event batches of SGLang and vLLM: msgpack payloads to cache rows.

Invariant: an event tells which content was stored or removed under which hash and in which tier, and nothing else: no
page, no request. Hashes are signed 64-bit numbers here, whichever way an engine writes them; token ids are never kept,
and salts only under a key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgpack

from engine.adapters.keyed import Keyed
from engine.adapters.notes import Notes
from engine.adapters.observed import Observed
from engine.adapters.times import from_unix

STORED, REMOVED, CLEARED = "BlockStored", "BlockRemoved", "AllBlocksCleared"
POSITIONS = {
    STORED: (
        "block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name", "extra_keys",
    ),
    REMOVED: ("block_hashes", "medium"),
    CLEARED: (),
}  # fmt: skip
"""Places of fields in the positional layout of older releases, behind the name of the event."""

_BOTH = {"type", "block_hashes", "medium", "group_idx", "locality", "ownership"}
KNOWN = {
    STORED: frozenset(
        _BOTH
        | {"parent_block_hash", "token_ids", "block_size", "lora_id", "lora_name", "extra_keys", "cache_salt"}
        | {"session_id", "kv_cache_spec_kind", "kv_cache_spec_sliding_window"}
    ),
    REMOVED: frozenset(_BOTH),
    CLEARED: frozenset({"type"}),
}
_MASK, _HALF = (1 << 64) - 1, 1 << 63


class BadEvent(ValueError):
    """An event or batch that is not in a known layout; says what is wrong with it."""


def read_batch(payload: bytes, where: str, keyed: Keyed, notes: Notes) -> Iterator[Observed]:
    """The rows of one batch `[ts, events, rank]`; what is bad in it is counted and the rest is read."""
    try:
        batch = msgpack.unpackb(payload, raw=False, strict_map_key=False)
    except Exception as error:  # the library raises many kinds for bytes of any kind
        notes.skip(where, f"KV event batch is no msgpack: {type(error).__name__}")
        return
    yield from read_decoded_batch(batch, where, keyed, notes)


def read_decoded_batch(batch: object, where: str, keyed: Keyed, notes: Notes) -> Iterator[Observed]:
    """The rows of a batch that is decoded already."""
    if not isinstance(batch, list) or not 2 <= len(batch) <= 3 or not isinstance(batch[1], list):
        notes.skip(where, "KV event batch is not [time, events, rank]")
        return
    t_us = from_unix(batch[0])
    if t_us is None:
        notes.skip(where, "KV event batch without a Unix time")
        return
    for index, event in enumerate(batch[1]):
        try:
            row = _row(_fields(event, notes), t_us, keyed)
        except BadEvent as error:
            notes.skip(f"{where} event {index}", str(error))
            continue
        notes.take("KV event")
        yield row


def _fields(event: object, notes: Notes) -> Mapping[str, Any]:
    """The event's fields by name, from either layout."""
    if isinstance(event, dict):
        kind = event.get("type")
        named: Mapping[str, Any] = event
    elif isinstance(event, list) and event:
        kind = event[0]
        places = POSITIONS.get(kind, ()) if isinstance(kind, str) else ()
        named = {"type": kind, **dict(zip(places, event[1:], strict=False))}
        named = {**named, **{f"[{place}]": None for place in range(len(places) + 1, len(event))}}
    else:
        raise BadEvent("KV event is neither a map nor an array")
    if not isinstance(kind, str) or kind not in KNOWN:
        raise BadEvent("KV event of an unknown type")
    notes.know(kind, {str(name) for name in named}, KNOWN[kind])
    return named


def _row(event: Mapping[str, Any], t_us: int, keyed: Keyed) -> Observed:
    kind = event["type"]
    if kind == CLEARED:
        return Observed(t_us, "cache", "evict", {"keys": None, "n": None})
    hashes = event.get("block_hashes")
    if not isinstance(hashes, list):
        raise BadEvent(f"{kind} without block_hashes")
    columns: dict[str, Any] = {"tier": _text(event.get("medium")), "keys": [signed_hash(h) for h in hashes]}
    columns["n"] = len(hashes)
    if kind == REMOVED:
        return Observed(t_us, "cache", "evict", columns)
    salt = event.get("cache_salt") or _salt_of(event.get("extra_keys"))
    columns["salt_fp"] = keyed.number(str(salt)) if salt else None
    columns["adapter"] = _text(event.get("lora_name")) or _text(event.get("lora_id"))
    return Observed(t_us, "cache", "insert", columns)


def _salt_of(extra_keys: object) -> str | None:
    """What the first block's keys hold beside its tokens: vLLM does not say which of them is the salt."""
    if not isinstance(extra_keys, Sequence) or isinstance(extra_keys, str) or not extra_keys or not extra_keys[0]:
        return None
    return repr(extra_keys[0])


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def signed_hash(value: object) -> int:
    """A block's hash as a signed 64-bit number. Raises BadEvent."""
    if isinstance(value, bytes) and value:
        value = int.from_bytes(value, "big")  # its low 64 bits are what the integer form publishes
    elif isinstance(value, bool) or not isinstance(value, int):
        raise BadEvent("block hash is neither a number nor bytes")
    low = value & _MASK
    return low - (1 << 64) if low >= _HALF else low
