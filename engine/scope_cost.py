"""What each scope of a prefix cache costs: the tokens that would have been found, by scope, for the same requests.

Invariant: the scopes are measured on the same requests with the same capacity, so that their difference is the scope
alone. Nothing is recorded and no page is touched: keys stand for pages.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from engine.page_keys import ALL_FIELDS, Identity, KeyFields, Prompt, Scope, chained_keys, matchable_keys, namespace


@dataclass(frozen=True)
class HitRate:
    """Tokens found in the cache, of all prompt tokens."""

    hit_tokens: int
    total_tokens: int

    @property
    def rate(self) -> float:
        """The share that was found; 0 where there was nothing to find."""
        return self.hit_tokens / self.total_tokens if self.total_tokens else 0.0


class _KeyStore:
    """The keys of a cache of `capacity` pages (None = without end), the one used longest ago first.

    A key is always used later than the keys that follow it in its chain, so what is kept of a chain is a beginning.
    """

    def __init__(self, capacity: int | None) -> None:
        self._capacity = capacity
        self._keys: OrderedDict[int, None] = OrderedDict()

    def find(self, keys: list[int]) -> int:
        """How many keys from the first on are there."""
        return bisect_left(keys, True, key=lambda key: key not in self._keys)

    def use(self, keys: list[int]) -> None:
        """Put a chain in, its first key last."""
        for key in reversed(keys):
            self._keys[key] = None
            self._keys.move_to_end(key)
        while self._capacity is not None and len(self._keys) > self._capacity:
            self._keys.popitem(last=False)


class ScopeCost:
    """Hit rates of one stream of requests at every scope. `capacity_pages` bounds each scope's cache alike."""

    def __init__(
        self, page_tokens: int, secret: bytes, *, capacity_pages: int | None = None, fields: KeyFields = ALL_FIELDS
    ) -> None:
        self._page_tokens, self._secret, self._fields = page_tokens, secret, fields
        self._stores = {scope: _KeyStore(capacity_pages) for scope in Scope}
        self._hits = dict.fromkeys(Scope, 0)
        self._total = 0

    def note(self, identity: Identity, prompt: Prompt) -> dict[Scope, int]:
        """One request after those before it: the tokens that each scope would have found for it."""
        digests = prompt.page_digests(self._page_tokens)
        found = {scope: self._look_up(scope, identity, digests, len(prompt)) for scope in Scope}
        for scope, tokens in found.items():
            self._hits[scope] += tokens
        self._total += len(prompt)
        return found

    def rates(self) -> dict[Scope, HitRate]:
        """Hit rate by scope, of all requests so far."""
        return {scope: HitRate(hits, self._total) for scope, hits in self._hits.items()}

    def _look_up(self, scope: Scope, identity: Identity, digests: np.ndarray, tokens: int) -> int:
        keys = chained_keys(digests, namespace(identity, scope, self._fields), self._secret)
        store = self._stores[scope]
        found = store.find(matchable_keys(keys, tokens, self._page_tokens).tolist())
        store.use(keys.tolist())
        return found * self._page_tokens


def scope_cost(
    requests: Iterable[tuple[Identity, Prompt]], page_tokens: int, secret: bytes, *, capacity_pages: int | None = None
) -> dict[Scope, HitRate]:
    """Hit rate by scope of a sequence of requests, in their order."""
    cost = ScopeCost(page_tokens, secret, capacity_pages=capacity_pages)
    for identity, prompt in requests:
        cost.note(identity, prompt)
    return cost.rates()
