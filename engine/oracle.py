"""What InductionLlama must say: its two layers worked out over slots in numpy, without model, tensors or pages' bytes.

A slot is what a page holds for one token: the position it was computed at, the token, and its four predecessors as
found then. Over a request's own pages this gives the ordinary continuation; over somebody else's pages it predicts
the leaked text byte for byte.

Invariant: a prediction is made only where it is certain: each predecessor is the token of one position (or of several
that agree), and one byte holds three quarters of the last layer's weight, which no other byte can then outvote. For
texts whose 4-grams are unique, at positions all of whose predecessors are there, this always holds. Otherwise (a tie
between different bytes, a missing or doubled position) `Undecided` is raised.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engine.induction import CODE, DEPTH, FAST_PAIRS, HEAD_DIM, LOOK_BACK, MATCH, rope_frequencies
from engine.tokenizer import PAD, VOCABULARY

SURE = 0.75  # of the weight: words correlate by 1/4 at most and -1 at least, so 8/11 suffice
ALONE = 1 - 1e-6  # of the weight of a predecessor's head
NOTHING = 110.0  # score difference below which a weight is not exactly 0 in float32


class Undecided(Exception):
    """The model's next byte is not determined by an exact match."""


@dataclass(frozen=True)
class Slot:
    """One token's place in KV: `predecessors` are the tokens 1 .. 4 before it as computed then."""

    position: int
    token: int
    predecessors: tuple[int, ...]


def own_slots(tokens: Sequence[int], start: int = 0) -> list[Slot]:
    """Slots of a request's own context at positions start, start+1, ... (before the first token: that token itself)."""
    return [
        Slot(start + i, token, tuple(tokens[max(i - m, 0)] for m in range(1, DEPTH + 1)))
        for i, token in enumerate(tokens)
    ]


class SlotMemory:
    """What a pool holds, slot by slot; None where nothing was ever written."""

    def __init__(self, pages: int, page_tokens: int) -> None:
        self.page_tokens = page_tokens
        self._pages: list[list[Slot | None]] = [[None] * page_tokens for _ in range(pages)]

    def write(self, table: Sequence[int], slots: Sequence[Slot], start: int = 0) -> None:
        """Slots start, start+1, ... of a block table."""
        for i, slot in enumerate(slots, start):
            self._pages[table[i // self.page_tokens]][i % self.page_tokens] = slot

    def read(self, table: Sequence[int], kv_tokens: int) -> list[Slot | None]:
        """The first `kv_tokens` slots of a block table."""
        return [self._pages[table[i // self.page_tokens]][i % self.page_tokens] for i in range(kv_tokens)]

    def receive(self, source: SlotMemory, src_pages: Sequence[int], dst_pages: Sequence[int]) -> None:
        """A transfer: whole pages, with whatever older slots stand behind the last token sent."""
        for src, dst in zip(src_pages, dst_pages, strict=True):
            self._pages[dst] = list(source._pages[src])


class Oracle:
    """Predicts greedy tokens. `codes` float32 [256, 16] are the checkpoint's byte codes."""

    def __init__(self, codes: np.ndarray) -> None:
        self._pairs = codes[:, 0::2] + 1j * codes[:, 1::2]  # RoPE turns pairs: complex numbers
        frequencies = rope_frequencies()
        self._fast = frequencies[:FAST_PAIRS]
        self._slow = frequencies[(HEAD_DIM - CODE * DEPTH) // 2 :].reshape(DEPTH, CODE // 2)

    def next_token(self, slots: Sequence[Slot | None], current: Slot) -> int:
        """The token that follows `current`, which attends over `slots` and itself. Raises Undecided."""
        keys = _Keys([*slots, current])
        wanted = (current.token, *current.predecessors[: DEPTH - 1])
        turned = np.exp(1j * (keys.positions - current.position)[:, None, None] * self._slow)
        matches = (self._pairs[list(wanted)].conj() * self._pairs[keys.predecessors] * turned).real.sum(2)
        scores = np.where(keys.written, MATCH * (matches / 4.0 ** np.arange(DEPTH)).sum(1), 0)
        mass = keys.mass(scores)
        best = int(mass.argmax())
        others = scores[keys.tokens != best]
        # Padding's word is zero: any other byte outvotes it with any weight at all.
        if mass[best] < SURE or (best == PAD and len(others) and others.max() > scores.max() - NOTHING):
            rivals = sorted(np.flatnonzero(mass > 0.01).tolist())
            raise Undecided(f"bytes {rivals} match alike after position {current.position}")
        return best

    def predecessors(self, slots: Sequence[Slot | None], token: int, position: int) -> tuple[int, ...]:
        """What a token at `position` finds 1 .. 4 before itself among `slots` and itself. Raises Undecided."""
        keys = _Keys([*slots, Slot(position, token, (PAD,) * DEPTH)])
        found = []
        for m in range(1, DEPTH + 1):
            distances = position - m - keys.positions
            mass = keys.mass(np.where(keys.written, LOOK_BACK * np.cos(distances[:, None] * self._fast).sum(1), 0))
            if mass.max() < ALONE:
                raise Undecided(f"position {position - m} is missing, or held by tokens that differ")
            found.append(int(mass.argmax()))
        return tuple(found)

    def step(self, memory: SlotMemory, table: Sequence[int], token: int, position: int) -> int:
        """One decode pass: writes the token's slot into `memory` and returns the next token. Raises Undecided."""
        others = memory.read(table, position)
        current = Slot(position, token, self.predecessors(others, token, position))
        memory.write(table, [current], position)
        return self.next_token(others, current)

    def decode(self, slots: Sequence[Slot | None], token: int, position: int, count: int) -> list[int]:
        """`count` tokens after `token`, written at `position`, over `slots` of any origin. Raises Undecided."""
        context, out = list(slots), []
        for i in range(count):
            current = Slot(position + i, token, self.predecessors(context, token, position + i))
            token = self.next_token(context, current)
            context.append(current)
            out.append(token)
        return out

    def continuation(self, prompt: Sequence[int], count: int) -> list[int]:
        """`count` tokens after a prompt over its own pages. Raises Undecided."""
        slots = own_slots(prompt)
        first = self.next_token(slots[:-1], slots[-1])
        return [first, *self.decode(slots, first, len(prompt), count - 1)]


class _Keys:
    """Slots as arrays: positions, tokens and `written` [n], predecessors [n, 4]."""

    def __init__(self, slots: Sequence[Slot | None]) -> None:
        blank = Slot(0, PAD, (PAD,) * DEPTH)
        present = [slot or blank for slot in slots]
        self.written = np.array([slot is not None for slot in slots])
        self.positions = np.array([slot.position for slot in present], np.float64)
        self.tokens = np.array([slot.token for slot in present])
        self.predecessors = np.array([slot.predecessors for slot in present])

    def mass(self, scores: np.ndarray) -> np.ndarray:
        """The share of attention that each token [256] gets, its slots together."""
        weights = np.exp(scores - scores.max())
        share: np.ndarray = np.bincount(self.tokens, weights, minlength=VOCABULARY) / weights.sum()
        return share
