"""What a prefix cache does for the requests of one worker: pages they find, and pages they leave.

Prefill uses it as it stands; `decode_prefix` says what decode does with it.

Invariant: a request reads cached pages only between `give` and `leave`, under a lock; what it files belongs to the
cache from `file` on, and the rest is the request's own to free.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from engine.block_pool import BlockPool, tag_runs
from engine.cache_rows import Match
from engine.defences import SCOPED_KEYS, Checks
from engine.faults import Faults
from engine.host_tier import Copy, HostTier
from engine.ledger.recorder import Recorder
from engine.page_keys import (
    ALL_FIELDS,
    OWNER,
    Identity,
    KeyFields,
    PageKeys,
    Prompt,
    Scope,
    TokenPrompt,
    matchable_keys,
)
from engine.prefix_cache import CacheLock, RadixCache
from engine.request import Request


@dataclass(frozen=True)
class Looked:
    """What a request found for its first `tokens` tokens: `match` of the tree, of the keys (int64) that it `wished` for;
    `keys` are those of all full pages of its prompt."""

    tokens: int
    identity: Identity
    keys: np.ndarray
    wished: np.ndarray
    match: Match
    scope: Scope


@dataclass
class Taken:
    """A request's table: `cached` pages of the tree, and pages reserved for it, which `file` may give away."""

    identity: Identity
    keys: np.ndarray
    cached: int
    scope: Scope  # among whom its pages may pass
    locks: list[CacheLock] = field(default_factory=list)
    filed: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))  # own pages that are the cache's now


def identity_of(request: Request) -> Identity:
    """Whose request it is, and what its KV depends on beside its tokens."""
    given = request.given
    return Identity(
        given.tenant, given.organisation, given.user, given.adapter, given.media, given.weights, given.kv_format
    )


@dataclass(frozen=True)
class Host:
    """A host pool for what is evicted, and how pages are copied there and back."""

    pool: BlockPool
    copy: Copy


