"""Keyed digests: what the ledger may hold of KV bytes.

A plain digest of KV confirms a guessed prompt to whoever holds the ledger, so every XXH3-64 is keyed before it
is written.
"""

from __future__ import annotations

import hashlib


def key_digest(key: bytes, xxh3: int) -> int:
    """BLAKE2b of the 8 digest bytes under `key` (1 to 64 bytes), as a signed 64-bit integer."""
    raw = hashlib.blake2b((xxh3 & (1 << 64) - 1).to_bytes(8, "little"), digest_size=8, key=key).digest()
    return int.from_bytes(raw, "little", signed=True)
