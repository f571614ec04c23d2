"""Who left which stamp: the requests of one world, as physical truth knows them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from engine.simulation.prompts import SyntheticPrompt

NO_PAGES = np.zeros(0, np.int64)


@dataclass
class Person:
    """One request: identity, and from when on what it computes is tainted (us; None: it is not)."""

    rid: str
    tenant: str
    meaning: tuple[str | None, ...]  # adapter, media, weights, kv_format
    prompt: SyntheticPrompt
    tainted_since: int | None = None
    _contents: dict[int, np.ndarray] = field(default_factory=dict)

    def contents(self, page_tokens: int) -> np.ndarray:
        """What each full page of its prompt holds, int64."""
        if page_tokens not in self._contents:
            self._contents[page_tokens] = self.prompt.page_digests(page_tokens)
        return self._contents[page_tokens]


class People:
    """Stamp -> request. Those that have ended everywhere stay: their bytes do."""

    def __init__(self) -> None:
        self._by_stamp: dict[int, Person] = {}

    def add(self, stamp: int, person: Person) -> None:
        """A request has come to the door."""
        self._by_stamp[stamp] = person

    def __getitem__(self, stamp: int) -> Person:
        return self._by_stamp[stamp]