class CachedPrefix:
    """The cache of one pool, over a tier of its host where there is one. `secret` keys what stands in the ledger;
    `fields` are what its keys take in beside the owner that `scope` asks for."""

    def __init__(
        self, pool: BlockPool, recorder: Recorder, scope: Scope, secret: bytes, faults: Faults, checks: Checks,
        host: Host | None = None, fields: KeyFields = ALL_FIELDS,
    ) -> None:  # fmt: skip
        self._fields = fields
        self._pool, self._faults, self._checks = pool, faults, checks
        self._configured = self._scope = scope  # `_scope` as it is for the request at hand
        self._secret = secret
        self.tree = RadixCache(pool, recorder, salt_fp=self._salt_fp)
        self.tier = HostTier(host.pool, pool, recorder, host.copy, salt_fp=self._salt_fp) if host is not None else None
        self.tree.on_evict = self._evicted
        self.before_free: Callable[[np.ndarray], None] = lambda pages: None
        """Called with pages (int32 [n]) that are evicted, when what they hold is needed no more and they are not free yet."""
        self._asked: dict[int, tuple[np.ndarray, Scope]] = {}  # of requests that wait for pages: their keys
        self._taken: dict[int, Taken] = {}
        self.asked_tokens = self.hit_tokens = 0  # of all prompts so far, and those of them found

    def take(self, request: Request, tokens: int, whole: bool) -> int | None:
        """Give a request its table of `tokens` tokens, evicting what nobody reads; returns how many tokens of it are
        cached, or None where there are too few pages. Nothing is looked up unless its `whole` prompt is computed."""
        looked = self.look(request, tokens, whole)
        wanted = self._pool.pages_for(tokens) - len(looked.match)
        if wanted > self.spare(looked.match):
            return None
        return self.give(request, looked, wanted) * self._pool.page_tokens

    def look(self, request: Request, tokens: int, whole: bool = True) -> Looked:
        """What the tree has of a request's first `tokens` tokens. Changes nothing; safe to read only once given."""
        identity = identity_of(request)
        keys = self._keys(request, identity) if whole else np.zeros(0, np.int64)
        wished = matchable_keys(keys, tokens, self._pool.page_tokens)
        return Looked(tokens, identity, keys, wished, self.tree.match_prefix(wished), self._scope)

    def spare(self, match: Match | None = None) -> int:
        """Pages that can be reserved: those that are free, and those that nobody reads, but for a match to be locked."""
        return self._pool.free_pages + self.tree.evictable_pages - (self._idle_among(match) if match is not None else 0)

    def make_room(self, count: int) -> bool:
        """Evict until `count` pages are free; False where too many are being read or used."""
        if count > self._pool.free_pages:
            self.tree.evict(count - self._pool.free_pages)
        return count <= self._pool.free_pages

    def give(self, request: Request, looked: Looked, wanted: int) -> int:
        """Give a request its table: what it found, locked, and `wanted` pages of its own; returns how many pages hold
        what was cached. Raises MemoryError where `spare` says that there are too few."""
        match, identity, self._scope = looked.match, looked.identity, looked.scope
        self._asked.pop(request.req, None)
        taken = Taken(identity, looked.keys, len(match), looked.scope)
        if len(match):
            taken.locks.append(self.tree.lock(match, request.req, identity))
        self.make_room(wanted)
        pages, tag = self._pool.reserve(request.req, wanted)
        request.pages = np.concatenate([match.pages, pages])
        request.tags = np.concatenate([match.tags, np.full(wanted, tag, np.int64)])
        self._taken[request.req] = taken
        cached = len(match) + self._load(looked.wished[len(match) :], pages, tag, identity, len(match))
        self.asked_tokens, self.hit_tokens = (
            self.asked_tokens + looked.tokens,
            self.hit_tokens + cached * self._pool.page_tokens,
        )
        return cached

    def forget(self, request: Request) -> None:
        """A request ends."""
        self._asked.pop(request.req, None)
        self._taken.pop(request.req, None)

    def file(self, request: Request, most: int | None = None) -> None:
        """The whole prompt is there: its full pages, or the first `most` of them, become the cache's, and stay locked
        until `leave`."""
        taken = self._taken[request.req]
        count = len(taken.keys[:most])
        if not count:
            return
        self._scope = taken.scope
        inserted = self.tree.insert(
            request.req, taken.identity, taken.keys[:count], request.pages[:count], request.tags[:count], keep=True
        )
        taken.filed = inserted.new.pages
        if inserted.lock is not None:
            taken.locks.append(inserted.lock)

    def leave(self, request: Request) -> list[tuple[int, np.ndarray]]:
        """A request reads no more: locks go, and its own pages come back as (tag, pages), for it to free."""
        taken = self._taken[request.req]
        for lock in reversed(taken.locks):
            self.tree.unlock(lock)
        pages, tags = request.pages[taken.cached :], request.tags[taken.cached :]
        own = ~np.isin(pages, taken.filed)
        taken.locks, taken.cached = [], 0
        return [(tag, pages[own][start:stop]) for tag, start, stop in tag_runs(tags[own])]

    def _load(self, keys: np.ndarray, pages: np.ndarray, tag: int, identity: Identity, pos: int) -> int:
        """What the tree does not have and the host tier does, into the first of a request's own pages; how many."""
        if self.tier is None:
            return 0
        count = self.tier.match(keys)
        return self.tier.load(keys[:count], pages[:count], tag, identity, pos=pos) if count else 0

    def _evicted(self, gone: Match, identity: Identity | None) -> None:
        """What the tree gives up is kept by the host tier."""
        if self.tier is not None:
            self.tier.offload(gone.keys, gone.pages, gone.tags, identity)
        self.before_free(gone.pages)

    def _idle_among(self, match: Match) -> int:
        """Matched pages that are evictable now and will not be once they are locked."""
        return int(np.count_nonzero(self._pool.references(match.pages) == 0))

    def _keys(self, request: Request, identity: Identity) -> np.ndarray:
        """The keys of a prompt's full pages, made once however long the request waits; `_scope` is then its own."""
        if request.req not in self._asked:
            self._asked[request.req] = (self._made_keys(request, identity), self._scope)
        keys, self._scope = self._asked[request.req]
        return keys

    def _made_keys(self, request: Request, identity: Identity) -> np.ndarray:
        fields, faults, self._scope = self._fields, self._faults, self._configured
        if faults.incomplete_key.strikes() and not self._checks.failed(
            SCOPED_KEYS, request.req, expected=len(ALL_FIELDS.names), found=len(ALL_FIELDS.names) - 1
        ):
            for name in OWNER if faults.incomplete_key.field == OWNER[0] else (faults.incomplete_key.field,):
                fields = fields.without(name)
        if faults.shared_scope.strikes() and not self._checks.failed(
            SCOPED_KEYS, request.req, expected=int(self._scope), found=int(Scope.SHARED)
        ):
            self._scope = Scope.SHARED
        given = request.given.tokens
        prompt: Prompt = given if hasattr(given, "page_digests") else TokenPrompt(given)
        return PageKeys(self._secret, self._pool.page_tokens, self._scope, fields).of(identity, prompt)

    def _salt_fp(self, identity: Identity) -> int:
        """By the scope in force: a scope that is too wide is a policy (P0), and only a field left out a broken key."""
        return PageKeys(self._secret, self._pool.page_tokens, self._scope).salt_fp(identity)
