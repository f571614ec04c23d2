"""One-sided writes into a peer's pool.

A batch is at most `BATCH_PAGES` pages. `on_post` is called right before its first byte is handed over (after any
gate), `on_done` right after its last. Per page the header goes first, then payload, then stamps: a reader that
checks headers after it gathered the payload cannot have read a byte of a write whose header it does not see.

Invariant: nothing retracts a batch that was posted; `cancel` drops only batches still waiting.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from engine.kv_cache import KVCachePool

BATCH_PAGES = 8


@dataclass(frozen=True)
class WriteBatch:
    """Pages of one transfer: int32 [n] on both sides, and `tokens` int32 [n] valid tokens per page for the headers."""

    xfer: int
    room: int
    chunk: int
    src_pages: np.ndarray
    dst: str
    dst_pages: np.ndarray
    dst_tag: int
    tokens: np.ndarray


@dataclass(frozen=True)
class Callbacks:
    """Called in the thread that writes. `done` gets the bytes written, `failed` what went wrong."""

    post: Callable[[], None]
    done: Callable[[int], None]
    failed: Callable[[str], None]


class Transport(Protocol):
    """Writes batches into peers' pools, in order of submission but for gated transfers."""

    def connect(self, peer: str, memory: dict[str, Any]) -> None:
        """Make a peer's pool writable; `memory` is how the peer describes it. Raises ValueError, OSError."""

    def submit(self, batch: WriteBatch, callbacks: Callbacks) -> None:
        """Queue a batch."""

    def cancel(self, xfer: int) -> int:
        """Drop the batches of a transfer that are not yet posted; returns how many."""

    def gate(self, xfer: int) -> None:
        """Hold back a transfer's batches; others pass."""

    def ungate(self, xfer: int | None = None) -> None:
        """Let a gated transfer (None: all) go."""

    def close(self) -> None:
        """Stop writing."""


class SharedMemoryTransport:
    """A writer thread that copies pages from the local pool into mapped pools of peers."""

    def __init__(self, pool: KVCachePool) -> None:
        self._pool = pool
        self._peers: dict[str, KVCachePool] = {}
        self._queue: deque[tuple[WriteBatch, Callbacks]] = deque()
        self._gated: set[int] = set()
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
            try:
                callbacks.post()
                self._copy(batch)
            except (KeyError, IndexError, ValueError) as error:
                callbacks.failed(f"{type(error).__name__}: {error}")
            else:
                callbacks.done(len(batch.dst_pages) * self._pool.geometry.page_bytes)

    def _copy(self, batch: WriteBatch) -> None:
        target = self._peers[batch.dst]
        for source, page, tokens in zip(batch.src_pages, batch.dst_pages, batch.tokens, strict=True):
            header = target.headers[page : page + 1]
            header["tag"], header["digest"], header["tokens"] = (
                batch.dst_tag,
                self._pool.headers[source]["digest"],
                tokens,
            )
            target.payload[page] = self._pool.payload[source]
            target.stamps[page] = self._pool.stamps[source]
