"""Keys of pages in a cache: one keyed, chained digest per full page of a prompt, within a namespace of identities.

Invariant: two prompts have equal keys exactly as far as their full pages are equal and their namespaces are the same.
Which identity fields make a namespace is decided here and nowhere else. Without the secret nobody can tell from a key
whether a guessed prompt has it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum
from functools import lru_cache
from typing import Protocol

import numpy as np

from engine.ledger.fingerprint import splitmix64

_MASK63 = np.uint64((1 << 63) - 1)
_STATE_BYTES = 32
_REMEMBERED = 1 << 14


@dataclass(frozen=True)
class Identity:
    """Whose a request is, and what its KV means. `tenant` is the ledger's pseudonym; None = has none."""

    tenant: str | None
    organisation: str | None = None
    user: str | None = None
    adapter: str | None = None
    media: str | None = None
    weights: str | None = None
    kv_format: str | None = None


IDENTITY_FIELDS: tuple[str, ...] = tuple(each.name for each in fields(Identity))
OWNER = ("tenant", "organisation", "user")
MEANING = tuple(name for name in IDENTITY_FIELDS if name not in OWNER)


class Scope(IntEnum):
    """Among whom cached pages may pass, from the narrowest to the widest: each holds the ones before it."""

    USER = 1
    TENANT = 2
    ORGANISATION = 3
    SHARED = 4  # no owner in the key at all

    @property
    def owner_fields(self) -> tuple[str, ...]:
        """The fields of the owner that are in a key of this scope."""
        return ("organisation", "tenant", "user")[: Scope.SHARED - self]


@dataclass(frozen=True)
class KeyFields:
    """Which identity fields a key takes in, where its scope asks for them. Leaving one out is fault class M12."""

    names: frozenset[str] = frozenset(IDENTITY_FIELDS)

    def without(self, name: str) -> KeyFields:
        """The same but for one field. Raises ValueError where there is no such field."""
        if name not in IDENTITY_FIELDS:
            raise ValueError(f"an identity has no field {name!r}; it has {', '.join(IDENTITY_FIELDS)}")
        return replace(self, names=self.names - {name})


ALL_FIELDS = KeyFields()


class Prompt(Protocol):
    """A prompt as far as a cache needs it: its length and its pages' content."""

    def __len__(self) -> int:
        """Tokens."""

    def page_digests(self, page_tokens: int) -> np.ndarray:
        """One digest (int64, unkeyed) per full page of `page_tokens` tokens; equal exactly for equal content."""


class TokenPrompt:
    """A prompt of token ids (int32 [n])."""

    def __init__(self, tokens: Sequence[int] | np.ndarray) -> None:
        self._tokens = np.ascontiguousarray(tokens, np.int32)

    def __len__(self) -> int:
        return len(self._tokens)

    def page_digests(self, page_tokens: int) -> np.ndarray:
        """See `Prompt`. Not XXH3: who can choose a page with another's digest gets the other's KV (CVE-2025-25183)."""
        raw, size = memoryview(self._tokens.tobytes()), 4 * page_tokens
        full = len(self._tokens) // page_tokens * size
        blake2b = hashlib.blake2b
        digests = [blake2b(raw[at : at + size], digest_size=8).digest() for at in range(0, full, size)]
        return np.frombuffer(b"".join(digests), np.int64)


