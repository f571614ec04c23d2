"""What the control plane asks of a model: forward passes over block tables.

Invariant: no tensor type appears here, so that a cost model in virtual time can stand in for the real one. An
executor writes K/V, header and stamp of every slot it computes before it attends, and compares headers with the
expected tags only after the content was gathered: a write that lands during the pass is caught too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np


@dataclass(frozen=True)
class PoolWork:
    """What a pass does in a pool beside `kv`: it writes slots [lo, hi) and reads the first `reads`, all counted from the
    first of `pages` (int32 [n], under `tags` int64 [n]), which stands at place `first` of the request's table."""

    pool: str
    first: int
    pages: np.ndarray
    tags: np.ndarray
    lo: int
    hi: int
    reads: int


class PrefillWork(NamedTuple):
    """A chunk of a prompt: `tokens` int32 [n] at positions start .. start+n-1; `pages` int32 and `tags` int64 cover
    [0, start+n)."""

    req: int
    stamp: int
    tokens: np.ndarray
    start: int
    pages: np.ndarray
    tags: np.ndarray
    others: tuple[PoolWork, ...] = ()


class DecodeWork(NamedTuple):
    """One input token, written at `position`; `pages` int32 and `tags` int64 cover [0, position]."""

    req: int
    stamp: int
    token: int
    position: int
    pages: np.ndarray
    tags: np.ndarray
    others: tuple[PoolWork, ...] = ()


@dataclass(frozen=True)
class TagMismatch:
    """Page `index` of a block table held `found` where `expected` was due (or fewer tokens than were to be read)."""

    page: int
    index: int
    expected: int
    found: int
    pool: str = "kv"
    rank: int | None = None  # of the worker's ranks, where it has several

    def place(self) -> dict[str, Any]:
        """Where it was, as columns of a check."""
        return {"pool": self.pool, "page": self.page} | ({} if self.rank is None else {"rank": self.rank})


class PassResult(NamedTuple):
    """The greedy next token of one request, and what its tag check found."""

    token: int
    mismatches: tuple[TagMismatch, ...] = ()


class DecodeRun(NamedTuple):
    """`passes` passes over an unchanged batch: one result per work, of the last pass; the last began at `last_us`."""

    results: list[PassResult]
    passes: int
    last_us: int


class Executor(Protocol):
    """Runs forward passes. `step` numbers the first of them within the worker's epoch."""

    def prefill(
        self, works: Sequence[PrefillWork], *, check_tags: bool, step: int, before_write: Callable[[], None]
    ) -> list[PassResult]:
        """Compute prompt chunks; one result per work. `before_write` is called right before the first byte lands."""

    def decode(
        self, works: Sequence[DecodeWork], *, check_tags: bool, step: int, passes: int = 1, until_us: int = 0
    ) -> DecodeRun:
        """Compute one token for each work, or up to `passes` each where no pass of a run can be told from one by one.

        No pass begins at or after `until_us`, but for the first. A pass whose check fails is the only one of its run.
        """

    def copy(self, src_pool: str, src_pages: np.ndarray, dst_pool: str, dst_pages: np.ndarray, dst_tag: int) -> int:
        """Copy pages (int32 [n]) from one pool of this worker to another, under headers made for `dst_tag`; bytes."""

    def forget(self, stamp: int) -> None:
        """No pass will read the table of this request any more."""

    def scrub(self, pages: np.ndarray) -> None:
        """Zero pages (int32 [n]): payload, header and stamps."""
