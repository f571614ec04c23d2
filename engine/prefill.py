"""The prefill role: bootstrap queue, prompt passes, and the writes that hand KV over.

Invariant: source pages stay owned until every write of their handoff is done or was never posted; an `ack` with
outstanding 0 is sent only then.
"""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from dataclasses import dataclass, field

import numpy as np

from engine.defences import ADMISSION_GATE, PAGE_TAG
from engine.executor import PrefillWork
from engine.integrity import CheckMode
from engine.request import Request, RequestError, RequestStatus
from engine.role import Parts, Role
from engine.transfer import Grant, KVPoll, KVSender
from engine.transport import Callbacks, Transport, WriteBatch
from engine.wire import Message

log = logging.getLogger(__name__)

REMEMBERED_REFUSALS = 4096


@dataclass
class _Computing:
    """A request between its grant and the end of its writes."""

    request: Request
    sender: KVSender
    tokens: np.ndarray
    done: int = 0
    first_token: int | None = None
    failed: str | None = None
    outstanding: int = 0  # batches submitted and neither landed, failed nor cancelled


@dataclass
class PrefillBootstrapQueue:
    """Rooms for which request or grant is still to come, and what the one that comes too late is to be told."""

    requests: dict[int, Request] = field(default_factory=dict)
    grants: dict[int, Grant] = field(default_factory=dict)
    refused: OrderedDict[int, RequestError] = field(default_factory=OrderedDict)

    def refuse(self, room: int, error: RequestError) -> None:
        """Remember why `room` is dead. What never comes to ask is forgotten, the oldest first."""
        self.refused[room] = error
        while len(self.refused) > REMEMBERED_REFUSALS:
            self.refused.popitem(last=False)

    def ready(self) -> list[int]:
        """Rooms that have both."""
        return [room for room in self.requests if room in self.grants]


