"""Additive fingerprint of a page set under a tag: sum of splitmix64(page + splitmix64(tag)) mod 2^63.

Additive, so that the fingerprint of a whole list is the sum of its slices'. SplitMix64 is Steele, Lea and
Flood, OOPSLA 2014.
"""

from __future__ import annotations

import numpy as np

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX2 = np.uint64(0x94D049BB133111EB)
_MASK63 = np.uint64((1 << 63) - 1)


def splitmix64(values: np.ndarray) -> np.ndarray:
    """SplitMix64's output function on uint64 `values`, any shape."""
    with np.errstate(over="ignore"):
        z = values + _GOLDEN
        z = (z ^ (z >> np.uint64(30))) * _MIX1
        z = (z ^ (z >> np.uint64(27))) * _MIX2
    return z ^ (z >> np.uint64(31))


def fingerprints(pages: np.ndarray, lengths: np.ndarray, tags: np.ndarray) -> np.ndarray:
    """Fingerprints (int64 [k]) of k lists end to end in `pages` (int32); `lengths` [k], each > 0; `tags` int64 [k]."""
    salts = splitmix64(tags.astype(np.uint64))
    with np.errstate(over="ignore"):
        mixed = splitmix64(pages.astype(np.uint64) + np.repeat(salts, lengths))
        starts = np.cumsum(lengths) - lengths
        totals = np.add.reduceat(mixed, starts, dtype=np.uint64)
    return (totals & _MASK63).astype(np.int64)


def fingerprint(pages: np.ndarray, tag: int) -> int:
    """Fingerprint of `pages` (int32 [n]) under `tag`, in [0, 2^63)."""
    if not len(pages):
        return 0
    return int(fingerprints(pages, np.array([len(pages)]), np.array([tag], np.int64))[0])