@dataclass(frozen=True)
class SegmentPrompt:
    """A prompt without tokens: runs of (seed, length) end to end; the same seed is the same text from its start."""

    segments: tuple[tuple[int, int], ...]

    def __len__(self) -> int:
        return sum(length for _, length in self.segments)

    def page_digests(self, page_tokens: int) -> np.ndarray:
        """See `Prompt`. A page is known by the pieces of text it is made of: (seed, place in that text, length)."""
        digests = np.zeros(len(self) // page_tokens, np.uint64)
        mixed: dict[int, list[tuple[int, int, int]]] = {}  # page -> its pieces, where it is of several texts
        start = 0
        for seed, length in self.segments:
            end = start + length
            first, last = -(-start // page_tokens), end // page_tokens  # pages that are of this text alone
            if first < last:
                places = np.arange(first * page_tokens - start, last * page_tokens - start, page_tokens, dtype=np.int64)
                digests[first:last] = splitmix64(places.view(np.uint64) + _seed_base(seed, page_tokens))
            for page in {start // page_tokens, end // page_tokens}:
                begin, stop = max(start, page * page_tokens), min(end, (page + 1) * page_tokens)
                if begin < stop and not first <= page < last:
                    mixed.setdefault(page, []).append((seed, begin - start, stop - begin))
            start = end
        for page, pieces in mixed.items():
            if page < len(digests):
                digest = hashlib.blake2b(repr(pieces).encode(), digest_size=8).digest()
                digests[page] = int.from_bytes(digest, "little")
        return digests.view(np.int64)


@lru_cache(maxsize=_REMEMBERED)
def _seed_base(seed: int, page_tokens: int) -> np.uint64:
    digest = hashlib.blake2b(f"{seed}/{page_tokens}".encode(), digest_size=8).digest()
    return np.uint64(int.from_bytes(digest, "little"))


@lru_cache(maxsize=_REMEMBERED)
def namespace(identity: Identity, scope: Scope, included: KeyFields = ALL_FIELDS) -> int:
    """The number (128 bits) of all identities that share keys with this one."""
    names = set(included.names) - {"organisation", "tenant", "user"} | (set(scope.owner_fields) & included.names)
    digest = hashlib.blake2b(scope.name.encode(), digest_size=16)
    for name in sorted(names):
        value = getattr(identity, name)
        # Lengths, so that no two lists of values run together into the same bytes; a missing value is no empty one.
        digest.update(f"|{name}:{'-' if value is None else len(value)}:{value or ''}".encode())
    return int.from_bytes(digest.digest(), "little")


def chained_keys(digests: np.ndarray, space: int, secret: bytes) -> np.ndarray:
    """One key (int64 >= 0, [n]) per page digest (int64 [n]): keyed by `secret` (1-64 bytes), chained from `space`."""
    blake2b, raw = hashlib.blake2b, np.ascontiguousarray(digests, np.int64).tobytes()
    state = blake2b(space.to_bytes(16, "little"), digest_size=_STATE_BYTES, key=secret).digest()
    states = []
    for at in range(0, len(raw), 8):
        state = blake2b(state + raw[at : at + 8], digest_size=_STATE_BYTES).digest()
        states.append(state)
    # A key is a quarter of the state: who sees keys still cannot carry the chain on.
    keys = np.frombuffer(b"".join(states), np.uint64)[:: _STATE_BYTES // 8]
    return (keys & _MASK63).astype(np.int64)


@lru_cache(maxsize=_REMEMBERED)
def salt_fingerprint(identity: Identity, scope: Scope, secret: bytes) -> int:
    """Keyed fingerprint (63 bits) of the owner that a request's keys are meant to be kept apart by.

    It is taken of the identity, not of a key: a key that leaves the owner out does not change it, which is how the
    ledger shows that it did.
    """
    owner = replace(Identity(None), **{name: getattr(identity, name) for name in scope.owner_fields})
    raw = namespace(owner, scope).to_bytes(16, "little")
    return int.from_bytes(hashlib.blake2b(raw, digest_size=8, key=secret, person=b"salt").digest(), "little") >> 1


def matchable_keys(keys: np.ndarray, prompt_tokens: int, page_tokens: int) -> np.ndarray:
    """The keys that a request may look up: its last prompt token is computed, also where every page is cached."""
    return keys[: max(prompt_tokens - 1, 0) // page_tokens]


@dataclass(frozen=True)
class PageKeys:
    """How one cache makes its keys."""

    secret: bytes
    page_tokens: int
    scope: Scope = Scope.TENANT
    fields: KeyFields = field(default=ALL_FIELDS)

    def of(self, identity: Identity, prompt: Prompt) -> np.ndarray:
        """Keys (int64) of a prompt's full pages, in order."""
        space = namespace(identity, self.scope, self.fields)
        return chained_keys(prompt.page_digests(self.page_tokens), space, self.secret)

    def salt_fp(self, identity: Identity) -> int:
        """See `salt_fingerprint`."""
        return salt_fingerprint(identity, self.scope, self.secret)
