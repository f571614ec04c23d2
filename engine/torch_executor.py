"""The real executor: forward passes of a checkpoint over the worker's own pool.

Invariant: order within a pass is write own slots, gather and attend, look at the stamps, then compare headers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from engine.attention import decode_attention, prefill_attention
from engine.executor import DecodeWork, PassResult, PrefillWork
from engine.integrity import check_tags, stamp_headers
from engine.kv_cache import KVCachePool
from engine.model import Llama
from engine.truth import TruthLog


class TorchExecutor:
    """Runs `model` over `pool`. One torch thread: a second one costs more than it gives on small steps."""

    def __init__(self, model: Llama, pool: KVCachePool, truth: TruthLog, now_us: Callable[[], int]) -> None:
        torch.set_num_threads(1)
        self._model, self._pool, self._truth, self._now_us = model, pool, truth, now_us
        self._payload = torch.from_numpy(pool.payload)
        self._found: dict[int, dict[int, list[int]]] = {}
        self.after_gather: Callable[[], None] | None = None
        """Called between gathering and checking: the place where a test lets a write land."""

    def prefill(self, works: Sequence[PrefillWork], *, check_tags: bool, step: int) -> list[PassResult]:
        """See `Executor`."""
        results = []
        for work in works:
            t = self._now_us()
            stop = work.start + len(work.tokens)
            positions = np.arange(work.start, stop)
            self._stamp(work.stamp, work.pages, work.tags, positions)
            table = torch.from_numpy(work.pages.astype(np.int64))
            hidden = self._model.forward(
                torch.from_numpy(work.tokens.astype(np.int64)), torch.from_numpy(positions), self._slots(work.pages, positions),
                self._payload,
                lambda q, k, v, table=table, start=work.start: prefill_attention(q, k, v, table, start),
            )  # fmt: skip
            token = self._model.greedy(hidden[-1:])[0]
            results.append(self._result(work, token, stop, check_tags, step, t))
        return results

    def decode(self, works: Sequence[DecodeWork], *, check_tags: bool, step: int) -> list[PassResult]:
        """See `Executor`."""
        t = self._now_us()
        width = max(len(work.pages) for work in works)
        tables = np.zeros((len(works), width), np.int64)
        for i, work in enumerate(works):
            tables[i, : len(work.pages)] = work.pages
            self._stamp(work.stamp, work.pages, work.tags, np.array([work.position]))
        positions = np.array([work.position for work in works])
        page_tokens = self._pool.geometry.page_tokens
        slots = tables[np.arange(len(works)), positions // page_tokens] * page_tokens + positions % page_tokens
        lengths, table = torch.from_numpy(positions + 1), torch.from_numpy(tables)
        hidden = self._model.forward(
            torch.tensor([work.token for work in works]), torch.from_numpy(positions), torch.from_numpy(slots), self._payload,
            lambda q, k, v: decode_attention(q, k, v, table, lengths),
        )  # fmt: skip
        tokens = self._model.greedy(hidden)
        return [
            self._result(work, token, work.position + 1, check_tags, step, t)
            for work, token in zip(works, tokens, strict=True)
        ]

    def _slots(self, pages: np.ndarray, positions: np.ndarray) -> torch.Tensor:
        page_tokens = self._pool.geometry.page_tokens
        return torch.from_numpy(
            pages[positions // page_tokens].astype(np.int64) * page_tokens + positions % page_tokens
        )

    def _stamp(self, stamp: int, pages: np.ndarray, tags: np.ndarray, positions: np.ndarray) -> None:
        page_tokens = self._pool.geometry.page_tokens
        stamp_headers(self._pool, pages, tags, int(positions[0]), int(positions[-1]) + 1)
        self._pool.stamps[pages[positions // page_tokens], positions % page_tokens] = stamp

    def _result(
        self, work: PrefillWork | DecodeWork, token: int, kv_tokens: int, check: bool, step: int, t: int
    ) -> PassResult:
        if self.after_gather is not None:
            self.after_gather()
        # Stamps before headers: a write shows its header first, so a stamp seen here is a header the check sees.
        if self._truth.on:
            self._look(work, kv_tokens, step, t)
        mismatches = check_tags(self._pool, work.pages, work.tags, kv_tokens) if check else ()
        return PassResult(token, mismatches)

    def _look(self, work: PrefillWork | DecodeWork, kv_tokens: int, step: int, t: int) -> None:
        """Record which stamps in [0, kv_tokens) are not the reader's, where that changed since its last pass."""
        page_tokens = self._pool.geometry.page_tokens
        stamps = self._pool.stamps[work.pages[: -(-kv_tokens // page_tokens)]].reshape(-1)[:kv_tokens]
        foreign: dict[int, list[int]] = {}
        for slot in np.flatnonzero(stamps != work.stamp):
            found = foreign.setdefault(int(work.pages[slot // page_tokens]), [])
            if int(stamps[slot]) not in found:
                found.append(int(stamps[slot]))
        if foreign != self._found.get(work.stamp, {}):
            self._found[work.stamp] = foreign
            self._truth.read(step, t, work.stamp, foreign)
