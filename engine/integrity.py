"""Integrity of pages: check modes, headers and digests.

Invariant: a header never claims more than was written under its tag, and a page is as expected only if no remote
write to it is under way. A digest is XXH3-64 (seed 0) of the whole payload as a signed integer; 0 in a header means
that none was computed.
"""

from __future__ import annotations

from collections.abc import Iterable
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
    """XXH3-64 of a page's payload as an int64, never 0."""
    digest = xxhash.xxh3_64_intdigest(pool.payload[page].data)
    return (digest - (digest >> 63 << 64)) or 1


def seal_pages(pool: KVCachePool, pages: Iterable[int]) -> None:
    """Put the digest of each page into its header: its content is complete."""
    for page in pages:
        pool.headers["digest"][page] = page_digest(pool, page)


def digest_mismatches(pool: KVCachePool, pages: np.ndarray) -> tuple[int, ...]:
    """Those of `pages` (places in the list) whose payload is not what the digest in their header says."""
    digests = pool.headers["digest"]
    return tuple(i for i, page in enumerate(pages) if digests[page] != 0 and digests[page] != page_digest(pool, page))


def stamp_headers(pool: KVCachePool, pages: np.ndarray, tags: np.ndarray, start: int, stop: int) -> None:
    """Say in the headers that slots [start, stop) of a block table were written under `tags`.

    A page taken up in its middle must already be the writer's own up to there; else its header keeps its tag, and the
    tokens before these, so that neither the writer nor the page's owner takes the whole for its own.
    """
    page_tokens, headers = pool.geometry.page_tokens, pool.headers
    for index in range(start // page_tokens, -(-stop // page_tokens)):
        page, first = pages[index], max(start - index * page_tokens, 0)
        if first == 0:
            headers["tag"][page] = tags[index]
        elif headers["tag"][page] != tags[index]:
            headers["tokens"][page] = min(headers["tokens"][page], first)
            continue
        elif headers["tokens"][page] < first:
            continue
        headers["digest"][page], headers["tokens"][page] = 0, min(stop - index * page_tokens, page_tokens)


def check_tags(pool: KVCachePool, pages: np.ndarray, tags: np.ndarray, kv_tokens: int) -> tuple[TagMismatch, ...]:
    """Pages of a block table that a read of [0, kv_tokens) must not have used.

    They have another tag, or fewer tokens than are needed, or a remote write to them is under way. To be called after
    the content was gathered.
    """
    page_tokens, headers = pool.geometry.page_tokens, pool.headers
    read = pages[: -(-kv_tokens // page_tokens)]
    # A writer opens, writes, tags and closes. Looked at in this order, a write that touched the content shows in one
    # of the two: still open, or its tag in place.
    under_way = headers["opened"][read] != headers["closed"][read]
    found = headers["tag"][read]
    needed = np.minimum(kv_tokens - np.arange(len(read)) * page_tokens, page_tokens)
    wrong = np.flatnonzero(under_way | (found != tags[: len(read)]) | (headers["tokens"][read] < needed))
    return tuple(TagMismatch(int(pages[i]), int(i), int(tags[i]), int(found[i])) for i in wrong)
