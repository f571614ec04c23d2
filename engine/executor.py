"""What the control plane asks of a model: forward passes over block tables.

Invariant: no tensor type appears here, so that a cost model in virtual time can stand in for the real one. An
executor writes K/V, header and stamp of every slot it computes before it attends, and compares headers with the
expected tags only after the content was gathered: a write that lands during the pass is caught too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np


@dataclass(frozen=True)
class PrefillWork:
    """A chunk of a prompt: `tokens` int32 [n] at positions start .. start+n-1; `pages` int32 and `tags` int64 cover
    [0, start+n)."""

    req: int
    stamp: int
    tokens: np.ndarray
    start: int
    pages: np.ndarray
    tags: np.ndarray


@dataclass(frozen=True)
class DecodeWork:
    """One input token, written at `position`; `pages` int32 and `tags` int64 cover [0, position]."""

    req: int
    stamp: int
    token: int
    position: int
    pages: np.ndarray
    tags: np.ndarray


@dataclass(frozen=True)
class TagMismatch:
    """Page `index` of a block table held `found` where `expected` was due (or fewer tokens than were to be read)."""

    page: int
    index: int
    expected: int
    found: int


@dataclass(frozen=True)
class PassResult:
    """The greedy next token of one request, and what its tag check found."""

    token: int
    mismatches: tuple[TagMismatch, ...] = ()


class Executor(Protocol):
    """Runs one forward pass at a time. `step` numbers the pass within the worker's epoch."""

    def prefill(self, works: Sequence[PrefillWork], *, check_tags: bool, step: int) -> list[PassResult]:
        """Compute prompt chunks; one result per work."""

    def decode(self, works: Sequence[DecodeWork], *, check_tags: bool, step: int) -> list[PassResult]:
        """Compute one token for each work; one result per work."""
