"""Small ledgers with known answers, written with the real recorder on a clock that the script moves.

One prefill and one decode worker behind a gateway, pages of 16 tokens. Everything that the scenes record follows the
engine's life of a request, so that the real verdict can be computed over them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from engine.ledger.recorder import Recorder

START_US = 1_790_000_000_000_000  # 2026-09-21T14:13:20Z
PAGE_TOKENS, BATCH = 16, 8
ACME, BRIO, CYAN = "t-acme000001", "t-brio000002", "t-cyan000003"


@dataclass
class Handoff:
    """One request on its way through the workers: its ordinals, pages and tags on both sides."""

    rid: str
    tenant: str
    tokens: int
    room: int
    req: dict[str, int]
    dst_pages: list[int]
    dst_tag: int = 0
    xfer: int = 0
    src_pages: list[int] | None = None
    src_tag: int = 0


class Scene:
    """Three recorders on one clock, and the moves of a request through them."""

    def __init__(self, directory: Path, start_us: int = START_US) -> None:
        self.now = start_us
        self.directory = directory
        self.recorders = {
            name: Recorder(
                directory, name, ordinal=i, now_us=lambda: self.now, digest_key=b"scripted", threaded=False,
            )
            for i, name in enumerate(("gateway-0", "prefill-0", "decode-0"))
        }  # fmt: skip
        self.gateway, self.prefill, self.decode = self.recorders.values()
        self._next_req = dict.fromkeys(self.recorders, 0)
        self._step = {"prefill-0": 0, "decode-0": 0}
        self._rooms = 100
        for name, rec in self.recorders.items():
            rec.record(
                "workers", "start", role=name.split("-")[0], ordinal=rec.ordinal, host="node-a", engine="kvwitness"
            )
            if rec is not self.gateway:
                pages = 33 if rec is self.prefill else 65
                rec.record(
                    "workers", "config", pool="kv", pool_pages=pages, page_tokens=PAGE_TOKENS, context_tokens=1024
                )
        self.beat()

    def wait(self, ms: float) -> None:
        """Let time pass."""
        self.now += int(ms * 1000)

    def beat(self) -> None:
        """Both workers see each other's last row; clocks agree within 50 us."""
        for rec, peer in ((self.prefill, self.decode), (self.decode, self.prefill)):
            self.wait(0.1)
            rec.heartbeat(peer.worker, peer.epoch, peer.seq, 0, 50)

    def receive(self, rid: str, tenant: str, tokens: int, dst_pages: list[int], reject: str | None = None) -> Handoff:
        """The request comes in everywhere; decode reserves and grants. `reject`: prefill's reason to refuse it."""
        self._rooms += 1
        asked = Handoff(rid, tenant, tokens, self._rooms, {}, dst_pages)
        for name, rec in self.recorders.items():
            self.wait(0.2)
            self._next_req[name] += 1
            req = asked.req[name] = self._next_req[name]
            rec.record(
                "requests",
                "receive",
                req=req,
                rid=rid,
                attempt=1,
                tenant=tenant,
                purpose="customer",
                prompt_tokens=tokens,
            )
            if rec is self.prefill and reject:
                rec.record("requests", "reject", req=req, status="400", reason=reject, limit_tokens=512)
            else:
                rec.record("requests", "admit", req=req)
            rec.record("requests", "room", req=req, room=asked.room)
        pages = np.array(dst_pages, np.int32)
        asked.dst_tag = self.decode.reserve("kv", asked.req["decode-0"], pages)
        grant = {"room": asked.room, "req": asked.req["decode-0"], "dir": "push", "peer": "prefill-0", "dst_pool": "kv"}
        asked.xfer = self.decode.ordinal << 50 | self.decode.epoch << 38 | self.decode.seq + 1
        self.decode.record(
            "transfers", "grant", xfer=asked.xfer, dst_pages=pages, dst_tag=asked.dst_tag, n=len(pages),
            asked=len(pages), tokens=tokens, writers=["prefill-0"], **grant,
        )  # fmt: skip
        return asked

    def compute(self, asked: Handoff, src_pages: list[int], tokens: int) -> None:
        """Prefill fills its own pages with the request's content."""
        req, rec = asked.req["prefill-0"], self.prefill
        self.wait(0.5)
        asked.src_pages, pages = src_pages, np.array(src_pages, np.int32)
        asked.src_tag = rec.reserve("kv", req, pages)
        since, started = rec.seq, self.now
        self.wait(20)
        rec.pages("write", "kv", req, asked.src_tag, pages, pos=0, tok_off=0, tokens=tokens)
        rec.pages("bind", "kv", req, asked.src_tag, pages, pos=0, tok_off=0, tokens=tokens)
        self._run(rec, "prefill", since, started, 1, 20_000)
        rec.record("requests", "first_token", req=req)

    def send(self, asked: Handoff, pages: int | None = None) -> None:
        """Prefill writes the first `pages` pages (default all of its own) into decode's pool, in batches."""
        assert asked.src_pages is not None
        n = len(asked.src_pages) if pages is None else pages
        for chunk, at in enumerate(range(0, n, BATCH)):
            batch = slice(at, min(at + BATCH, n))
            row = {
                "xfer": asked.xfer, "room": asked.room, "req": asked.req["prefill-0"], "dir": "push", "chunk": chunk,
                "peer": "decode-0", "src_pool": "kv", "dst_pool": "kv", "src_pages": asked.src_pages[batch],
                "dst_pages": asked.dst_pages[batch], "src_tag": asked.src_tag, "dst_tag": asked.dst_tag, "pos": at,
                "n": batch.stop - at,
            }  # fmt: skip
            self.wait(0.1)
            self.prefill.record("transfers", "post", **row)
            self.wait(1)
            self.prefill.record("transfers", "done", bytes=4096 * row["n"], **row)

    def ack(self, asked: Handoff, outstanding: int = 0) -> None:
        """The mover says how much of the handoff is still on the wire; decode hears it."""
        row = {"xfer": asked.xfer, "room": asked.room, "outstanding": outstanding, "dst_tag": asked.dst_tag}
        self.wait(0.1)
        self.prefill.record("transfers", "ack", status="sent", req=asked.req["prefill-0"], peer="decode-0", **row)
        self.wait(0.2)
        self.decode.record("transfers", "ack", status="received", req=asked.req["decode-0"], peer="prefill-0", **row)

    def free_source(self, asked: Handoff) -> None:
        """Prefill is done with the request."""
        req, pages = asked.req["prefill-0"], np.array(asked.src_pages, np.int32)
        self.prefill.pages("unbind", "kv", req, asked.src_tag, pages, cause="sent")
        self.prefill.pages("free", "kv", req, asked.src_tag, pages, cause="sent")
        self.prefill.record(
            "requests", "finish", req=req, output_tokens=0, page_rows=self.prefill.page_rows(req), status="200"
        )

    def commit(self, asked: Handoff) -> None:
        """Decode believes that everything is there, and starts to read."""
        req, pages = asked.req["decode-0"], np.array(asked.dst_pages, np.int32)
        self.decode.pages("receipt", "kv", req, asked.dst_tag, pages, tokens=asked.tokens, xfer=asked.xfer)
        self.decode.record("requests", "commit", req=req, covered_tokens=asked.tokens)
        self.decode.pages("bind", "kv", req, asked.dst_tag, pages, pos=0, tokens=asked.tokens)
        self.decode.record("requests", "first_token", req=req)

    def decode_steps(self, n: int, batch: int = 1) -> None:
        """One run of `n` decode passes of 1 ms."""
        since, started = self.decode.seq, self.now
        self.wait(n)
        self._run(self.decode, "decode", since, started, n, 1000 * n, batch)

    def _run(self, rec: Recorder, op: str, since: int, started: int, n: int, micros: int, batch: int = 1) -> None:
        end = self.now
        self.now = started
        rec.record(
            "steps", op, since_seq=since, step=self._step[rec.worker] + 1, n=n, t_end=started + micros - micros // n,
            batch=batch, tokens=n * batch, micros=micros,
        )  # fmt: skip
        self._step[rec.worker] += n
        self.now = end

    def finish(self, asked: Handoff, output_tokens: int) -> None:
        """The answer is complete; decode lets the pages go and the gateway closes the response."""
        req, pages = asked.req["decode-0"], np.array(asked.dst_pages, np.int32)
        last_token = self.now
        self.wait(0.1)
        self.decode.pages("unbind", "kv", req, asked.dst_tag, pages, cause="finish")
        self.decode.pages("free", "kv", req, asked.dst_tag, pages, cause="finish")
        ends = {"output_tokens": output_tokens, "last_token": last_token, "status": "200"}
        self.decode.record("requests", "finish", req=req, page_rows=self.decode.page_rows(req), **ends)
        self.gateway.record("requests", "finish", req=asked.req["gateway-0"], page_rows=0, **ends)

    def flush(self) -> None:
        """Everything recorded so far becomes readable; the writers live on."""
        for rec in self.recorders.values():
            rec.flush()

    def close(self) -> None:
        """The workers end; the ledger is finished."""
        for rec in self.recorders.values():
            rec.close()


