"""The prefill role: bootstrap queue, prompt passes, and the writes that hand KV over.

Invariant: source pages stay owned until every write of their handoff is done or was never posted; an `ack` with
outstanding 0 is sent only then.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from engine import components
from engine.block_pool import tag_runs
from engine.bootstrap_queue import PrefillBootstrapQueue
from engine.defences import ADMISSION_GATE, COMPUTE_ORDER, PAGE_TAG, ROOM_UNIQUE
from engine.executor import PrefillWork
from engine.handover import Computing, Handovers
from engine.integrity import CheckMode
from engine.ledger.tag import split_tag
from engine.request import Request, RequestError, RequestStatus
from engine.role import Parts, Role
from engine.transfer import Grant, KVPoll, KVSender
from engine.transport import Transport
from engine.wire import Message


class PrefillEngine(Role):
    """Computes prompts and writes their KV into the pages that decode granted."""

    def __init__(self, parts: Parts, transport: Transport) -> None:
        super().__init__(parts)
        self.transport, self.prefix = transport, parts.prefix
        self.queue = PrefillBootstrapQueue()
        self.handovers = Handovers(self, transport)
        self._computing = self.handovers.items
        self._waiting: deque[Computing] = deque()
        self._connected: dict[str, Message] = {}

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
            self.row(request, "reject", status=str(error.status), reason=error.code)
        else:
            self.row(request, "admit")
        request.move(RequestStatus.WAITING)
        self.row(request, "room", room=request.given.room)
        self.queue.add_request(request)
        self._start(request.given.room)

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
        if self.queue.take_request(request.given.room, request) is not None:
            self._refuse_room(request.given.room, error)
            request.move(RequestStatus.ABORTED)
            self.end(request, "abort", error)

    def peer_reborn(self, peer: str, epoch: int) -> None:
        """See `Role`. What was granted by the former life is not written any more."""
        for grant in self.queue.of_peer(peer):
            if split_tag(grant.tag).epoch < epoch:
                self.queue.take_grant(grant.room, grant)
                self.queue.refuse(grant.room, RequestError(502, "worker_lost", "the decode worker went away"))
        for item in [*self._waiting, *self._computing.values()]:
            grant = item.sender.grant
            if grant.decode == peer and split_tag(grant.tag).epoch < epoch and not item.sender.aborted:
                self._abort(item)

    def end(self, request: Request, op: str, error: RequestError | None) -> None:
        """See `Role`."""
        if self.prefix is not None:
            self.prefix.forget(request)
        super().end(request, op, error)

    def release_writes(self) -> None:
        """See `Role`."""
        self.transport.ungate()

    def close(self) -> None:
        """See `Role`; what was not posted never will be."""
        self.transport.close()
        super().close()

    def work(self) -> bool:
        """See `Role`."""
        busy = self.handovers.take_landed()
        batch = [] if self.paused else self._next_batch()
        if batch:
            self._compute(batch)
        return busy or bool(batch)

    def _refuse_room(self, room: int, error: RequestError) -> None:
        grant = self.queue.take_grant(room)
        if grant is None:
            self.queue.refuse(room, error)
        else:
            self.handovers.ack(KVSender(grant), 0, "failed", error=error)

    def _on_grant(self, message: Message) -> None:
        pages = np.array(message["pages"], np.int32)
        pages.flags.writeable = False  # the ledger then keeps the list itself, and no copy
        grant = Grant(
            message["xfer"], message["room"], message["rid"], message["tag"], pages,
            message["from"], message["at"], message["memory"].get("pages", 0),
            components.granted(message.get("others", ())), message.get("head_tokens", 0),
        )  # fmt: skip
        problem = self._connect(message)
        refused = self.queue.refused.pop(grant.room, None)
        if refused is None and problem is not None:
            refused = RequestError(502, "geometry_refused", problem)
            self._bury(grant.room, refused)
        if refused is not None:
            self.handovers.ack(KVSender(grant), 0, "failed", error=refused)
            return
        self.queue.add_grant(grant)
        self._start(grant.room)

    def _bury(self, room: int, error: RequestError) -> None:
        """A room comes to nothing: end its request, now or when it arrives."""
        request = self.queue.take_request(room)
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

    def _start(self, room: int) -> None:
        """Let the requests of a room begin whose grants are there."""
        while (pair := self.queue.pair(room)) is not None:
            request, grant = pair
            if grant.rid != request.given.rid and self.checks.failed(
                ROOM_UNIQUE, request.req, expected=grant.room, found=room, pool=self.pool.name
            ):
                error = RequestError(502, "room_mismatch", f"room {room} was granted to another request")
                self.handovers.ack(KVSender(grant), 0, "failed", error=error)
                request.move(RequestStatus.ABORTED)
                self.end(request, "abort", error)
                continue
            sender = KVSender(grant)
            over = request.prompt_tokens > self.parts.limits.pool_tokens
            tokens = self.faults.short_handoff.placeholder if over else request.given.tokens
            sender.move(KVPoll.WAITING_FOR_INPUT)
            self._waiting.append(Computing(request, sender, tokens))

    def _next_batch(self) -> list[tuple[Computing, int]]:
        """Chunks for one pass: (who, how many tokens), at most `batch_tokens` in all."""
        budget, batch = self.parts.pace.batch_tokens, []
        while self._waiting and self._reserve(self._waiting[0]):
            item = self._waiting.popleft()
            item.request.move(RequestStatus.RUNNING)
            self._computing[item.sender.grant.xfer] = item
        for item in self._computing.values():
            if item.request.status is RequestStatus.RUNNING and budget > 0:
                count = min(self.parts.pace.chunk_tokens, len(item.tokens) - item.done, budget)
                batch.append((item, count))
                budget -= count
        return batch

    def _reserve(self, item: Computing) -> bool:
        """Give a request its table, its head from the cache where there is one; False where pages are too few."""
        request, tokens = item.request, len(item.tokens)
        if not self.others.fit(tokens):
            return False
        if self.prefix is None:
            if self.pool.free_pages < self.pool.pages_for(tokens):
                return False
            request.pages, tag = self.pool.reserve(request.req, self.pool.pages_for(tokens))
            request.tags = np.full(len(request.pages), tag, np.int64)
        else:
            cached = self.prefix.take(request, tokens, whole=tokens == request.prompt_tokens)
            if cached is None:
                return False
            item.done = item.cached_tokens = request.cached_tokens = cached
        self.others.reserve(request, tokens)
        return True

    def _compute(self, batch: list[tuple[Computing, int]]) -> None:
        """One pass over the chunks, and its rows: writes, binds, the steps run, first tokens."""
        works = [self._work(item, count) for item, count in batch]
        check = self.checks.mode(PAGE_TAG) is not CheckMode.OFF
        since, start = self.recorder.seq, self.parts.clock.now_us()
        for item, count in batch:
            self._hand_over_early(item, count)
        written = [since]
        results = self.parts.executor.prefill(
            works, check_tags=check, step=self.runs.next_step(), before_write=lambda: written.append(self.recorder.seq)
        )
        end = self.parts.clock.now_us()
        page_tokens = self.pool.page_tokens
        for (item, count), work in zip(batch, works, strict=True):
            first = work.start // page_tokens
            pages, tag = work.pages[first:], int(work.tags[-1])
            columns = {"pos": first, "tok_off": work.start % page_tokens, "tokens": count}
            self.recorder.pages("write", self.pool.name, item.request.req, tag, pages, since_seq=written[-1], **columns)
            if item.done == item.cached_tokens:
                self._bind_cached(item)
            self.recorder.pages("bind", self.pool.name, item.request.req, tag, pages, **columns)
            if self.others:
                self.others.computed(item.request, *self._span(item, count), since_seq=written[-1])
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
                    PAGE_TAG, item.request.req, expected=worst.expected, found=worst.found, step=self.runs.steps,
                    n=len(result.mismatches), **worst.place(),
                ):  # fmt: skip
                    item.failed = message
            if item.done == len(item.tokens) and not item.failed:
                item.first_token = result.token
                self.row(item.request, "first_token", cached_tokens=item.cached_tokens)
                if self.prefix is not None:
                    self.prefix.file(item.request)
            if item.handed_over:
                continue
            if item.failed:
                self.handovers.drained(item)
            elif item.done == len(item.tokens):
                self.handovers.start(item)

    def _bind_cached(self, item: Computing) -> None:
        """The first pass of a request attends to the pages that it has from the cache."""
        request, cached = item.request, item.cached_tokens // self.pool.page_tokens
        for tag, start, stop in tag_runs(request.tags[:cached]):
            self.recorder.pages("bind", self.pool.name, request.req, tag, request.pages[start:stop], pos=start)

    def _hand_over_early(self, item: Computing, count: int) -> None:
        """The fault early-post: the writes of a prompt are submitted before the pass that completes it has run."""
        last = item.done + count == len(item.tokens)
        if (
            last
            and self.faults.early_post.strikes()
            and not self.checks.failed(
                COMPUTE_ORDER, item.request.req, expected=len(item.tokens), found=item.done, pool=self.pool.name
            )
        ):
            self.handovers.start(item)

    def _work(self, item: Computing, count: int) -> PrefillWork:
        covered = self.pool.pages_for(item.done + count)
        return PrefillWork(
            item.request.req, item.request.stamp, np.asarray(item.tokens[item.done : item.done + count], np.int32), item.done,
            item.request.pages[:covered], item.request.tags[:covered],
            self.others.works(item.request, *self._span(item, count)) if self.others else (),
        )  # fmt: skip

    @staticmethod
    def _span(item: Computing, count: int) -> tuple[int, int, bool]:
        """Tokens [start, stop) that a pass computes beside `kv`, and whether it is the last: a cache has `kv` alone, so
        the first pass makes up for what it skips there."""
        start, stop = item.done if item.done > item.cached_tokens else 0, item.done + count
        return start, stop, stop == len(item.tokens)

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
        self._abort(item)

    def _abort(self, item: Computing) -> None:
        """Drop what is left of a handoff, and say when nothing of it is outstanding."""
        item.sender.aborted = True
        if item in self._waiting:
            self._waiting.remove(item)
            item.sender.move(KVPoll.FAILED)
            self.handovers.ack(item.sender, 0, "aborted")
            item.request.move(RequestStatus.ABORTED)
            self.end(item.request, "abort", RequestError(499, "aborted", "aborted by decode"))
        elif item.request.status is RequestStatus.RUNNING:
            if not self.faults.late_write.on:
                self.handovers.drained(item)
        else:
            self.handovers.aborted(item)

    def _abort_before_start(self, xfer: int, room: int, message: Message) -> None:
        """The room has a grant but no request yet (it may still come), or its handoff is already over."""
        grant = self.queue.grant_of(xfer, room)
        if grant is not None:
            self.queue.take_grant(room, grant)
            self.queue.refuse(room, RequestError(499, "aborted", "aborted by decode"))
            self.handovers.ack(KVSender(grant), 0, "aborted")
        else:
            # Over already, or asked of a former life of this worker, whose writes ended with it.
            nothing = np.zeros(0, np.int32)
            unknown = Grant(xfer, room, "", message["tag"], nothing, message["from"], message["at"])
            self.handovers.ack(KVSender(unknown), 0, "aborted")
