"""One-sided writes into a peer's pool.

A batch is at most `BATCH_PAGES` pages. `on_post` is called right before its first byte is handed over (after any
gate), `on_done` right after its last. Per page the order is: header opened and tagged, payload, stamps, header
tagged again and closed. A reader that gathers payload first and looks at the header afterwards therefore sees every
write of which it may have read a byte, as still open or by its tag: also where the page changed hands, and its new
owner tagged it, while the write was under way. The same numbers tell the truth log whether the stamps it finds are
those of the bytes that were read. This needs stores that become visible in order, as on x86-64, and one remote
writer of a page at a time (two at once leave it open, which fails every check: it is torn).

Invariant: nothing retracts a batch that was posted; `cancel` drops only batches still waiting.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from engine.kv_cache import KVCachePool

BATCH_PAGES = 8
log = logging.getLogger(__name__)


class WriteBatch(NamedTuple):
    """Pages of one transfer: int32 [n] on both sides, and `tokens` int32 [n] valid tokens per page for the headers."""

    xfer: int
    room: int
    chunk: int
    src_pages: np.ndarray
    dst: str
    dst_pages: np.ndarray
    dst_tag: int
    tokens: np.ndarray
    src_tag: int = 0
    pos: int = 0  # of the first page in the request's table
    pool: str = "kv"  # on both sides

    def to(self, dst_pages: np.ndarray) -> WriteBatch:
        """The same batch to other pages."""
        return self._replace(dst_pages=dst_pages)


@dataclass(frozen=True)
class Callbacks:
    """Called in the thread that writes: `post`, then `done` with the bytes written; or `failed` saying why, and how
    many bytes were written all the same (None: not known)."""

    post: Callable[[], None]
    done: Callable[[int], None]
    failed: Callable[[str, int | None], None]
    failed_on: Callable[[str, int, int], None] | None = None
    """On one rank alone, of a worker that has several: why, on which rank, and how many bytes each other one wrote."""


class Transport(Protocol):
    """Writes batches into peers' pools, in order of submission but for gated transfers."""

    def connect(self, peer: str, memory: dict[str, Any]) -> None:
        """Make a peer's pool writable; `memory` is how the peer describes it. Raises ValueError, OSError."""

    def batch_pages(self, room: int, usual: int) -> int:
        """Pages in one batch of a room's handoff."""

    def submit(self, batch: WriteBatch, callbacks: Callbacks) -> None:
        """Queue a batch. One that cannot be written at all fails without a `post`."""

    def cancel(self, xfer: int) -> int:
        """Drop the batches of a transfer that are not yet posted; returns how many."""

    def gate(self, xfer: int) -> None:
        """Hold back a transfer's batches; others pass."""

    def ungate(self, xfer: int | None = None) -> None:
        """Let a gated transfer (None: all) go."""

    def spoil(self, xfer: int, chunk: int) -> None:
        """Let one batch of a transfer fail before its first byte, once it is its turn."""

    def close(self) -> None:
        """Stop writing."""


