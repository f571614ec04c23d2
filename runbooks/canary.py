"""Probe prompts whose right answer is known, and the search for planted nonces in an answer.

The default model, InductionLlama, continues its context from the place whose four preceding bytes equal the last
four. A probe prompt therefore holds, at its start, its middle and its last page, a four-byte cue followed by a fresh
176-bit nonce, and ends with one of the cues: the right answer is that nonce, byte for byte.

Invariant: cues, nonces and filler share no character, and every four-byte window on the path from a cue through its
nonce is unique in the prompt, so the right answer is exact. No character occurs twice in a nonce: whatever byte an
answer over stale pages begins with, the copier falls into step with the nonce that those pages hold. Answers are
searched and dropped; only nonce names, lengths and counts leave this module.
"""

from __future__ import annotations

import random
import string
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

# 32 different characters out of 62: about 176 bits.
NONCE_LENGTH = 32
# At least 48 consecutive bits of an issued nonce are no accident (9 characters: 53 bits).
PARTIAL_LENGTH = 9
WINDOW = 4
SMALLEST_PROMPT = 160
COPIER_NAMES = frozenset({"induction-llama"})

_FILLER = ". , ; : - _ / "
_ALPHABET = string.ascii_letters + string.digits


class Place(StrEnum):
    """Where in the prompt a nonce stands."""

    START = "start"
    MIDDLE = "middle"
    LAST = "last"


# They differ in the last byte, which weighs most in the copier's match.
CUES: dict[Place, str] = {Place.START: "<>=!", Place.MIDDLE: "<>=?", Place.LAST: "<>=%"}


@dataclass(frozen=True)
class Nonce:
    """A planted secret of a synthetic tenant. `name` may be shown, `text` never."""

    name: str
    tenant: str
    text: str

    def __repr__(self) -> str:
        return f"Nonce({self.name!r}, {self.tenant!r})"


@dataclass(frozen=True)
class ProbePrompt:
    """A prompt of known length and the nonce its answer has to start with."""

    text: str
    expected: Nonce
    nonces: tuple[Nonce, ...]

    def __repr__(self) -> str:
        return f"ProbePrompt({len(self.text)} bytes, expected {self.expected.name})"


@dataclass(frozen=True)
class Match:
    """A nonce found in an answer: `length` consecutive characters of it."""

    nonce: Nonce
    length: int


def question(source: random.Random, name: str, tenant: str, length: int, asked: Place) -> ProbePrompt:
    """A prompt of `length` ASCII bytes with a fresh nonce at each place, asking for the one at `asked`.

    Raises ValueError if `length` is below `SMALLEST_PROMPT`.
    """
    _check_length(length)
    texts = _fresh_texts(source, len(Place))
    nonces = {place: Nonce(f"{name}-{place}", tenant, text) for place, text in zip(Place, texts, strict=True)}
    blocks = {place: CUES[place] + nonces[place].text for place in Place}
    tail = blocks[Place.LAST] + CUES[asked]
    head = blocks[Place.START]
    room = length - len(head) - len(tail) - len(blocks[Place.MIDDLE])
    text = head + _filler(room // 2) + blocks[Place.MIDDLE] + _filler(room - room // 2) + tail
    return ProbePrompt(text, nonces[asked], tuple(nonces.values()))


def stain(source: random.Random, name: str, tenant: str, length: int) -> ProbePrompt:
    """A prompt of `length` ASCII bytes full of one nonce, so that every page it leaves behind carries that nonce."""
    _check_length(length)
    nonce = Nonce(name, tenant, _fresh_texts(source, 1)[0])
    block = CUES[Place.START] + nonce.text
    cut = length - len(CUES[Place.START])
    # The first block is cut rather than the last, so that the prompt ends with a whole nonce and the cue.
    text = (block * (cut // len(block) + 1))[-cut:] + CUES[Place.START]
    return ProbePrompt(text, nonce, (nonce,))


def echoed(answer: str, nonce: Nonce) -> int:
    """How many characters of `nonce` the answer starts with."""
    count = 0
    for got, wanted in zip(answer, nonce.text, strict=False):
        if got != wanted:
            break
        count += 1
    return count


def find_nonces(answer: str, nonces: Iterable[Nonce]) -> list[Match]:
    """Every nonce of which the answer holds at least `PARTIAL_LENGTH` consecutive characters."""
    matches = []
    for nonce in nonces:
        length = _longest_common(answer, nonce.text)
        if length >= PARTIAL_LENGTH:
            matches.append(Match(nonce, length))
    return matches


def _longest_common(answer: str, text: str) -> int:
    best = 0
    for start in range(len(text)):
        while start + best < len(text) and text[start : start + best + 1] in answer:
            best += 1
    return best


def _check_length(length: int) -> None:
    if length < SMALLEST_PROMPT:
        raise ValueError(f"a probe prompt needs {SMALLEST_PROMPT} bytes, {length} are too few for its nonces")


def _filler(length: int) -> str:
    return (_FILLER * (length // len(_FILLER) + 1))[:length]


def _fresh_texts(source: random.Random, count: int) -> list[str]:
    """`count` nonces; no four-character window occurs twice among them."""
    texts: list[str] = []
    seen: set[str] = set()
    while len(texts) < count:
        text = "".join(source.sample(_ALPHABET, NONCE_LENGTH))
        windows = [text[i : i + WINDOW] for i in range(NONCE_LENGTH - WINDOW + 1)]
        if not seen.intersection(windows):
            texts.append(text)
            seen.update(windows)
    return texts
