"""The recorder: the hot path of the flight recorder and the thread that drains it.

Invariant: `seq` is dense per worker epoch across all tables and is taken in the same critical section as the row
is queued; a row that cannot be queued keeps its seq, so that the `prev` chains show the loss. Recording never
blocks on the disk and no fault of the disk is raised into the engine: `problem` and loss rows tell it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from engine.ledger.compactor import let_go, seal_stream
from engine.ledger.encode import EncodedRows, Encoder
from engine.ledger.epochs import check_worker_name, take_epoch
from engine.ledger.forms import Form, RecordedRow, kept
from engine.ledger.schema import SCHEMA_VERSION, TABLES
from engine.ledger.stream import StreamWriter
from engine.ledger.tag import make_tag

COUNTED_REQUESTS = 1 << 16
"""Bound on the requests whose `pages` rows are counted; the oldest is forgotten first."""


PAGES_GIVEN = ("pool", "req", "tag", "pages")
"""Columns of every row that `Recorder.pages` writes."""


class Recorder:
    """Records one worker's life into a ledger directory.

    `now_us` gives microseconds UTC. `fsync_ms` bounds what a crash of the machine loses. `ring_rows` bounds what may
    wait for the drain. With `threaded=False` nothing runs beside the caller: rows are drained by `flush`, `close` and
    whenever an eighth of the ring is full, so the same calls give the same bytes. With `durable=False` nothing is
    fsynced: for a record that can be made again.
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
        durable: bool = True,
    ) -> None:
        self.directory, self.worker, self.ordinal = Path(directory), check_worker_name(worker), ordinal
        self.epoch = take_epoch(self.directory, worker, durable)
        self.lock = threading.RLock()
        """Held round "change and record" where another thread records too."""
        self.problem: str | None = None
        """Why rows are not reaching the disk, or the last row that fitted no schema; None = all is well."""
        self._now_us, self._fsync_ms, self._rotate_bytes, self._durable = now_us, fsync_ms, rotate_bytes, durable
        self._ring: deque[RecordedRow] = deque()
        self._room = ring_rows  # rows that may wait
        self._wake_rows = max(1, ring_rows // 8)
        self._seq = self._committed = self._lost = self._refused = 0
        self._forms: dict[tuple[str, ...], Form] = {}
        self._page_forms: dict[tuple[str, ...], Form] = {}
        self._chains: defaultdict[str, dict[str | None, int]] = defaultdict(dict)  # table -> pool -> last seq
        self._page_rows: OrderedDict[int, int] = OrderedDict()
        self._waiting: EncodedRows | None = None  # encoded, not yet safely in the stream
        self._encoder = Encoder(self.epoch, digest_key)
        self._drain_lock = threading.RLock()
        (self.directory / "wal").mkdir(parents=True, exist_ok=True)
        self._stream = self._new_stream(self.directory / "wal" / f"{worker}-{self.epoch}.wal")
        self._rotate_at = rotate_bytes
        self._closed = self._stopping = False
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        if threaded:
            self._thread = threading.Thread(target=self._drain_loop, name=f"ledger-{worker}", daemon=True)
            self._thread.start()

    @property
    def seq(self) -> int:
        """The last seq taken; 0 before the first row."""
        return self._seq

    def record(self, table: str, op: str, **columns: Any) -> int:
        """Queue one row and return its seq. Raises TypeError for a table, op or column that is not in the schema.

        `t` (us) is given only where the row tells of something that began earlier, as a run of steps does.
        """
        form = self._forms.get((table, op, *columns)) or self._form(table, op, columns)
        for name in form.lists:
            if columns[name] is not None:
                columns[name] = kept(columns[name])
        t = columns.pop("t") if form.timed else None
        with self.lock:
            if form.counted:
                self._count_page_row(columns["req"])
            return self._queue(form, columns["pool"] if form.pooled else None, t, columns.values())

    def reserve(self, pool: str, req: int, pages: np.ndarray, *, pos: int = 0, **columns: Any) -> int:
        """Record that `pages` (int32 [n]) now belong to `req`; returns their new tag."""
        return self._allocate("reserve", pool, req, pages, pos, columns)

    def append(self, pool: str, req: int, pages: np.ndarray, *, pos: int, **columns: Any) -> int:
        """Record that `req` grows into `pages` at place `pos` of its table; returns their new tag."""
        return self._allocate("append", pool, req, pages, pos, columns)

    def pages(self, op: str, pool: str, req: int, tag: int, pages: np.ndarray, **columns: Any) -> int:
        """Record `op` on `pages`, the array that was really used, under `tag`. Returns the seq."""
        form = self._page_forms.get((op, *columns)) or self._form_of_pages(op, columns)
        used = kept(pages)
        with self.lock:
            self._count_page_row(req)
            return self._queue(form, pool, None, (pool, req, tag, used, *columns.values()))

    def miss(self, table: str, pool: str | None = None, rows: int = 1) -> None:
        """Say that `rows` rows of a chain were not seen: each takes a seq and is left out, which readers take as loss."""
        if table not in TABLES:
            raise TypeError(f"the ledger has no table {table!r}; it has {', '.join(TABLES)}")
        with self.lock:
            if not self._stopping:
                self._seq = self._chains[table][pool] = self._seq + rows

    def page_rows(self, req: int) -> int:
        """How many `pages` rows `req` has had so far."""
        return self._page_rows.get(req, 0)

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
        """Drain, commit and fsync what has been recorded; returns the last seq that is in the stream."""
        return self._drain()

    def close(self, seal: bool = True) -> None:
        """Write the `close` row and (seal) turn the stream into segments. What is recorded later is dropped."""
        with self.lock:
            if self._stopping:
                return
            self._stopping = True
        if self._thread is not None:
            self._wake.set()
            self._thread.join()
        self._drain()
        with self.lock:
            self._room = len(self._ring) + 2  # for these two rows, whatever the disk does
            self._tell_loss()
            own = {**self._chains["workers"], None: self._seq + 1}
            ends = [
                (table if pool is None else f"{table}/{pool}", seq)
                for table, pools in sorted({**self._chains, "workers": own}.items())
                for pool, seq in sorted(pools.items(), key=lambda end: end[0] or "")
            ]
            self.record("workers", "close", chains=[name for name, _ in ends], chain_seqs=[seq for _, seq in ends])
            self._closed, self._room = True, 0
        self._drain()
        with self._drain_lock:
            if seal and self._committed == self._seq:
                self._seal_and_remove()
            self._stream.close()

    def abandon(self) -> None:
        """Let the stream go as a process that dies does: no `close` row, and what was not flushed is lost."""
        with self.lock, self._drain_lock:
            self._stopping = self._closed = True
            self._room = 0
            self._ring.clear()
            self._stream.close()

    def _new_stream(self, path: Path) -> StreamWriter:
        return StreamWriter(path, self._header(), self._durable)

    def _header(self) -> dict[str, Any]:
        return {
            "worker": self.worker, "epoch": self.epoch, "ordinal": self.ordinal, "schema_version": SCHEMA_VERSION,
            "fsync_ms": self._fsync_ms, "created_us": self._now_us(),
        }  # fmt: skip

    def _allocate(self, op: str, pool: str, req: int, pages: np.ndarray, pos: int, columns: dict[str, Any]) -> int:
        with self.lock:
            tag = make_tag(self.ordinal, self.epoch, self._seq + 1)
            self.pages(op, pool, req, tag, pages, pos=pos, **columns)
        return tag

    def _form(self, table: str, op: str, columns: dict[str, Any]) -> Form:
        form = self._forms[table, op, *columns] = Form(table, op, columns)
        form.chain = self._chains[table]
        return form

    def _form_of_pages(self, op: str, columns: dict[str, Any]) -> Form:
        form = self._page_forms[op, *columns] = self._form("pages", op, {**dict.fromkeys(PAGES_GIVEN), **columns})
        return form

    def _queue(self, form: Form, pool: str | None, t: int | None, values: Iterable[Any]) -> int:
        """Queue a row and return its seq. The caller holds the lock."""
        waiting = len(self._ring) + 1
        if waiting > self._room:
            return self._drop(form, pool)
        self._seq = seq = self._seq + 1
        chain = form.chain
        prev, chain[pool] = chain.get(pool, 0), seq
        self._ring.append((form, seq, prev, self._now_us() if t is None else t, *values))
        if waiting % self._wake_rows == 0:
            self._call_drain()
        return seq

    def _drop(self, form: Form, pool: str | None) -> int:
        """A row for which there is no room takes its seq all the same, unless this life is over."""
        if not self._closed:
            self._seq = form.chain[pool] = self._seq + 1
            self._lost += 1
            if self._lost % self._wake_rows == 0:
                self._call_drain()
        return self._seq

    def _call_drain(self) -> None:
        if self._thread is None:
            self._drain()
        else:
            self._wake.set()

    def _count_page_row(self, req: int | None) -> None:
        if req is None:
            return
        self._page_rows[req] = self._page_rows.get(req, 0) + 1
        if len(self._page_rows) > COUNTED_REQUESTS:
            self._page_rows.popitem(last=False)

    def _drain_loop(self) -> None:
        while not self._stopping:
            self._wake.wait(self._fsync_ms / 1000)
            if not self._stopping:
                self._wake.clear()
            try:
                self._drain()
            except Exception as error:  # the thread must live on, whatever a row or the disk does to it
                self.problem = f"{self._stream.path}: the drain failed: {error!r}"

    def _tell_loss(self) -> None:
        """Queue a loss row for what was dropped. The caller holds the lock."""
        lost, self._lost, self._refused = self._lost + self._refused, 0, 0
        if lost:
            self.record("workers", "loss", lost=lost)

    def _drain(self) -> int:
        """Bring all that was recorded before this call into the stream; returns the last seq that is there."""
        with self._drain_lock:
            target = self._seq
            while self._committed < target and self._drain_once():
                pass
            # Never waited for: the thread that holds the lock may itself be waiting to drain.
            if self._lost + self._refused and not self._closed and self.lock.acquire(blocking=False):
                try:
                    if len(self._ring) < self._room:
                        self._tell_loss()
                finally:
                    self.lock.release()
            if self._stream.length >= self._rotate_at and not self._closed:
                self._rotate()
            return self._committed

    def _drain_once(self) -> bool:
        """Move what is in the ring into the stream, commit, fsync; False if there was nothing or the disk failed."""
        if self._waiting is None:
            rows = [self._ring.popleft() for _ in range(len(self._ring))]
            if not rows:
                return False
            self._waiting = self._encoder.encode(rows)
            self._refused += len(self._waiting.refused)
        try:
            self._stream.append(self._waiting.batches, self._waiting.last_seq)
        except OSError as error:
            why = error.strerror or error
            self.problem = f"{self._stream.path}: {why}; rows wait in memory until it can be written"
            return False
        refused = self._waiting.refused
        self.problem = f"rows that fit no schema were dropped, the last: {refused[-1]}" if refused else None
        self._committed, self._waiting = self._waiting.last_seq, None
        return True

    def _rotate(self) -> None:
        """Turn the stream into sealed segments and put a fresh one in its place."""
        try:
            sealed = seal_stream(self.directory, self._stream.path, self._committed, self._durable)
            if sealed.torn_at is not None:
                let_go(self._stream.path, sealed.torn_at, self._durable)
            fresh = self._new_stream(self._stream.path)
        except OSError as error:
            self._tell_seal_problem(error)
            self._rotate_at = self._stream.length + self._rotate_bytes
            return
        self._stream.close()
        self._stream, self._rotate_at = fresh, self._rotate_bytes

    def _seal_and_remove(self) -> None:
        try:
            sealed = seal_stream(self.directory, self._stream.path, self._committed, self._durable)
            let_go(self._stream.path, sealed.torn_at, self._durable)
        except OSError as error:
            self._tell_seal_problem(error)

    def _tell_seal_problem(self, error: OSError) -> None:
        self.problem = f"{self.directory}: {error.strerror or error}; rows stay in {self._stream.path.name}"