class SharedMemoryTransport:
    """A writer thread that copies pages from the local pool into mapped pools of peers."""

    def __init__(self, pool: KVCachePool) -> None:
        self._pool = pool
        self._peers: dict[str, KVCachePool] = {}
        self._queue: deque[tuple[WriteBatch, Callbacks]] = deque()
        self._gated: set[int] = set()
        self._spoiled: set[tuple[int, int]] = set()
        self._changed = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="kv-writer", daemon=True)
        self._thread.start()

    def connect(self, peer: str, memory: dict[str, Any]) -> None:
        """See `Transport`. Raises ValueError where the geometries differ."""
        pool = KVCachePool.attach(memory)
        if pool.geometry != self._pool.geometry:
            raise ValueError(f"{peer} has pages of {pool.geometry}, this worker of {self._pool.geometry}")
        self._peers[peer] = pool

    def batch_pages(self, room: int, usual: int) -> int:
        """See `Transport`."""
        return usual

    def submit(self, batch: WriteBatch, callbacks: Callbacks) -> None:
        """See `Transport`."""
        with self._changed:
            self._queue.append((batch, callbacks))
            self._changed.notify()

    def cancel(self, xfer: int) -> int:
        """See `Transport`."""
        with self._changed:
            kept = [item for item in self._queue if item[0].xfer != xfer]
            dropped = len(self._queue) - len(kept)
            self._queue = deque(kept)
            return dropped

    def gate(self, xfer: int) -> None:
        """See `Transport`."""
        with self._changed:
            self._gated.add(xfer)

    def ungate(self, xfer: int | None = None) -> None:
        """See `Transport`."""
        with self._changed:
            self._gated = set() if xfer is None else self._gated - {xfer}
            self._changed.notify()

    def spoil(self, xfer: int, chunk: int) -> None:
        """See `Transport`."""
        self._spoiled.add((xfer, chunk))

    def close(self) -> None:
        """See `Transport`."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join()

    def _next(self) -> tuple[WriteBatch, Callbacks] | None:
        """Wait for the first batch that no gate holds back; None when stopping."""
        with self._changed:
            while not self._stopping:
                for i, item in enumerate(self._queue):
                    if item[0].xfer not in self._gated:
                        del self._queue[i]
                        return item
                self._changed.wait()
            return None

    def _run(self) -> None:
        while (item := self._next()) is not None:
            batch, callbacks = item
            if (problem := self._problem(batch)) is not None:
                callbacks.failed(problem, 0)
                continue
            try:
                callbacks.post()
                self._copy(batch)
            except Exception as error:  # whatever it was, the batch is accounted for and others go on
                log.exception("transfer %d, batch %d to %s failed", batch.xfer, batch.chunk, batch.dst)
                callbacks.failed(f"{type(error).__name__}: {error}", None)
            else:
                callbacks.done(len(batch.dst_pages) * self._pool.geometry.page_bytes)

    def _problem(self, batch: WriteBatch) -> str | None:
        """Why a batch cannot be written; None where it can."""
        if (batch.xfer, batch.chunk) in self._spoiled:
            self._spoiled.remove((batch.xfer, batch.chunk))
            return "spoiled by the fault fail-open"
        target = self._peers.get(batch.dst)
        if target is None:
            return f"{batch.dst} is not connected; connected: {', '.join(sorted(self._peers)) or 'nobody'}"
        if not len(batch.src_pages) == len(batch.dst_pages) == len(batch.tokens):
            return f"{len(batch.src_pages)} pages to {len(batch.dst_pages)} with {len(batch.tokens)} token counts"
        for pages, pool, side in ((batch.src_pages, self._pool, "source"), (batch.dst_pages, target, batch.dst)):
            if len(pages) and not (pages.min() >= 0 and pages.max() < pool.pages):
                return f"pages {pages.min()} to {pages.max()} are not all in the {side} pool of {pool.pages} pages"
        return None

    def _copy(self, batch: WriteBatch) -> None:
        target, source = self._peers[batch.dst], self._pool
        headers = target.headers
        for src, dst, tokens in zip(batch.src_pages, batch.dst_pages, batch.tokens, strict=True):
            headers["opened"][dst] = batch.xfer
            self._tag(headers, dst, batch.dst_tag, source.headers["digest"][src], tokens)
            target.payload[dst] = source.payload[src]
            target.stamps[dst] = source.stamps[src]
            self._tag(headers, dst, batch.dst_tag, source.headers["digest"][src], tokens)
            headers["closed"][dst] = batch.xfer

    @staticmethod
    def _tag(headers: np.ndarray, page: int, tag: int, digest: int, tokens: int) -> None:
        headers["tag"][page], headers["digest"][page], headers["tokens"][page] = tag, digest, tokens
