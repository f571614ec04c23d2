"""The recorder: the hot path of the flight recorder and the thread that drains it.

Invariant: `seq` is dense per worker epoch across all tables and is taken in the same critical section as the row
is queued; a row that cannot be queued keeps its seq, so that the `prev` chains show the loss. Recording never
blocks and never raises into the engine; a disk that fails is told by `problem` and by loss rows.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from engine.ledger.compactor import seal_batches
from engine.ledger.encode import Encoder, RecordedRow
from engine.ledger.epochs import check_worker_name, take_epoch
from engine.ledger.schema import POOL_TABLES, SCHEMA_VERSION
from engine.ledger.stream import StreamWriter, read_stream
from engine.ledger.tag import make_tag


class Recorder:
    """Records one worker's life into a ledger directory.

    `now_us` gives microseconds UTC. `fsync_ms` bounds what a crash of the machine loses. `ring_rows` bounds what may
    wait for the drain. With `threaded=False` nothing runs beside the caller: rows are drained by `flush`, `close` and
    whenever an eighth of the ring is full, so the same calls give the same bytes.
    """

    def __init__(
        self,
        directory: Path | str,
        worker: str,
        *,
        ordinal: int,
        now_us: Callable[[], int],
        digest_key: bytes,
        fsync_ms: int = 200,
        ring_rows: int = 65536,
        threaded: bool = True,
        rotate_bytes: int = 64 << 20,
    ) -> None:
        self.directory, self.worker, self.ordinal = Path(directory), check_worker_name(worker), ordinal
        self.epoch = take_epoch(self.directory, worker)
        self.lock = threading.RLock()
        self.problem: str | None = None
        self._now_us, self._fsync_ms, self._ring_rows, self._rotate_bytes = now_us, fsync_ms, ring_rows, rotate_bytes
        self._ring: deque[RecordedRow] = deque()
        self._seq = 0
        self._chains: dict[tuple[str, str | None], int] = {}
        self._page_rows: Counter[int] = Counter()
        self._lost = 0
        self._pending: list[RecordedRow] = []  # taken from the ring, not yet safely in the stream
        self._encoder = Encoder(self.epoch, digest_key)
        self._drain_lock = threading.Lock()
        (self.directory / "wal").mkdir(parents=True, exist_ok=True)
        self._stream_path = self.directory / "wal" / f"{worker}-{self.epoch}.wal"
        self._stream = StreamWriter(self._stream_path, self._header())
        self._closed = False
        self._wake = threading.Event()
        self._thread = (
            threading.Thread(target=self._drain_loop, name=f"ledger-{worker}", daemon=True) if threaded else None
        )
        if self._thread is not None:
            self._thread.start()

    @property
    def seq(self) -> int:
        """The last seq taken; 0 before the first row."""
        return self._seq

    def record(self, table: str, op: str, **columns: Any) -> int:
        """Queue one row and return its seq. Columns are those of `schema.TABLES[table]`.

        `t` (us) is given only where the row tells of something that began earlier, as a run of steps does.
        """
        with self.lock:
            return self._take(table, op, columns)

    def reserve(self, pool: str, req: int, pages: np.ndarray, *, pos: int = 0, **columns: Any) -> int:
        """Record that `pages` (int32 [n]) now belong to `req`; returns their new tag."""
        return self._allocate("reserve", pool, req, pages, pos, columns)

    def append(self, pool: str, req: int, pages: np.ndarray, *, pos: int, **columns: Any) -> int:
        """Record that `req` grows into `pages` at place `pos` of its table; returns their new tag."""
        return self._allocate("append", pool, req, pages, pos, columns)

    def pages(self, op: str, pool: str, req: int, tag: int, pages: np.ndarray, **columns: Any) -> int:
        """Record `op` on `pages`, the array that was really used, under `tag`. Returns the seq."""
        used = np.array(pages, np.int32)  # a copy: the caller's array may live on
        with self.lock:
            self._page_rows[req] += 1
            return self._take("pages", op, {"pool": pool, "req": req, "tag": tag, "pages": used, **columns})

    def page_rows(self, req: int) -> int:
        """How many `pages` rows `req` has had so far."""
        return self._page_rows[req]

    def heartbeat(
        self,
        peer: str | None,
        peer_epoch: int | None,
        peer_seq: int | None,
        clock_offset_us: int | None,
        clock_error_us: int | None,
    ) -> int:
        """Record what was last seen of a peer, and the clock offset to it (peer minus own)."""
        return self.record(
            "workers", "heartbeat", peer=peer, peer_epoch=peer_epoch, peer_seq=peer_seq,
            clock_offset_us=clock_offset_us, clock_error_us=clock_error_us,
        )  # fmt: skip

    def flush(self) -> int:
        """Drain, commit and fsync now; returns the last seq that is in the stream."""
        return self._drain()

    def close(self, seal: bool = True) -> None:
        """Write the `close` row, and (seal) turn the stream into sealed segments. Idempotent."""
        if self._closed:
            return
        self._closed = True
        if self._thread is not None:
            self._wake.set()
            self._thread.join()
        self._tell_loss()
        with self.lock:
            self._chains["workers", None] = self._seq + 1
            chains = sorted(self._chains.items(), key=lambda item: (item[0][0], item[0][1] or ""))
            names = [table if pool is None else f"{table}/{pool}" for (table, pool), _ in chains]
            prev = self._last_worker_row
            row = RecordedRow(
                "workers", "close", self._seq + 1, prev, self._now_us(),
                {"chains": names, "chain_seqs": [seq for _, seq in chains]},
            )  # fmt: skip
            self._seq += 1
            self._ring.append(row)
        self._drain()
        if seal and self.problem is None:
            self._seal(closed=True)
        self._stream.close()

    def _header(self) -> dict[str, Any]:
        return {
            "worker": self.worker, "epoch": self.epoch, "ordinal": self.ordinal, "schema_version": SCHEMA_VERSION,
            "fsync_ms": self._fsync_ms, "created_us": self._now_us(),
        }  # fmt: skip

    _last_worker_row = 0

    def _allocate(self, op: str, pool: str, req: int, pages: np.ndarray, pos: int, columns: dict[str, Any]) -> int:
        owned = np.array(pages, np.int32)
        with self.lock:
            tag = make_tag(self.ordinal, self.epoch, self._seq + 1)
            self._page_rows[req] += 1
            self._take("pages", op, {"pool": pool, "req": req, "tag": tag, "pages": owned, "pos": pos, **columns})
        return tag

    def _take(self, table: str, op: str, columns: dict[str, Any]) -> int:
        self._seq = seq = self._seq + 1
        chain = (table, columns.get("pool") if table in POOL_TABLES else None)
        prev = self._chains.get(chain, 0)
        self._chains[chain] = seq
        if chain == ("workers", None):
            self._last_worker_row = seq
        if len(self._ring) >= self._ring_rows or self._closed:
            self._lost += 1
            return seq
        t = columns.pop("t", None)
        self._ring.append(RecordedRow(table, op, seq, prev, self._now_us() if t is None else t, columns))
        if self._thread is None and len(self._ring) * 8 >= self._ring_rows:
            self._drain()
        return seq

    def _drain_loop(self) -> None:
        while not self._closed:
            self._wake.wait(self._fsync_ms / 1000)
            self._drain()

    def _tell_loss(self) -> None:
        with self.lock:
            if self._lost and len(self._ring) < self._ring_rows:
                lost, self._lost = self._lost, 0
                seq, chain = self._seq + 1, ("workers", None)
                prev = self._chains.get(chain, 0)
                self._seq = self._chains[chain] = self._last_worker_row = seq
                self._ring.append(RecordedRow("workers", "loss", seq, prev, self._now_us(), {"lost": lost}))

    def _drain(self) -> int:
        """Move what is in the ring into the stream, commit, fsync. Returns the last seq known to be there."""
        with self._drain_lock:
            if not self._pending:
                for _ in range(len(self._ring)):
                    self._pending.append(self._ring.popleft())
            if not self._pending:
                self._tell_loss()
                return self._committed
            try:
                self._write_pending()
                self.problem = None
            except OSError as error:
                self.problem = (
                    f"{self._stream_path}: {error.strerror or error}; rows wait in memory until it can be written"
                )
                return self._committed
            self._tell_loss()
            if self._stream.bytes_written >= self._rotate_bytes and not self._closed:
                self._seal(closed=False)
            return self._committed

    _committed = 0

    def _write_pending(self) -> None:
        start = self._stream.bytes_written
        try:
            for table, batch in self._encoder.batches(self._pending):
                self._stream.write(table, batch)
            self._stream.commit(self._pending[-1].seq)
            self._stream.sync()
        except OSError:
            self._stream.roll_back(start)
            raise
        self._committed = self._pending[-1].seq
        self._pending = []

    def _seal(self, closed: bool) -> None:
        """Rows of the stream become sealed segments; then a fresh stream takes its place, or none if closed."""
        content = read_stream(self._stream_path)
        try:
            seal_batches(self.directory, content)
            if closed:
                self._stream_path.unlink()
            else:
                old, self._stream = self._stream, StreamWriter(self._stream_path, self._header())
                old.close()
        except OSError as error:
            self.problem = f"{self.directory}: {error.strerror or error}; rows stay in {self._stream_path.name}"
