"""Integrity of pages: check modes, headers and digests.

Invariant: a digest is XXH3-64 (seed 0) of the whole payload; 0 in a header means that none was computed.
"""

from __future__ import annotations

from enum import StrEnum

import numpy as np
import xxhash

from engine.executor import TagMismatch
from engine.kv_cache import KVCachePool


class CheckMode(StrEnum):
    """What a failed check does: nothing is checked, it is told, or the request fails with a typed error."""

    OFF = "off"
    LOG = "log"
    ENFORCE = "enforce"


def page_digest(pool: KVCachePool, page: int) -> int:
    """XXH3-64 of a page's payload as an unsigned integer."""
    return xxhash.xxh3_64_intdigest(np.ascontiguousarray(pool.payload[page]))


def stamp_headers(pool: KVCachePool, pages: np.ndarray, tags: np.ndarray, start: int, stop: int) -> None:
    """Say in the headers that slots [start, stop) of a block table were written under `tags`."""
    page_tokens = pool.geometry.page_tokens
    for index in range(start // page_tokens, -(-stop // page_tokens)):
        header = pool.headers[pages[index] : pages[index] + 1]
        tokens = min(stop - index * page_tokens, page_tokens)
        if header["tag"][0] != tags[index]:
            header["tag"], header["tokens"] = tags[index], 0
        header["digest"], header["tokens"] = 0, max(int(header["tokens"][0]), tokens)


def check_tags(pool: KVCachePool, pages: np.ndarray, tags: np.ndarray, kv_tokens: int) -> tuple[TagMismatch, ...]:
    """Pages of a block table whose header has another tag, or fewer tokens, than a read of [0, kv_tokens) needs."""
    page_tokens = pool.geometry.page_tokens
    count = -(-kv_tokens // page_tokens)
    headers = pool.headers[pages[:count]]
    needed = np.minimum(kv_tokens - np.arange(count) * page_tokens, page_tokens)
    wrong = np.flatnonzero((headers["tag"] != tags[:count]) | (headers["tokens"] < needed))
    return tuple(TagMismatch(int(pages[i]), int(i), int(tags[i]), int(headers["tag"][i])) for i in wrong)
