"""The decode role: page grants, the handoff's end, and continuous batching of one token a pass.

Invariant: pages under an undrained grant are never freed (but for the fault late-write); no token leaves from a pass
whose enforced check failed.
"""

from __future__ import annotations

from collections import deque
from itertools import islice

import numpy as np

from engine import components
from engine.cached_prefix import Looked
from engine.decode_prefix import DecodePrefix
from engine.defences import ADMISSION_GATE, COVERED_COUNT, PAGE_TAG
from engine.executor import DecodeWork, PassResult
from engine.integrity import CheckMode
from engine.ledger.tag import make_tag, split_tag
from engine.release import Releases, table_runs
from engine.request import Request, RequestError, RequestStatus
from engine.retraction import Retraction
from engine.role import Parts, Role, TokenLeft
from engine.transfer import Grant, KVReceiver
from engine.wire import Message


class DecodeEngine(Role):
    """Grants pages, takes KV over from prefill and decodes."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self.prealloc: deque[Request] = deque()  # DecodePreallocQueue: admitted, no pages yet
        self.transfers: dict[int, tuple[Request, KVReceiver]] = {}  # DecodeTransferQueue, by xfer
        self._running: dict[int, Request] = {}
        self._beyond: set[int] = set()  # running, but more than a pass takes run before them
        self._started: dict[int, Request] = {}  # running, or their pages are granted
        self.retraction = Retraction(self, parts.host) if parts.host is not None else None
        self.releases = Releases(self)
        self.prefix = DecodePrefix(parts)
        self._promised = 0  # pages by which the started may still grow
        self._checked: dict[int, int] = {}  # req -> pages whose tag was checked and held

    def admit(self, request: Request) -> None:
        """See `Role`."""
        if request.given.bootstrap not in self.parts.names:
            words = f"no prefill worker is known at bootstrap address {request.given.bootstrap}"
            self.reject(request, RequestError(400, "unknown_bootstrap", words))
            return
        refusal = self.parts.limits.refusal(request.prompt_tokens, request.given.max_tokens)
        if refusal is not None:
            # Whatever the gate's mode: no later step could ever find these pages or these positions.
            self.checks.failed(
                ADMISSION_GATE, request.req, expected=refusal.limit, found=refusal.found, pool=self.pool.name
            )
            self._withdraw(request, refusal.error)
            self.reject(request, refusal.error)
            return
        self.row(request, "admit")
        request.move(RequestStatus.WAITING)
        self.row(request, "room", room=request.given.room)
        self.prealloc.append(request)

    def handle(self, message: Message) -> None:
        """See `Role`."""
        if message["kind"] == "ack":
            self._on_ack(message)

    def give_up(self, request: Request, error: RequestError) -> None:
        """See `Role`."""
        if request.status is RequestStatus.WAITING:
            self.prealloc.remove(request)
            self._withdraw(request, error)
            request.move(RequestStatus.ABORTED)
            self.end(request, "abort", error)
        elif request.status is RequestStatus.TRANSFERRING:
            self.releases.abort(request, error)
        elif request.status is RequestStatus.RUNNING:
            self._stop(request, "abort", error)
        elif request.status is RequestStatus.RETRACTED and self.retraction is not None:
            self.retraction.give_up(request)
            request.move(RequestStatus.ABORTED)
            self.end(request, "abort", error)

    def peer_reborn(self, peer: str, epoch: int) -> None:
        """See `Role`. Handoffs of the former life are given up; the new one says that nothing is outstanding."""
        for xfer, (request, receiver) in list(self.transfers.items()):
            if self.parts.names[receiver.prefill_address] != peer:
                continue
            if request.status is RequestStatus.TRANSFERRING:
                self.give_up(request, RequestError(502, "worker_lost", "the prefill worker went away"))
            elif request.status is RequestStatus.HELD:
                self.releases.tell_abort(request, xfer, receiver)

    def on_host(self) -> dict[int, np.ndarray]:
        """See `Role`."""
        return self.retraction.tables() if self.retraction is not None else {}

    def release_writes(self) -> None:
        """See `Role`. Decode writes to nobody."""

    def work(self) -> bool:
        """See `Role`."""
        if self.paused:
            return False
        busy = self._grant_waiting()
        if self._running:
            self._decode(self._next_batch())
            busy = True
        return busy

    def _withdraw(self, request: Request, error: RequestError) -> None:
        """No grant will come for this room: prefill must not wait for it."""
        self.send(
            self.parts.names[request.given.bootstrap], request.given.bootstrap,
            {"kind": "withdraw", "room": request.given.room, "error": error.packed()},
        )  # fmt: skip

    def _grant_waiting(self) -> bool:
        """Pages for waiting requests, first come first served.

        A request starts when its whole answer fits beside what those that were started may still grow by. One that
        no empty pool could hold to its end starts alone, and ends where the pages do.
        """
        granted = self.retraction is not None and self.retraction.resume()
        while self.prealloc and not (self.retraction is not None and self.retraction.waiting):
            request = self.prealloc[0]
            request.final_pages = self._final_pages(request)
            looked = self.prefix.look(request)
            if not self.prefix.fits(looked, request.final_pages + self._promised):
                break
            if not self.others.fit(request.prompt_tokens, self.final_tokens(request)):
                break
            self.runs.close()
            self.prealloc.popleft()
            self._grant(request, looked)
            granted = True
        return granted

    def _final_pages(self, request: Request) -> int:
        """Pages that are kept for a request."""
        return min(self.pool.pages_for(self.final_tokens(request)), self.pool.usable_pages)

    def final_tokens(self, request: Request) -> int:
        """Tokens that pages are kept for: all of its answer, or the first of it. The last of an answer is never
        written."""
        answer, reserved = request.given.max_tokens, self.parts.pace.reserved_tokens
        if reserved is not None and self.retraction is not None:
            answer = min(answer, reserved)
        return request.prompt_tokens + answer - 1

    def end(self, request: Request, op: str, error: RequestError | None) -> None:
        """See `Role`."""
        self.grows_no_more(request)
        self.prefix.forget(request)
        super().end(request, op, error)

    def grows_no_more(self, request: Request) -> None:
        """What was kept free for a request's growth is for others."""
        self.others.grows_no_more(request)
        if self._started.pop(request.req, None) is not None:
            self._promised -= max(request.final_pages - len(request.pages), 0)

    def _grant(self, request: Request, looked: Looked | None) -> None:
        self.prefix.give(request, looked)
        self._started[request.req] = request
        self._promised += max(request.final_pages - len(request.pages), 0)
        pages, tag, had, place = self.prefix.granted(request)
        self.others.reserve(request, request.prompt_tokens, self.final_tokens(request))
        request.move(RequestStatus.TRANSFERRING)
        recorder, given = self.recorder, request.given
        prefill = self.parts.names[given.bootstrap]
        with recorder.lock:
            xfer = make_tag(recorder.ordinal, recorder.epoch, recorder.seq + 1)
            columns = {
                "xfer": xfer, "room": given.room, "req": request.req, "dir": "push", "peer": prefill,
                "writers": [prefill],
            }  # fmt: skip
            recorder.record(
                "transfers", "grant", **columns, dst_pool=self.pool.name, dst_pages=pages, dst_tag=tag,
                asked=len(pages), n=len(pages), tokens=request.prompt_tokens - had, **place,
            )  # fmt: skip
            others = self.others.grant_rows(request, columns)
        grant = Grant(
            xfer, given.room, given.rid, tag, pages, self.parts.worker, self.parts.wire.address, others=others,
            head_tokens=had,
        )  # fmt: skip
        self.transfers[xfer] = (request, KVReceiver(grant, given.bootstrap))
        message = {
            "kind": "grant", "xfer": xfer, "room": given.room, "rid": given.rid, "tag": tag,
            "pages": pages.tolist(), "memory": self.parts.memory,
        }  # fmt: skip
        if had:
            message["head_tokens"] = had
        if others:
            message["others"] = components.told(others)
        self.send(prefill, given.bootstrap, message)

    def _on_ack(self, message: Message) -> None:
        xfer, outstanding, result = message["xfer"], message["outstanding"], message["result"]
        request, receiver = self.transfers.get(xfer, (None, None))
        self.recorder.record(
            "transfers", "ack", xfer=xfer, req=request.req if request else None, peer=message["from"],
            outstanding=outstanding, status="received",
        )  # fmt: skip
        if request is None or receiver is None or outstanding:
            return
        receiver.drained = True
        if request.status is RequestStatus.HELD:
            self.releases.let_go(request, "drained")
        elif request.status is RequestStatus.TRANSFERRING and result == "success":
            del self.transfers[xfer]
            request.cached_tokens = message["cached_tokens"]
            covered = {self.pool.name: message["covered_tokens"], **message.get("covered_beside", {})}
            self._commit(request, xfer, message["first_token"], covered)
        elif request.status is RequestStatus.TRANSFERRING:
            del self.transfers[xfer]
            error = RequestError.unpacked(message.get("error"))
            self._fail_transfer(request, error or RequestError(502, "transfer_aborted", "prefill gave up the transfer"))

    def _fail_transfer(self, request: Request, error: RequestError) -> None:
        """A request ends with its handoff; nothing of it was read."""
        self.releases.free(request, "error")
        request.move(RequestStatus.ABORTED)
        self.end(request, "abort", error)

    def _commit(self, request: Request, xfer: int, first_token: int, covered: dict[str, int]) -> None:
        """Prefill reported success: compare what it covered, in each pool, with what was reserved, and start to decode.
        What decode had itself counts as covered."""
        name, prompt = self.pool.name, request.prompt_tokens
        pages, tag, had, place = self.prefix.granted(request)
        trusting = self.checks.mode(COVERED_COUNT) is CheckMode.OFF
        covered[name] += had
        believed = prompt if trusting else covered[name]
        self.recorder.pages("receipt", name, request.req, tag, pages, xfer=xfer, tokens=believed - had, **place)
        wanted = {name: prompt} | self.others.receive(request, xfer, None if trusting else covered)
        short = {pool: count for pool, count in wanted.items() if covered.get(pool, 0) < count}
        refused = [
            pool
            for pool, count in short.items()
            if self.checks.failed(COVERED_COUNT, request.req, expected=count, found=covered.get(pool, 0), pool=pool)
        ]
        if refused:
            pool = refused[0]
            where = "" if pool == name else f" in pool {pool}"
            words = f"prefill covered {covered.get(pool, 0)} of {wanted[pool]} prompt tokens{where}; nothing was read"
            self._fail_transfer(request, RequestError(502, "covered_less_than_reserved", words))
            return
        if self.others and not self._accept(request):
            return
        self.row(request, "commit", covered_tokens=believed, cached_tokens=request.cached_tokens)
        self.prefix.bind(request)
        self.recorder.pages("bind", name, request.req, tag, pages, tokens=prompt - had, pos=place.get("pos", 0))
        self.others.bind(request, prompt)
        request.move(RequestStatus.RUNNING)
        self.row(request, "first_token")
        if self._run(request):
            self.row(request, "pause", reason="batch_full")
        self._leave(request, first_token)

    def _accept(self, request: Request) -> bool:
        """Read the handoff metadata; False where it is not the request's, which then ends."""
        check, enforced = self.checks.mode(PAGE_TAG) is not CheckMode.OFF, False
        for wrong in self.others.accept(request, self.runs.next_step(), check):
            enforced = self.checks.failed(
                PAGE_TAG, request.req, expected=wrong.expected, found=wrong.found, **wrong.place()
            )
        if enforced:
            words = "the handoff metadata is not this request's; nothing was read"
            self._fail_transfer(request, RequestError(500, "page_tag_mismatch", words))
        return not enforced

    def _run(self, request: Request) -> bool:
        """A request is one of the running; True where their passes have no place for it yet: it is then paused."""
        self._running[request.req] = request
        if len(self._running) > self.parts.pace.max_batch:
            self._beyond.add(request.req)
        return request.req in self._beyond

    def _next_batch(self) -> list[Request]:
        """Who takes part in the next pass: those that have run longest."""
        batch = list(islice(self._running.values(), self.parts.pace.max_batch))
        for request in batch if self._beyond else ():
            if request.req in self._beyond:
                self._beyond.remove(request.req)
                self.runs.close()
                self.row(request, "resume")
        return batch

    def _decode(self, batch: list[Request]) -> None:
        """One pass over the running batch."""
        works = [work for request in batch if request.req in self._running and (work := self._work(request))]
        works = [work for work in works if work.req in self._running]  # one may have been retracted for another
        if not works:
            return
        batch, page_tokens = [self.requests[work.req] for work in works], self.pool.page_tokens
        # No run goes beyond the end of a request, or the last slot of a page.
        left = [request.given.max_tokens - request.output_tokens for request in batch]
        left += [page_tokens - work.position % page_tokens for work in works]
        check = self.checks.mode(PAGE_TAG) is not CheckMode.OFF
        since, start = self.recorder.seq, self.parts.clock.now_us()
        run = self.parts.executor.decode(
            works, check_tags=check, step=self.runs.next_step(), passes=min(left),
            until_us=min(self.next_beat_us(), self.runs.until_us(start)),
        )  # fmt: skip
        end = self.parts.clock.now_us()
        if any([result.mismatches for result in run.results]):
            self.runs.close()  # the failed pass is a run of its own: its check proves what it found at its step
            since = self.recorder.seq
        self.runs.note(
            "decode", tuple([work.req for work in works]), since, start, end, passes=run.passes, last_us=run.last_us
        )
        for request, work, result in zip(batch, works, run.results, strict=True):
            if (work.position + run.passes) % page_tokens == 0:
                self._note_full_page(request, work.position // page_tokens)
            if result.mismatches and self._refuse(request, result):
                continue
            if check:
                self._checked[request.req] = self._checked.get(request.req, 0) + len(request.pages) * run.passes
            if self.faults.early_free.on:
                self.releases.free_early(request)
            self._leave(request, result.token, run.passes)

    def _work(self, request: Request) -> DecodeWork | None:
        """The next pass of a request, its table grown where the token needs a new page."""
        position = request.prompt_tokens + request.output_tokens - 1
        index = position // self.pool.page_tokens
        if index >= len(request.pages):
            self.runs.close()
            if not self._make_room(request):
                return None
            page, tag = self.pool.append(request.req, index)
            self.others.grow(request, index)
            if len(request.pages) < request.final_pages:
                self._promised -= 1
            request.pages = np.append(request.pages, np.int32(page))
            request.tags = np.append(request.tags, np.int64(tag))
        others = self.others.reads(request, position) if self.others.pools else ()
        return DecodeWork(request.req, request.stamp, request.last_token, position, request.pages, request.tags, others)

    def _make_room(self, request: Request) -> bool:
        """A free page for a request that grows: another request is retracted for it, the last to have started, or
        else it is itself; False where it runs no more."""
        while not self.prefix.make_room(1) or not self.others.can_grow(request, len(request.pages)):
            others = [other for other in self._running.values() if other is not request]
            victim = others[-1] if others else request
            if self.retraction is None or not self.retraction.retract(victim):
                words = f"pool {self.pool.name}: no page is free for the answer to grow into; retry later"
                self._stop(request, "abort", RequestError(503, "out_of_pages", words))
                return False
            if victim is request:
                return False
        return True

    def let_go(self, request: Request, cause: str) -> None:
        """A request reads its pages no more, and they go back."""
        del self._running[request.req]
        self.parts.executor.forget(request.stamp)
        self._beyond.discard(request.req)
        self.grows_no_more(request)
        for tag, pages in table_runs(request):
            self.recorder.pages("unbind", self.pool.name, request.req, tag, pages, cause=cause)
        self.others.unbind(request, cause)
        self.releases.free(request, cause)

    def take_up(self, request: Request) -> None:
        """A request whose KV is there again, and which is paused, runs on."""
        self._started[request.req] = request
        if not self._run(request):
            self.row(request, "resume")
        request.final_pages = max(self._final_pages(request), len(request.pages))
        self._promised += request.final_pages - len(request.pages)

    def _note_full_page(self, request: Request, index: int) -> None:
        """The last slot of page `index` was just written: an appended page gets its write row."""
        if index >= self.pool.pages_for(request.prompt_tokens):
            self.runs.close()
            tag = int(request.tags[index])
            self.recorder.pages(
                "write", self.pool.name, request.req, tag, request.pages[index : index + 1], pos=index,
                tokens=self.pool.page_tokens, since_seq=split_tag(tag).seq,
            )  # fmt: skip
            self.others.note_full(request, index)

    def _refuse(self, request: Request, result: PassResult) -> bool:
        """A pass found pages that are not the request's; True where the request ends for it."""
        self.runs.close()
        enforced = False
        for wrong in result.mismatches:
            enforced = self.checks.failed(
                PAGE_TAG, request.req, expected=wrong.expected, found=wrong.found, **wrong.place(),
                step=self.runs.steps,
            )  # fmt: skip
        if enforced:
            words = (
                f"{len(result.mismatches)} pages of this request hold content that is not its own; none of it was used"
            )
            self._stop(request, "abort", RequestError(500, "page_tag_mismatch", words))
        return enforced

    def _leave(self, request: Request, token: int, count: int = 1) -> None:
        """`count` tokens leave for the client, the last of which is `token`; the last of all ends the request."""
        request.output_tokens, request.last_token = request.output_tokens + count, token
        request.last_token_us = self.parts.clock.now_us()
        self.parts.emit(request.given.rid, TokenLeft(token, count, request.cached_tokens))
        if request.output_tokens >= request.given.max_tokens:
            self._stop(request, "finish", None)

    def _stop(self, request: Request, op: str, error: RequestError | None) -> None:
        """End a running request."""
        self.runs.close()
        cause = "finish" if error is None else "abort" if error.code == "aborted" else "error"
        self.checks.passed(PAGE_TAG, request.req, self._checked.pop(request.req, 0))
        self.let_go(request, cause)
        request.move(RequestStatus.FINISHED if error is None else RequestStatus.ABORTED)
        self.end(request, op, error)
