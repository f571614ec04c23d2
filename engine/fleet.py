"""The workers as the gateway knows them: who is up, how many requests each has, and who takes the next one.

Invariant: a worker's death is learned from its connections, not from a timer: one idle connection to each door stays
open, and the kernel closes it when the process ends, however it ends. What failed in one life of a worker says nothing
about its next life.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import httpx

from engine.config import WorkerAddress

log = logging.getLogger(__name__)

RETRY_SECONDS, ANSWER_SECONDS = 0.1, 5.0


@dataclass(eq=False)
class Worker:
    """One worker. `epoch` is its present life, 0 while it is not known to be up."""

    address: WorkerAddress
    epoch: int = 0
    pool_tokens: int = 0  # as last told
    live: int = 0
    doubted: asyncio.Event = field(default_factory=asyncio.Event)
    looked_at: asyncio.Event = field(default_factory=asyncio.Event)

    def state(self) -> dict[str, Any]:
        """For `/server_info`."""
        return {
            "worker": self.address.name, "role": self.address.role, "url": self.address.url, "up": self.epoch > 0,
            "epoch": self.epoch or None, "live_requests": self.live,
        }  # fmt: skip


@dataclass(eq=False)
class Seat:
    """One request's place at a worker, in the life in which it was taken; it counts until it is left."""

    worker: Worker
    epoch: int
    taken: bool = True

    @property
    def there(self) -> bool:
        """Whether the worker still lives the same life, as far as is known."""
        return self.worker.epoch == self.epoch

    def leave(self) -> None:
        """Give the place up; once is enough."""
        if self.taken:
            self.taken = False
            self.worker.live -= 1


class Fleet:
    """All workers of one engine. `on_up` is called whenever a life of a worker is first seen."""

    def __init__(
        self, addresses: Iterable[WorkerAddress], http: httpx.AsyncClient, on_up: Callable[[Worker], None]
    ) -> None:
        self.workers = [Worker(address) for address in addresses]
        self._http, self._on_up = http, on_up
        self._watches: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Begin to watch; returns once every worker was looked at."""
        self._watches = [asyncio.create_task(self._watch(worker)) for worker in self.workers]
        for worker in self.workers:
            await worker.looked_at.wait()

    async def close(self) -> None:
        """Watch no more."""
        for watch in self._watches:
            watch.cancel()
        await asyncio.gather(*self._watches, return_exceptions=True)

    def take(self, role: str, wanted: Worker | None = None) -> Seat | None:
        """A place at the worker of a role that has the fewest requests, the first of equals, or at the one `wanted`
        where it is up; None where none is up."""
        up = [worker for worker in self.workers if worker.address.role == role and worker.epoch]
        if not up:
            return None
        worker = wanted if wanted in up else min(up, key=lambda each: each.live)
        worker.live += 1
        return Seat(worker, worker.epoch)

    def lost(self, seat: Seat) -> None:
        """A connection to a worker failed: nobody is sent there before it has answered again."""
        if seat.there:
            self._down(seat.worker)
            seat.worker.doubted.set()

    async def _watch(self, worker: Worker) -> None:
        while True:
            worker.doubted.clear()
            try:
                await self._stay_connected(worker)
            except (OSError, httpx.HTTPError, ValueError, KeyError, TypeError):
                self._down(worker)
                worker.looked_at.set()
                await asyncio.sleep(RETRY_SECONDS)

    async def _stay_connected(self, worker: Worker) -> None:
        """Returns when a worker's idle connection ends or it is doubted. Raises where it does not answer as it must."""
        url = httpx.URL(worker.address.url)
        reader, writer = await asyncio.open_connection(url.host, url.port)
        try:
            answer = await self._http.get(f"{worker.address.url}/server_info", timeout=ANSWER_SECONDS)
            info = answer.raise_for_status().json()
            if info["worker"] != worker.address.name:
                raise ValueError(f"{worker.address.url} is {info['worker']}")
            self._up(worker, info["epoch"], info["max_total_num_tokens"])
            worker.looked_at.set()
            ends = [asyncio.create_task(reader.read(1)), asyncio.create_task(worker.doubted.wait())]
            try:
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for end in ends:
                    end.cancel()
                await asyncio.gather(*ends, return_exceptions=True)
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def _up(self, worker: Worker, epoch: int, pool_tokens: int) -> None:
        if worker.epoch != epoch:
            worker.epoch, worker.pool_tokens = epoch, pool_tokens
            log.info("%s is up, epoch %d", worker.address.name, epoch)
            self._on_up(worker)

    def _down(self, worker: Worker) -> None:
        if worker.epoch:
            log.warning("%s was lost (epoch %d)", worker.address.name, worker.epoch)
            worker.epoch = 0
