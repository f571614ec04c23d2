"""What InductionLlama must say: an oracle over slots, in numpy, without the model.

A slot is what a page holds for one token: the position it was computed at, the token, and its four predecessors as
found then. Over a request's own pages this is the ordinary continuation; over somebody else's pages it predicts the
leaked text byte for byte. Invariant: where the model's answer would be a blend (a tie between different bytes, a
predecessor that no slot or more than one slot provides) the oracle raises `Undecided` and predicts nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

CODE_DEPTH = 4
_TIE = 1e-3


class Undecided(Exception):
    """The model's next byte is not determined by an exact match."""


@dataclass(frozen=True)
class Slot:
    """One token's place in KV: `predecessors` are the tokens 1..4 before it as computed then."""

    position: int
    token: int
    predecessors: tuple[int, int, int, int]


def own_slots(tokens: Sequence[int], start: int = 0) -> list[Slot]:
    """Slots of a request's own context at positions start, start+1, ... (before the first token: that token itself)."""
    return [
        Slot(start + i, token, tuple(tokens[max(i - m, 0)] for m in range(1, CODE_DEPTH + 1)))  # type: ignore[arg-type]
        for i, token in enumerate(tokens)
    ]


class Oracle:
    """Predicts greedy continuations. `codes` float32 [256, 16] are the checkpoint's byte codes."""

    def __init__(self, codes: np.ndarray) -> None:
        self._gram = codes.astype(np.float64) @ codes.T.astype(np.float64)
        self._energy = np.diag(self._gram)

    def next_token(self, slots: Sequence[Slot], current: Slot) -> int:
        """The byte that follows `current`, which attends over `slots` and itself."""
        everything = [*slots, current]
        scores = np.array([self._score(current, slot) for slot in everything])
        best = {everything[i].token for i in np.flatnonzero(scores > scores.max() - _TIE)}
        if len(best) != 1:
            raise Undecided(f"bytes {sorted(best)} match equally well after position {current.position}")
        return best.pop()

    def _score(self, query: Slot, key: Slot) -> float:
        wanted = (query.token, *query.predecessors[: CODE_DEPTH - 1])
        raw = sum(self._gram[w, k] / 4**m for m, (w, k) in enumerate(zip(wanted, key.predecessors, strict=True)))
        # Layer 1 normalises each slot by its energy, which padding lowers.
        energy = 1 + self._energy[key.token] + sum(self._energy[p] for p in key.predecessors)
        return float(raw * np.sqrt((2 + CODE_DEPTH) / energy))

    def decode(self, slots: Sequence[Slot], token: int, position: int, count: int) -> list[int]:
        """`count` bytes after `token`, written at `position`, over the pages' `slots` (any order, any origin)."""
        context, out = list(slots), []
        for _ in range(count):
            current = Slot(position, token, self._predecessors(context, position))
            token = self.next_token(context, current)
            context.append(current)
            out.append(token)
            position += 1
        return out

    def _predecessors(self, context: Sequence[Slot], position: int) -> tuple[int, int, int, int]:
        found = []
        for m in range(1, CODE_DEPTH + 1):
            tokens = {slot.token for slot in context if slot.position == max(position - m, 0)}
            if len(tokens) != 1:
                raise Undecided(f"{len(tokens)} slots were computed at position {position - m}")
            found.append(tokens.pop())
        return tuple(found)  # type: ignore[return-value]

    def continuation(self, prompt: Sequence[int], count: int) -> list[int]:
        """`count` bytes after a prompt over its own pages."""
        slots = own_slots(prompt)
        first = self.next_token(slots[:-1], slots[-1])
        return [first, *self.decode(slots, first, len(prompt), count - 1)]