class PrefillEngine(Role):
    """Computes prompts and writes their KV into the pages that decode granted."""

    def __init__(self, parts: Parts, transport: Transport) -> None:
        super().__init__(parts)
        self.transport = transport
        self.queue = PrefillBootstrapQueue()
        self._waiting: deque[_Computing] = deque()
        self._computing: dict[int, _Computing] = {}  # xfer -> what is computed or written
        self._connected: dict[str, Message] = {}
        self._landed: deque[tuple[int, str | None]] = deque()  # from the writer thread: xfer, error

    def admit(self, request: Request) -> None:
        """See `Role`. An over-pool prompt is refused here, or (fault short-handoff) swapped for a placeholder."""
        dead = self.queue.refused.pop(request.given.room, None)
        if dead is not None:
            request.move(RequestStatus.ABORTED)
            self.end(request, "abort", dead)
            return
        refusal = self.parts.limits.refusal(request.prompt_tokens, request.given.max_tokens)
        if refusal is not None:
            error = refusal.error
            enforced = self.checks.failed(
                ADMISSION_GATE, request.req, expected=refusal.limit, found=refusal.found, pool=self.pool.name
            )
            if enforced or not (refusal.over_pool and self.faults.short_handoff.on):
                self._refuse_room(request.given.room, error)
                self.reject(request, error)
                return
            # As upstream: the rejection is noted, and the request goes on with a stub for a prompt.
            self._row(request, "reject", status=str(error.status), reason=error.code)
        else:
            self._row(request, "admit")
        request.move(RequestStatus.WAITING)
        self._row(request, "room", room=request.given.room)
        self.queue.requests[request.given.room] = request
        self._start_ready()

    def handle(self, message: Message) -> None:
        """See `Role`."""
        if message["kind"] == "grant":
            self._on_grant(message)
        elif message["kind"] == "abort":
            self._on_abort(message)
        elif message["kind"] == "withdraw":
            refused_here_too = self.queue.refused.pop(message["room"], None) is not None
            if not refused_here_too:
                self._bury(message["room"], RequestError(*message["error"]))

    def give_up(self, request: Request, error: RequestError) -> None:
        """See `Role`. The door closed its side: nothing is cancelled here before decode says so."""
        if request.given.room in self.queue.requests and request.given.room not in self.queue.grants:
            del self.queue.requests[request.given.room]
            self._refuse_room(request.given.room, error)
            request.move(RequestStatus.ABORTED)
            self.end(request, "abort", error)

    def release_writes(self) -> None:
        """See `Role`."""
        self.transport.ungate()

    def close(self) -> None:
        """See `Role`; what was not posted never will be."""
        self.transport.close()
        super().close()

    def work(self) -> bool:
        """See `Role`."""
        busy = self._take_landed()
        batch = [] if self.paused else self._next_batch()
        if batch:
            self._compute(batch)
        return busy or bool(batch)

    def _refuse_room(self, room: int, error: RequestError) -> None:
        grant = self.queue.grants.pop(room, None)
        if grant is None:
            self.queue.refuse(room, error)
        else:
            self._ack(KVSender(grant), 0, "failed", error=error)

    def _on_grant(self, message: Message) -> None:
        grant = Grant(
            message["xfer"], message["room"], message["rid"], message["tag"], np.array(message["pages"], np.int32),
            message["from"], message["at"],
        )  # fmt: skip
        problem = self._connect(message)
        refused = self.queue.refused.pop(grant.room, None)
        if refused is None and problem is not None:
            refused = RequestError(502, "geometry_refused", problem)
            self._bury(grant.room, refused)
        if refused is not None:
            self._ack(KVSender(grant), 0, "failed", error=refused)
            return
        self.queue.grants[grant.room] = grant
        self._start_ready()

    def _bury(self, room: int, error: RequestError) -> None:
        """A room comes to nothing: end its request, now or when it arrives."""
        request = self.queue.requests.pop(room, None)
        if request is None:
            self.queue.refuse(room, error)
        else:
            request.move(RequestStatus.ABORTED)
            self.end(request, "abort", error)

    def _connect(self, message: Message) -> str | None:
        """Make the granting worker's pool writable; says why it cannot be."""
        if self._connected.get(message["from"]) == message["memory"]:
            return None
        try:
            self.transport.connect(message["from"], message["memory"])
        except (ValueError, OSError) as error:
            return str(error)
        self._connected[message["from"]] = message["memory"]
        return None

    def _start_ready(self) -> None:
        for room in self.queue.ready():
            request, sender = self.queue.requests.pop(room), KVSender(self.queue.grants.pop(room))
            over = request.prompt_tokens > self.parts.limits.pool_tokens
            tokens = self.faults.short_handoff.placeholder if over else request.given.tokens
            sender.move(KVPoll.WAITING_FOR_INPUT)
            self._waiting.append(_Computing(request, sender, np.array(tokens, np.int32)))

    def _next_batch(self) -> list[tuple[_Computing, int]]:
        """Chunks for one pass: (who, how many tokens), at most `batch_tokens` in all."""
        budget, batch = self.parts.pace.batch_tokens, []
        while self._waiting and self.pool.free_pages >= self.pool.pages_for(len(self._waiting[0].tokens)):
            item = self._waiting.popleft()
            item.request.pages, tag = self.pool.reserve(item.request.req, self.pool.pages_for(len(item.tokens)))
            item.request.tags = np.full(len(item.request.pages), tag, np.int64)
            item.request.move(RequestStatus.RUNNING)
            self._computing[item.sender.grant.xfer] = item
        for item in self._computing.values():
            if item.request.status is RequestStatus.RUNNING and budget > 0:
                count = min(self.parts.pace.chunk_tokens, len(item.tokens) - item.done, budget)
                batch.append((item, count))
                budget -= count
        return batch

    def _compute(self, batch: list[tuple[_Computing, int]]) -> None:
        """One pass over the chunks, and its rows: writes, binds, the steps run, first tokens."""
        works = [self._work(item, count) for item, count in batch]
        check = self.checks.mode(PAGE_TAG) is not CheckMode.OFF
        since, start = self.recorder.seq, self.parts.clock.now_us()
        results = self.parts.executor.prefill(works, check_tags=check, step=self.runs.next_step())
        end = self.parts.clock.now_us()
        page_tokens = self.pool.page_tokens
        for (item, count), work in zip(batch, works, strict=True):
            first = work.start // page_tokens
            pages, tag = work.pages[first:], int(work.tags[0])
            columns = {"pos": first, "tok_off": work.start % page_tokens, "tokens": count}
            self.recorder.pages("write", self.pool.name, item.request.req, tag, pages, since_seq=since, **columns)
            self.recorder.pages("bind", self.pool.name, item.request.req, tag, pages, **columns)
            item.done += count
        self.runs.note(
            "prefill", tuple(work.req for work in works), since, start, end, sum(count for _, count in batch)
        )
        self.runs.close()
        for (item, _), result in zip(batch, results, strict=True):
            if result.mismatches:
                worst = result.mismatches[0]
                message = f"page {worst.page} does not hold this request's content"
                if self.checks.failed(
                    PAGE_TAG, item.request.req, expected=worst.expected, found=worst.found, pool=self.pool.name,
                    page=worst.page, step=self.runs.steps, n=len(result.mismatches),
                ):  # fmt: skip
                    item.failed = message
            if item.failed:
                self._drained(item)
            elif item.done == len(item.tokens):
                item.first_token = result.token
                self._row(item.request, "first_token")
                self._hand_over(item)

    def _work(self, item: _Computing, count: int) -> PrefillWork:
        covered = self.pool.pages_for(item.done + count)
        return PrefillWork(
            item.request.req, item.request.stamp, item.tokens[item.done : item.done + count], item.done,
            item.request.pages[:covered], item.request.tags[:covered],
        )  # fmt: skip

    def _hand_over(self, item: _Computing) -> None:
        item.request.move(RequestStatus.TRANSFERRING)
        sender, xfer = item.sender, item.sender.grant.xfer
        sender.move(KVPoll.TRANSFERRING)
        if self.faults.late_write.take(xfer, item.request.given.rid):
            self.transport.gate(xfer)
        batches = sender.batches(item.request.pages, len(item.tokens), self.pool.page_tokens, self.parts.pace.transfer_pages)
        item.outstanding = len(batches)
        for batch in batches:
            self.transport.submit(batch, self._callbacks(item, batch))

    def _callbacks(self, item: _Computing, batch: WriteBatch) -> Callbacks:
        columns = {
            "xfer": batch.xfer, "room": batch.room, "req": item.request.req, "dir": "push", "chunk": batch.chunk,
            "peer": batch.dst, "src_pool": self.pool.name, "dst_pool": self.pool.name,
            "src_tag": int(item.request.tags[0]), "dst_tag": batch.dst_tag,
            "n": len(batch.src_pages), "pos": batch.chunk * self.parts.pace.transfer_pages,
        }  # fmt: skip
        lists = {"src_pages": batch.src_pages.tolist(), "dst_pages": batch.dst_pages.tolist()}

        def post() -> None:
            self.recorder.record("transfers", "post", **columns, **lists)

        def done(count: int) -> None:
            self.recorder.record("transfers", "done", **columns, **lists, bytes=count)
            self._landed.append((batch.xfer, None))

        def failed(message: str) -> None:
            self.recorder.record("transfers", "fail", **columns, **lists, status=message)
            self._landed.append((batch.xfer, message))

        return Callbacks(post, done, failed)

    def _take_landed(self) -> bool:
        busy = bool(self._landed)
        while self._landed:
            xfer, error = self._landed.popleft()
            item = self._computing[xfer]
            item.outstanding -= 1
            item.failed = item.failed or error
            if item.outstanding == 0:
                self._drained(item)
        return busy

    def _drained(self, item: _Computing) -> None:
        """Nothing of this handoff is outstanding any more: tell decode, and let the source pages go."""
        request, sender = item.request, item.sender
        del self._computing[sender.grant.xfer]
        self.faults.late_write.gated.pop(sender.grant.xfer, None)
        error = RequestError(502, "transfer_failed", item.failed) if item.failed else None
        result = "failed" if error else "aborted" if sender.aborted else "success"
        sender.move(KVPoll.SUCCESS if result == "success" else KVPoll.FAILED)
        self._ack(sender, 0, result, item, error)
        tag, cause = int(request.tags[0]), "sent" if result == "success" else "error" if error else "abort"
        bound = request.pages[: self.pool.pages_for(item.done)]
        if len(bound):
            self.recorder.pages("unbind", self.pool.name, request.req, tag, bound, cause=cause)
        self.pool.free(request.req, tag, request.pages, cause)
        if sender.aborted:
            error = RequestError(499, "aborted", "aborted by decode")
        request.move(RequestStatus.ABORTED if error else RequestStatus.FINISHED)
        self.end(request, "abort" if error else "finish", error)

    def _ack(
        self,
        sender: KVSender,
        outstanding: int,
        result: str,
        item: _Computing | None = None,
        error: RequestError | None = None,
    ) -> None:
        grant = sender.grant
        sender.told_outstanding = outstanding
        self.recorder.record(
            "transfers", "ack", xfer=grant.xfer, room=grant.room, req=item.request.req if item else None,
            peer=grant.decode, outstanding=outstanding, status="sent", dst_tag=grant.tag,
        )  # fmt: skip
        message: Message = {"kind": "ack", "xfer": grant.xfer, "outstanding": outstanding, "result": result}
        if item is not None and result == "success":
            message |= {"first_token": item.first_token, "covered_tokens": len(item.tokens)}
        if error is not None:
            message["error"] = error.packed()
        self.send(grant.decode, grant.decode_address, message)

    def _on_abort(self, message: Message) -> None:
        """Decode gave up: drop what is not posted, and tell it when nothing is outstanding."""
        xfer, room = message["xfer"], message["room"]
        self.recorder.record(
            "transfers", "abort", xfer=xfer, room=room, peer=message["from"], status="received", dst_tag=message["tag"]
        )
        item = self._computing.get(xfer) or next((i for i in self._waiting if i.sender.grant.xfer == xfer), None)
        if item is None:
            self._abort_before_start(xfer, room, message)
            return
        item.sender.aborted = True
        if item in self._waiting:
            self._waiting.remove(item)
            item.sender.move(KVPoll.FAILED)
            self._ack(item.sender, 0, "aborted")
            item.request.move(RequestStatus.ABORTED)
            self.end(item.request, "abort", RequestError(499, "aborted", "aborted by decode"))
        elif item.request.status is RequestStatus.RUNNING:
            if not self.faults.late_write.on:
                self._drained(item)
        else:
            if not self.faults.late_write.on:
                item.outstanding -= self.transport.cancel(xfer)
            if item.outstanding:
                self._ack(item.sender, item.outstanding, "aborted", item)
            else:
                self._drained(item)

    def _abort_before_start(self, xfer: int, room: int, message: Message) -> None:
        """The room has a grant but no request yet (it may still come), or its handoff is already over."""
        grant = self.queue.grants.pop(room, None)
        if grant is not None and grant.xfer == xfer:
            self.queue.refuse(room, RequestError(499, "aborted", "aborted by decode"))
            self._ack(KVSender(grant), 0, "aborted")
