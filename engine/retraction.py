"""Running requests that give their pages up when the pool runs short, and get them back later.

Invariant: a retracted request's KV lies whole in the host pool until it runs again or ends; its pages on the device
are freed only after the copy is done, and what comes back lands under a new tag before the request reads again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from engine.block_pool import BlockPool, tag_runs
from engine.ledger.tag import make_tag
from engine.request import PageTable, Request, RequestStatus

if TYPE_CHECKING:
    from engine.decode import DecodeEngine


@dataclass(frozen=True)
class Place:
    """Where a retracted request's KV lies: host `pages` (int32 [n]) under `tag`, those of `kv` first and then those of
    each of `others`, the tables that it had of other pools."""

    pages: np.ndarray
    tag: int
    kv: int
    others: dict[str, PageTable]


class Retraction:
    """The host pool of one decode worker as a place for retracted requests."""

    def __init__(self, role: DecodeEngine, host: BlockPool) -> None:
        self._role, self.host = role, host
        self.waiting: deque[Request] = deque()
        self._places: dict[int, Place] = {}  # by req

    def retract(self, request: Request) -> bool:
        """Move a running request's KV to the host pool and free its pages; False where the host pool is too full."""
        role, others = self._role, request.others
        count = len(request.pages) + sum(len(table.pages) for table in others.values())
        if self.host.free_pages < count:
            return False
        role.runs.close()
        role.row(request, "pause", reason="retracted")
        pages, tag = self.host.reserve(request.req, count)
        place = self._places[request.req] = Place(pages, tag, len(request.pages), others)
        for pool, first, table, kept in self._tables(request, place):
            for src_tag, start, stop in tag_runs(table.tags):
                moved = table.pages[start:stop], kept[start:stop]
                self._copy(request, (pool, self.host), moved, src_tag, tag, first + start)
        role.let_go(request, "retract")
        request.move(RequestStatus.RETRACTED)
        request.pages, request.tags = np.zeros(0, np.int32), np.zeros(0, np.int64)
        self.waiting.append(request)
        return True

    def resume(self) -> bool:
        """Let retracted requests run again for which there are pages, first retracted first; True where one did."""
        resumed = False
        while self.waiting:
            request = self.waiting[0]
            role, place = self._role, self._places[request.req]
            if not role.prefix.fits(None, place.kv + 1) or not role.others.room_for(place.others):
                break
            role.runs.close()
            self.waiting.popleft()
            role.prefix.make_room(place.kv)
            request.pages, tag = role.pool.reserve(request.req, place.kv)
            request.tags = np.full(len(request.pages), tag, np.int64)
            role.others.take_back(request, place.others, role.final_tokens(request))
            for pool, first, table, kept in self._tables(request, place):
                self._copy(request, (self.host, pool), (kept, table.pages), place.tag, int(table.tags[0]), first)
            self._forget(request, "drained")
            written = request.prompt_tokens + request.output_tokens - 1
            role.recorder.pages("bind", role.pool.name, request.req, tag, request.pages, pos=0, tokens=written)
            role.others.bind(request, written)
            request.move(RequestStatus.RUNNING)
            role.take_up(request)
            resumed = True
        return resumed

    def tables(self) -> dict[int, np.ndarray]:
        """By request, the host pages (int32 [n]) that hold it."""
        return {req: place.pages for req, place in self._places.items()}

    def give_up(self, request: Request) -> None:
        """A retracted request ends where it is."""
        self.waiting.remove(request)
        self._forget(request, "abort")

    def _forget(self, request: Request, cause: str) -> None:
        place = self._places.pop(request.req)
        self.host.free(request.req, place.tag, place.pages, cause)

    def _tables(
        self, request: Request, place: Place
    ) -> Iterator[tuple[BlockPool, int, Request | PageTable, np.ndarray]]:
        """Each pool, the place of its first page in the request's table, its pages there and its pages on the host."""
        yield self._role.pool, 0, request, place.pages[: place.kv]
        done = place.kv
        for name, table in request.others.items():
            yield self._role.others.pools[name], table.first, table, place.pages[done : done + len(table.pages)]
            done += len(table.pages)

    def _copy(
        self, request: Request, pools: tuple[BlockPool, BlockPool], pages: tuple[np.ndarray, np.ndarray], src_tag: int,
        dst_tag: int, pos: int,
    ) -> None:  # fmt: skip
        """Pages of one source tag from one pool of this worker to another: a transfer whose peer is the worker itself."""
        role, recorder = self._role, self._role.recorder
        columns = {
            "req": request.req, "dir": "push", "chunk": 0, "peer": role.parts.worker, "src_pool": pools[0].name,
            "dst_pool": pools[1].name, "src_pages": pages[0], "dst_pages": pages[1], "src_tag": src_tag,
            "dst_tag": dst_tag, "n": len(pages[0]), "pos": pos,
        }  # fmt: skip
        with recorder.lock:
            xfer = make_tag(recorder.ordinal, recorder.epoch, recorder.seq + 1)
            recorder.record("transfers", "post", xfer=xfer, **columns)
        count = role.parts.executor.copy(pools[0].name, pages[0], pools[1].name, pages[1], dst_tag)
        recorder.record("transfers", "done", xfer=xfer, **columns, bytes=count)
