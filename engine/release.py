"""How decode's pages go back: at once, when their writer has drained, or in quarantine.

Invariant: pages under an undrained grant are never freed (but for the fault late-write); a timer proves nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from engine.block_pool import QUARANTINE, tag_runs
from engine.defences import DEFERRED_RELEASE, OWNER_FREE
from engine.request import Request, RequestError, RequestStatus
from engine.transfer import KVReceiver

if TYPE_CHECKING:
    from engine.decode import DecodeEngine


def table_runs(request: Request) -> list[tuple[int, np.ndarray]]:
    """The block table as runs (tag, pages) of one tag each."""
    return [(tag, request.pages[start:stop]) for tag, start, stop in tag_runs(request.tags)]


class Releases:
    """Everything that one decode worker gives back, or keeps until it may."""

    def __init__(self, role: DecodeEngine) -> None:
        self._role, self._pool, self._checks, self._faults = role, role.pool, role.checks, role.faults

    def free(self, request: Request, cause: str) -> None:
        """Every page of a request that nobody writes to any more goes back, or stays with the cache."""
        self._role.grows_no_more(request)
        self._role.prefix.leave(request, cause)
        if cause == "abort" and self._faults.leak.strikes():
            return
        scrub = self._role.parts.holds.scrub
        self._role.others.free(request, cause, scrub)
        # In reverse, so that the free stack gives the pages back in table order.
        for tag, pages in reversed(table_runs(request)):
            kept = pages[request.freed :] if tag == int(request.tags[0]) else pages
            if scrub:
                self._role.scrub(kept)
            self._return(request, tag, kept, cause)
        double = self._faults.double_free
        if (
            len(request.pages)
            and cause == "finish"
            and double.strikes()
            and not self._checks.failed(OWNER_FREE, request.req, expected=1, found=2, pool=self._pool.name)
        ):
            self._pool.free_unchecked(request.req, int(request.tags[0]), request.pages[: double.pages], cause)

    def free_early(self, request: Request) -> None:
        """The fault early-free: prompt pages go while the request goes on reading them."""
        fault, first = self._faults.early_free, request.cached_pages
        if request.freed or len(request.pages) - first <= fault.pages or not fault.strikes():
            return
        last = min(first + fault.pages, self._pool.pages_for(request.prompt_tokens))
        pages, tag = request.pages[first:last], int(request.tags[first])
        if self._checks.failed(OWNER_FREE, request.req, expected=0, found=1, pool=self._pool.name):
            return
        self._role.runs.close()
        self._return(request, tag, pages, "left_window")
        request.freed = len(pages)

    def abort(self, request: Request, error: RequestError) -> None:
        """The mover may still write: tell it, and hold the pages until it has drained (late-write: free at once)."""
        role = self._role
        xfer, receiver = next((x, r) for x, (held, r) in role.transfers.items() if held is request)
        tag = receiver.grant.tag
        self.tell_abort(request, xfer, receiver)
        request.error = error
        role.grows_no_more(request)
        role.prefix.leave(request, "abort")  # nobody writes to what it had of the cache
        if self._faults.late_write.strikes() and not self._checks.failed(
            DEFERRED_RELEASE, request.req, expected=len(request.pages), found=0, pool=self._pool.name
        ):
            del role.transfers[xfer]
            self.free(request, "abort")
            request.move(RequestStatus.ABORTED)
            role.end(request, "abort", error)
            return
        request.move(RequestStatus.HELD)
        policy = role.parts.holds
        request.hold_deadline_us = deadline = role.parts.clock.now_us() + policy.timeout_us
        own = self._pool.owner_tags(request.pages) == tag  # all, but for the fault double-free
        self._pool.hold(request.req, tag, request.pages[own], "abort", deadline=deadline)
        role.others.hold(request, "abort", deadline)
        role.later(policy.timeout_us, lambda: self._timeout(request, tag))
        role.tell_end(request)

    def tell_abort(self, request: Request, xfer: int, receiver: KVReceiver) -> None:
        """Ask the mover to stop, and to say when it has."""
        role, grant = self._role, receiver.grant
        prefill = role.parts.names[receiver.prefill_address]
        role.recorder.record(
            "transfers", "abort", xfer=xfer, room=grant.room, req=request.req, peer=prefill, status="sent",
            dst_tag=grant.tag,
        )  # fmt: skip
        message = {"kind": "abort", "xfer": xfer, "room": grant.room, "tag": grant.tag}
        role.send(prefill, receiver.prefill_address, message)

    def let_go(self, request: Request, cause: str) -> None:
        """A held request's mover has drained, or is waited for no more."""
        role = self._role
        role.transfers = {x: pair for x, pair in role.transfers.items() if pair[0] is not request}
        self.free(request, cause)
        request.move(RequestStatus.ABORTED)
        role.end(request, "abort", request.error)

    def _timeout(self, request: Request, tag: int) -> None:
        """A hold's deadline: its writer has not drained, and a timer does not prove that it will not write."""
        if request.status is not RequestStatus.HELD:
            return
        if self._role.parts.holds.on_timeout == QUARANTINE:
            self._pool.quarantine(request.req, tag, request.pages[self._pool.owner_tags(request.pages) == tag])
            self._role.others.quarantine(request)
        else:
            self.let_go(request, "timeout")

    def _return(self, request: Request, tag: int, pages: np.ndarray, cause: str) -> None:
        """Free pages; under the fault double-free also those that somebody else has by now."""
        own = np.ones(len(pages), np.bool_)
        if self._faults.double_free.struck:
            own[:] = False
            own[np.unique(pages, return_index=True)[1]] = True  # the fault can give one request a page twice
            own &= self._pool.owner_tags(pages) == tag
        self._pool.free(request.req, tag, pages[own], cause)
        if not own.all():
            self._pool.free_unchecked(request.req, tag, pages[~own], cause)
