"""Running requests that give their pages up when the pool runs short, and get them back later.

Invariant: a retracted request's KV lies whole in the host pool until it runs again or ends; its pages on the device
are freed only after the copy is done, and what comes back lands under a new tag before the request reads again.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import numpy as np

from engine.block_pool import BlockPool, tag_runs
from engine.ledger.tag import make_tag
from engine.request import Request, RequestStatus

if TYPE_CHECKING:
    from engine.decode import DecodeEngine


class Retraction:
    """The host pool of one decode worker as a place for retracted requests."""

    def __init__(self, role: DecodeEngine, host: BlockPool) -> None:
        self._role, self.host = role, host
        self.waiting: deque[Request] = deque()
        self._places: dict[int, tuple[np.ndarray, int]] = {}  # req -> host pages and their tag

    def retract(self, request: Request) -> bool:
        """Move a running request's KV to the host pool and free its pages; False where the host pool is too full."""
        role, count = self._role, len(request.pages)
        if self.host.free_pages < count:
            return False
        role.runs.close()
        role.row(request, "pause", reason="retracted")
        pages, tag = self.host.reserve(request.req, count)
        for src_tag, start, stop in tag_runs(request.tags):
            self._copy(
                request, (role.pool, self.host), (request.pages[start:stop], pages[start:stop]), src_tag, tag, start
            )
        role.let_go(request, "retract")
        self._places[request.req] = pages, tag
        request.move(RequestStatus.RETRACTED)
        request.pages, request.tags = np.zeros(0, np.int32), np.zeros(0, np.int64)
        self.waiting.append(request)
        return True

    def resume(self) -> bool:
        """Let retracted requests run again for which there are pages, first retracted first; True where one did."""
        resumed = False
        while self.waiting:
            request = self.waiting[0]
            host_pages, host_tag = self._places[request.req]
            if self._role.pool.free_pages < len(host_pages) + 1:
                break
            self.waiting.popleft()
            role = self._role
            request.pages, tag = role.pool.reserve(request.req, len(host_pages))
            request.tags = np.full(len(request.pages), tag, np.int64)
            self._copy(request, (self.host, role.pool), (host_pages, request.pages), host_tag, tag, 0)
            self._forget(request, "drained")
            role.recorder.pages("bind", role.pool.name, request.req, tag, request.pages)
            role.row(request, "resume")
            request.move(RequestStatus.RUNNING)
            role.take_up(request)
            resumed = True
        return resumed

    def give_up(self, request: Request) -> None:
        """A retracted request ends where it is."""
        self.waiting.remove(request)
        self._forget(request, "abort")

    def _forget(self, request: Request, cause: str) -> None:
        pages, tag = self._places.pop(request.req)
        self.host.free(request.req, tag, pages, cause)

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
