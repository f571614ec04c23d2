"""The real executor: forward passes of a checkpoint over the worker's own pool.

Invariant: order within a pass is write own slots, gather and attend, then compare headers, then look at the stamps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from engine.attention import decode_attention, prefill_attention
from engine.executor import DecodeRun, DecodeWork, PassResult, PrefillWork
from engine.integrity import check_tags as find_mismatches
from engine.integrity import seal_pages, stamp_headers
from engine.kv_cache import KVCachePool
from engine.model import Llama
from engine.truth import StampReader, TruthLog, slot_stamps


class TorchExecutor:
    """Runs `model` over `pool`. One torch thread: a second one costs more than it gives on small steps."""

    def __init__(
        self,
        model: Llama,
        pool: KVCachePool,
        truth: TruthLog,
        now_us: Callable[[], int],
        host: KVCachePool | None = None,
    ) -> None:
        torch.set_num_threads(1)
        self._model, self._pool, self._now_us = model, pool, now_us
        self._payload = torch.from_numpy(pool.payload)
        self._pools = {"kv": pool} | ({"host": host} if host is not None else {})
        self._stamps = StampReader(pool, truth)
        self.after_gather: Callable[[], None] | None = None
        """Called in each pass between its last gather and its check: the place where a test lets a write land."""

    def prefill(
        self, works: Sequence[PrefillWork], *, check_tags: bool, step: int, before_write: Callable[[], None]
    ) -> list[PassResult]:
        """See `Executor`. A page that a chunk completes gets its digest."""
        before_write()
        return [self._prefill(work, check_tags, step) for work in works]

    def _prefill(self, work: PrefillWork, check: bool, step: int) -> PassResult:
        t, stop, page_tokens = self._now_us(), work.start + len(work.tokens), self._pool.geometry.page_tokens
        positions = np.arange(work.start, stop)
        self._own(work, positions)
        self._stamps.before([(work.pages, stop)])
        table = torch.from_numpy(work.pages.astype(np.int64))
        slots = work.pages[positions // page_tokens].astype(np.int64) * page_tokens + positions % page_tokens
        hidden = self._model.forward(
            torch.from_numpy(work.tokens.astype(np.int64)), torch.from_numpy(positions), torch.from_numpy(slots),
            self._payload, lambda q, k, v: prefill_attention(q, k, v, table, work.start),
        )  # fmt: skip
        token = self._model.greedy(hidden[-1:])[0]
        seal_pages(self._pool, work.pages[work.start // page_tokens : stop // page_tokens])
        return self._results([work], [token], [stop], check, step, t)[0]

    def decode(
        self, works: Sequence[DecodeWork], *, check_tags: bool, step: int, passes: int = 1, until_us: int = 0
    ) -> DecodeRun:
        """See `Executor`. Always one pass: tokens are wanted as they come."""
        t, page_tokens = self._now_us(), self._pool.geometry.page_tokens
        tables = np.zeros((len(works), max(len(work.pages) for work in works)), np.int64)
        for i, work in enumerate(works):
            tables[i, : len(work.pages)] = work.pages
            self._own(work, np.array([work.position]))
        positions = np.array([work.position for work in works])
        stops = (positions + 1).tolist()
        self._stamps.before([(work.pages, stop) for work, stop in zip(works, stops, strict=True)])
        slots = tables[np.arange(len(works)), positions // page_tokens] * page_tokens + positions % page_tokens
        lengths, table = torch.from_numpy(positions + 1), torch.from_numpy(tables)
        hidden = self._model.forward(
            torch.tensor([work.token for work in works]), torch.from_numpy(positions), torch.from_numpy(slots),
            self._payload, lambda q, k, v: decode_attention(q, k, v, table, lengths),
        )  # fmt: skip
        return DecodeRun(self._results(works, self._model.greedy(hidden), stops, check_tags, step, t), 1, t)

    def copy(self, src_pool: str, src_pages: np.ndarray, dst_pool: str, dst_pages: np.ndarray, dst_tag: int) -> int:
        """See `Executor`."""
        source, target = self._pools[src_pool], self._pools[dst_pool]
        target.payload[dst_pages], target.stamps[dst_pages] = source.payload[src_pages], source.stamps[src_pages]
        for name in ("digest", "tokens"):
            target.headers[name][dst_pages] = source.headers[name][src_pages]
        target.headers["tag"][dst_pages] = dst_tag
        return len(dst_pages) * source.geometry.page_bytes

    def forget(self, stamp: int) -> None:
        """See `Executor`. Nothing is kept between passes."""

    def scrub(self, pages: np.ndarray) -> None:
        """See `Executor`."""
        self._pool.payload[pages], self._pool.stamps[pages] = 0, 0
        for name in ("tag", "digest", "tokens"):
            self._pool.headers[name][pages] = 0

    def _own(self, work: PrefillWork | DecodeWork, positions: np.ndarray) -> None:
        """Header and stamps of the slots that this pass is about to write."""
        page_tokens = self._pool.geometry.page_tokens
        stamp_headers(self._pool, work.pages, work.tags, int(positions[0]), int(positions[-1]) + 1)
        stamps = slot_stamps(work.stamp, positions)
        self._pool.stamps[work.pages[positions // page_tokens], positions % page_tokens] = stamps

    def _results(
        self,
        works: Sequence[PrefillWork | DecodeWork],
        tokens: Sequence[int],
        stops: Sequence[int],
        check: bool,
        step: int,
        t: int,
    ) -> list[PassResult]:
        """What the pass found in each request's [0, stop)."""
        if self.after_gather is not None:
            self.after_gather()
        results = []
        for work, token, stop in zip(works, tokens, stops, strict=True):
            mismatches = find_mismatches(self._pool, work.pages, work.tags, stop) if check else ()
            results.append(PassResult(token, mismatches))
        for work, stop in zip(works, stops, strict=True):
            self._stamps.after(work.stamp, work.pages, stop, step, t)
        return results
