"""Prefill's side of handoffs once a prompt is computed: writes, what became of them, and what decode is told.

Invariant: source pages stay owned until every write of their handoff is done or was never posted; an `ack` with
outstanding 0 is sent only then. Faults break either, and the defences against them say so.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from engine.block_pool import tag_runs
from engine.components import sent
from engine.defences import DRAIN_COUNT, GEOMETRY, SOURCE_HOLD
from engine.faults import EarlyAck, LateWrite, LostAck, shifted
from engine.request import Request, RequestError, RequestStatus
from engine.transfer import KVPoll, KVSender
from engine.transport import Callbacks, Transport, WriteBatch
from engine.wire import Message

if TYPE_CHECKING:
    from engine.role import Role


@dataclass
class Computing:
    """A request between its grant and the end of its writes. `tokens` is what is computed of it."""

    request: Request
    sender: KVSender
    tokens: Sequence[int]
    done: int = 0
    first_token: int | None = None
    failed: str | None = None
    outstanding: int = 0  # batches submitted and neither landed, failed nor cancelled
    batch_pages: int = 0
    cached_tokens: int = 0
    landed_tokens: int = 0
    handed_over: bool = False
    source_freed: bool = False
    told_drained: bool = False
    broken: set[int] = field(default_factory=set)  # chunks whose failure the fault fail-open hides
    landed_beside: Counter[str] = field(default_factory=Counter)  # pool beside `kv` -> tokens that landed there


class Handovers:
    """Every handoff of one prefill worker between its first write and its last."""

    def __init__(self, role: Role, transport: Transport) -> None:
        self.role, self.transport = role, transport
        self.recorder, self.pool, self.faults, self.checks = role.recorder, role.pool, role.faults, role.checks
        self.items: dict[int, Computing] = {}  # xfer -> what is computed or written
        self._landed: deque[tuple[WriteBatch, str | None]] = deque()  # from the writer: batch, error
        self._empty: deque[Computing] = deque()  # that had nothing to write

    def start(self, item: Computing) -> None:
        """Submit every write of a handoff."""
        sender, xfer, faults = item.sender, item.sender.grant.xfer, self.faults
        item.handed_over = True
        item.request.move(RequestStatus.TRANSFERRING)
        sender.move(KVPoll.TRANSFERRING)
        if faults.late_write.take(xfer, item.request.given.rid):
            self.transport.gate(xfer)
        item.batch_pages = self.transport.batch_pages(sender.grant.room, self.role.parts.pace.transfer_pages)
        batches = self._batches(item)
        if not batches:
            self._empty.append(item)
        elif faults.fail_open.strikes():
            item.broken.add(faults.fail_open.batch_of(len(batches)))
        item.outstanding = len(batches)
        for batch in self._addressed(item, batches):
            if batch.chunk in item.broken:
                self.transport.spoil(xfer, batch.chunk)
            self.transport.submit(batch, self._callbacks(item, batch))
        if faults.source_reuse.strikes() and not self.checks.failed(
            SOURCE_HOLD, item.request.req, expected=item.outstanding, found=0, pool=self.pool.name
        ):
            self._free_source(item, "sent")
            item.source_freed = True

    def _batches(self, item: Computing) -> list[WriteBatch]:
        """Everything that a handoff writes, pool after pool, of `kv` what decode does not have; under the fault
        partial-state less of one."""
        request, size, partial = item.request, self.pool.page_tokens, self.faults.partial_state
        strikes = partial.component in (self.pool.name, *request.others) and partial.strikes()
        had = item.sender.grant.head_tokens
        head = had // size
        pages, tags = request.pages[head:], request.tags[head:]
        whole = partial.kept(len(pages)) if strikes and partial.component == self.pool.name else None
        batches = item.sender.batches(
            pages[:whole], tags[:whole], len(item.tokens) - had, size, item.batch_pages, place=head
        )
        for to, table in sent(item.sender.grant, request):
            tokens = self.role.others.tokens_in(to.pool, table, len(item.tokens))
            kept = partial.kept(len(table.pages)) if strikes and partial.component == to.pool else None
            batches += item.sender.batches(
                table.pages[:kept], table.tags[:kept], tokens, size, item.batch_pages, to, table.first, len(batches)
            )
        return batches

    def _addressed(self, item: Computing, batches: list[WriteBatch]) -> list[WriteBatch]:
        """The batches as they go out: each page to the place that was granted for it, but for the fault shifted-pages."""
        if not self.faults.shifted_pages.strikes():
            return batches
        grant = item.sender.grant
        limits = {self.pool.name: grant.pool_pages} | {one.pool: one.pool_pages for one in grant.others}
        wrong = [batch.to(shifted(batch.dst_pages, limits[batch.pool])) for batch in batches]
        for name in limits:
            granted, sent = (
                np.concatenate([np.empty(0, np.int32), *(b.dst_pages for b in some if b.pool == name)])
                for some in (batches, wrong)
            )
            astray = np.flatnonzero(sent != granted)
            if len(astray) and self.checks.failed(
                GEOMETRY, item.request.req, expected=int(granted[astray[0]]), found=int(sent[astray[0]]), pool=name,
                page=int(sent[astray[0]]), n=len(astray),
            ):  # fmt: skip
                return batches
        return wrong

    def take_landed(self) -> bool:
        """Note what the writer has finished; True where there was anything."""
        busy = bool(self._landed or self._empty)
        while self._empty:
            item = self._empty.popleft()
            if self.items.get(item.sender.grant.xfer) is item:  # and was not aborted meanwhile
                self.drained(item)
        while self._landed:
            batch, error = self._landed.popleft()
            item = self.items[batch.xfer]
            item.outstanding -= 1
            if error is None and batch.pool != self.pool.name:
                item.landed_beside[batch.pool] += int(batch.tokens.sum())
            elif error is None:
                item.landed_tokens += int(batch.tokens.sum())
            elif batch.chunk not in item.broken:
                item.failed = item.failed or error
            if item.outstanding == 0:
                self.drained(item)
        return busy

    def drained(self, item: Computing) -> None:
        """Nothing of this handoff is outstanding any more: tell decode, and let the source pages go."""
        request, sender = item.request, item.sender
        del self.items[sender.grant.xfer]
        self.faults.late_write.gated.pop(sender.grant.xfer, None)
        error = RequestError(502, "transfer_failed", item.failed) if item.failed else None
        result = "failed" if error else "aborted" if sender.aborted else "success"
        sender.move(KVPoll.SUCCESS if result == "success" else KVPoll.FAILED)
        if not item.told_drained:
            self._tell_drained(item, result, error)
        if not item.source_freed:
            self._free_source(item, "sent" if result == "success" else "error" if error else "abort")
        if sender.aborted:
            error = RequestError(499, "aborted", "aborted by decode")
        request.move(RequestStatus.ABORTED if error else RequestStatus.FINISHED)
        self.role.end(request, "abort" if error else "finish", error)

    def aborted(self, item: Computing) -> None:
        """Decode gave up a handoff that has been handed over: drop what is not posted, and say what is outstanding."""
        faults = self.faults
        for fault in (faults.late_write, faults.early_ack, faults.lost_ack):
            if fault.strikes() and (
                fault is faults.late_write
                or not self.checks.failed(
                    DRAIN_COUNT, item.request.req, expected=item.outstanding, found=0, pool=self.pool.name
                )
            ):
                self._write_on(item, fault)
                return
        item.outstanding -= self.transport.cancel(item.sender.grant.xfer)
        if item.outstanding:
            self.ack(item.sender, item.outstanding, "aborted", item)
        else:
            self.drained(item)

    def _write_on(self, item: Computing, fault: LateWrite | EarlyAck | LostAck) -> None:
        """The faults of an abort: writes go on, and decode is told the truth, too little or nothing."""
        xfer = item.sender.grant.xfer
        if fault.delay_us:
            self.transport.gate(xfer)
            self.role.later(fault.delay_us, lambda: self.transport.ungate(xfer))
        item.told_drained = fault is not self.faults.late_write
        if fault is self.faults.early_ack:
            self.ack(item.sender, 0, "aborted", item)
        elif fault is self.faults.late_write:
            self.ack(item.sender, item.outstanding, "aborted", item)

    def ack(
        self,
        sender: KVSender,
        outstanding: int,
        result: str,
        item: Computing | None = None,
        error: RequestError | None = None,
    ) -> None:
        """Tell decode how much of a handoff is outstanding, and its result."""
        grant = sender.grant
        sender.told_outstanding = outstanding
        self.recorder.record(
            "transfers", "ack", xfer=grant.xfer, room=grant.room, req=item.request.req if item else None,
            peer=grant.decode, outstanding=outstanding, status="sent", dst_tag=grant.tag,
        )  # fmt: skip
        message: Message = {"kind": "ack", "xfer": grant.xfer, "outstanding": outstanding, "result": result}
        if item is not None and result == "success":
            message |= {
                "first_token": item.first_token,
                "covered_tokens": item.landed_tokens,
                "cached_tokens": item.cached_tokens,
            }
            if item.request.others:
                message["covered_beside"] = dict(item.landed_beside)
        if error is not None:
            message["error"] = error.packed()
        self.role.send(grant.decode, grant.decode_address, message)

    def _tell_drained(self, item: Computing, result: str, error: RequestError | None) -> None:
        slow = self.faults.slow_drain
        if item.sender.aborted and slow.strikes():
            self.role.later(slow.delay_us, lambda: self.ack(item.sender, 0, result, item, error))
        else:
            self.ack(item.sender, 0, result, item, error)

    def _free_source(self, item: Computing, cause: str) -> None:
        request = item.request
        bound = self.pool.pages_for(item.done) if item.done > item.cached_tokens else 0
        for tag, start, stop in tag_runs(request.tags[:bound]):
            self.recorder.pages("unbind", self.pool.name, request.req, tag, request.pages[start:stop], cause=cause)
        prefix = self.role.parts.prefix
        own = prefix.leave(request) if prefix is not None else [(int(request.tags[0]), request.pages)]
        for tag, pages in own:
            if self.role.parts.holds.scrub:
                self.role.scrub(pages)
            self.pool.free(request.req, tag, pages, cause)
        self.role.others.unbind(request, cause)
        self.role.others.free(request, cause, self.role.parts.holds.scrub)

    def _callbacks(self, item: Computing, batch: WriteBatch) -> Callbacks:
        columns = {
            "xfer": batch.xfer, "room": batch.room, "req": item.request.req, "dir": "push", "chunk": batch.chunk,
            "peer": batch.dst, "src_pool": batch.pool, "dst_pool": batch.pool,
            "src_tag": batch.src_tag, "dst_tag": batch.dst_tag, "n": len(batch.src_pages),
            "pos": batch.pos,
        }  # fmt: skip
        lists = {"src_pages": batch.src_pages, "dst_pages": batch.dst_pages}

        def post() -> None:
            self.recorder.record("transfers", "post", **columns, **lists)

        def done(count: int) -> None:
            self.recorder.record("transfers", "done", **columns, **lists, bytes=count)
            self._landed.append((batch, None))

        def failed(message: str, count: int | None) -> None:
            self.recorder.record("transfers", "fail", **columns, **lists, status=message, bytes=count)
            self._landed.append((batch, message))

        def failed_on(message: str, rank: int, count: int) -> None:
            self.recorder.record("transfers", "fail", **columns, **lists, status=message, bytes=count, rank=rank)
            self._landed.append((batch, message))

        return Callbacks(post, done, failed, failed_on)