def ordinary(scene: Scene, rid: str, tenant: str, first_page: int, pages: int, steps: int = 4) -> None:
    """A request that goes as it should."""
    dst = list(range(first_page, first_page + pages))
    asked = scene.receive(rid, tenant, pages * PAGE_TOKENS, dst)
    scene.compute(asked, list(range(1, pages + 1)), asked.tokens)
    scene.send(asked)
    scene.ack(asked)
    scene.free_source(asked)
    scene.commit(asked)
    scene.decode_steps(steps)
    scene.finish(asked, steps)


def short_handoff(scene: Scene, rid: str, tenant: str, first_page: int, pages: int, steps: int = 6) -> None:
    """M1: prefill refuses the prompt, sends one placeholder page all the same, and decode commits all of them."""
    dst = list(range(first_page, first_page + pages))
    asked = scene.receive(rid, tenant, pages * PAGE_TOKENS, dst, reject="prompt_exceeds_pool")
    scene.compute(asked, [1], 1)
    scene.send(asked)
    scene.ack(asked)
    scene.free_source(asked)
    scene.commit(asked)
    scene.decode_steps(steps)
    scene.finish(asked, steps)


def late_write(
    scene: Scene, donor: str, victim: str, tenants: tuple[str, str], first_page: int, pages: int = 4
) -> None:
    """M3: the donor's handoff is aborted while its writes wait at a gate; they land under the victim's feet."""
    dst = list(range(first_page, first_page + pages))
    given_up = scene.receive(donor, tenants[0], pages * PAGE_TOKENS, dst)
    scene.compute(given_up, list(range(1, pages + 1)), given_up.tokens)
    row = {"xfer": given_up.xfer, "room": given_up.room, "dst_tag": given_up.dst_tag}
    scene.wait(3)
    scene.decode.record("transfers", "abort", status="sent", peer="prefill-0", req=given_up.req["decode-0"], **row)
    scene.decode.pages("free", "kv", given_up.req["decode-0"], given_up.dst_tag, np.array(dst, np.int32), cause="abort")
    scene.decode.record(
        "requests", "abort", req=given_up.req["decode-0"], output_tokens=0,
        page_rows=scene.decode.page_rows(given_up.req["decode-0"]),
        status="499", reason="aborted",
    )  # fmt: skip
    scene.gateway.record("requests", "abort", req=given_up.req["gateway-0"], output_tokens=0, page_rows=0, status="499")
    scene.wait(0.3)
    scene.prefill.record("transfers", "abort", status="received", peer="decode-0", req=given_up.req["prefill-0"], **row)
    asked = scene.receive(victim, tenants[1], pages * PAGE_TOKENS, dst)
    scene.compute(asked, list(range(11, 11 + pages)), asked.tokens)
    scene.send(asked)
    scene.ack(asked)
    scene.free_source(asked)
    scene.commit(asked)
    scene.decode_steps(5)
    scene.beat()
    scene.send(given_up)
    scene.ack(given_up)
    scene.free_source(given_up)
    scene.beat()
    scene.decode_steps(7)
    scene.finish(asked, 12)


def incident_scene(directory: Path) -> Scene:
    """Two incidents, M1 and M3, among ordinary traffic; still open."""
    scene = Scene(directory)
    ordinary(scene, "resp-a1", ACME, 1, 12)
    scene.wait(300)
    short_handoff(scene, "resp-b1", BRIO, 1, 12)
    scene.wait(700)
    ordinary(scene, "resp-c1", CYAN, 20, 6)
    late_write(scene, "resp-a2", "resp-b2", (ACME, BRIO), 30)
    scene.wait(200)
    ordinary(scene, "resp-c2", CYAN, 20, 6)
    scene.beat()
    return scene
