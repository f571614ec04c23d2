"""Prompts without token arrays: what is equal, where, and its digest.

Invariant: token k of a segment (seed, length) is a function of (seed, k) alone, and two prompts with the same first n
tokens have the same digests of them, whatever follows.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from engine.ledger.fingerprint import splitmix64

_MASK64 = (1 << 64) - 1


class SyntheticPrompt:
    """Segments (seed, length) end to end; stands in for `GenerateRequest.tokens`. Immutable; equal where the tokens
    are. Raises ValueError where a length is negative."""

    __slots__ = ("_length", "segments")

    def __init__(self, segments: Iterable[tuple[int, int]]) -> None:
        self.segments = tuple([segment for segment in segments if segment[1]])
        self._length = sum([length for _, length in self.segments])
        if any([length < 0 for _, length in self.segments]):
            raise ValueError(f"a segment of negative length in {self.segments}")

    def __len__(self) -> int:
        return self._length

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SyntheticPrompt) and self.segments == other.segments

    def __hash__(self) -> int:
        return hash(self.segments)

    def __repr__(self) -> str:
        return f"SyntheticPrompt({self.segments})"

    def extended(self, *segments: tuple[int, int]) -> SyntheticPrompt:
        """This prompt and `segments` after it."""
        return SyntheticPrompt((*self.segments, *segments))

    def page_digests(self, page_tokens: int) -> np.ndarray:
        """One digest per full page, int64 [len // page_tokens], in [0, 2^63). Like the KV of a page, it depends on
        every token up to the page's end, so it serves as the page's chained cache key too."""
        pages = self._length // page_tokens
        ends = np.arange(page_tokens, pages * page_tokens + 1, page_tokens, dtype=np.uint64)
        start, first, chain = 0, 0, _mixed(page_tokens)
        for seed, length in self.segments:
            salt = _mixed(chain ^ _mixed(seed))
            last = (start + length) // page_tokens
            ends[first:last] += np.uint64((salt - start) & _MASK64)
            start, first, chain = start + length, last, _mixed(salt + length)
        return (splitmix64(ends) >> np.uint64(1)).astype(np.int64)

    def prefix_digest(self, tokens: int, page_tokens: int) -> int:
        """The digest of the first `tokens` tokens (at least one), in [0, 2^63): at a page's end, that page's. Raises
        ValueError where there are not so many."""
        start, chain = 0, _mixed(page_tokens)
        for seed, length in self.segments:
            salt = _mixed(chain ^ _mixed(seed))
            if 0 < tokens <= start + length:
                return _mixed(salt + tokens - start) >> 1
            start, chain = start + length, _mixed(salt + length)
        raise ValueError(f"{tokens} tokens of a prompt of {self._length}")


def _mixed(value: int) -> int:
    """`splitmix64` of one number mod 2^64, without numpy's cost per call."""
    z = (value + 0x9E3779B97F4A7C15) & _MASK64
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK64
    return z ^ (z >> 31)
