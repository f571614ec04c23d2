"""A site with several workers, pools and tiers, scripted row by row with the real recorder on a clock that tests move.

`Side` is one worker; `Handoff` takes one request from a prefill side to a decode side and can be stopped, bent or cut
short at every step. Pages hold 4 tokens; pools `slot` and `state` hold none.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from engine.ledger.reader import Ledger, read_ledger
from engine.ledger.recorder import Recorder

START_US = 1_790_000_000_000_000
PAGE_TOKENS = 4
WITHOUT_TOKENS = ("slot", "state")
ONE, TWO = "t-one", "t-two"


class Side:
    """One worker of a site."""

    def __init__(self, site: Site, name: str, ordinal: int, **start: Any) -> None:
        self.site, self.name = site, name
        self.rec = Recorder(
            site.directory, name, ordinal=ordinal, now_us=lambda: site.now, digest_key=b"scripted", threaded=False
        )
        self.reqs = self.steps = 0
        self.rec.record("workers", "start", role=name.split("-", 1)[0], ordinal=ordinal, **start)

    def pool(self, name: str, pages: int = 32, **config: Any) -> None:
        """Register a pool."""
        tokens = {} if name in WITHOUT_TOKENS else {"page_tokens": PAGE_TOKENS}
        self.rec.record("workers", "config", **({"pool": name, "pool_pages": pages} | tokens | config))

    def receive(
        self, rid: str, tenant: str = ONE, *, room: int | None = None, attempt: int = 1, **identity: Any
    ) -> int:
        """A request comes in; returns its ordinal."""
        self.site.wait()
        self.reqs += 1
        row = {"req": self.reqs, "rid": rid, "attempt": attempt, "tenant": tenant, "purpose": "customer"}
        self.rec.record("requests", "receive", **row, **identity)
        if room is not None:
            self.rec.record("requests", "room", req=self.reqs, room=room)
        return self.reqs

    def reserve(self, pool: str, req: int, pages: Iterable[int], **columns: Any) -> int:
        """Pages for a request; returns their tag."""
        return self.rec.reserve(pool, req, _array(pages), **columns)

    def pages(self, op: str, pool: str, req: int | None, tag: int, pages: Iterable[int], **columns: Any) -> int:
        """A row of `pages`; returns its seq."""
        self.site.wait(0.1)
        return self.rec.record("pages", op, pool=pool, req=req, tag=tag, pages=_array(pages), **columns)

    def fill(self, pool: str, req: int, pages: Iterable[int], **columns: Any) -> int:
        """Reserve and write; returns the tag."""
        pages = list(pages)
        tag = self.reserve(pool, req, pages)
        self.pages("write", pool, req, tag, pages, **columns)
        return tag

    def cache(self, op: str, tier: str, keys: Iterable[int], **columns: Any) -> int:
        """A row of `cache`."""
        self.site.wait(0.1)
        return self.rec.record("cache", op, tier=tier, component="kv", keys=list(keys), **columns)

    def copy(self, req: int, src: tuple[str, int, list[int]], dst: tuple[str, int, list[int]], **columns: Any) -> None:
        """A copy between two pools of this worker, (pool, tag, pages) each."""
        row = {
            "xfer": self.rec.ordinal << 50 | self.rec.epoch << 38 | self.rec.seq + 1, "req": req, "dir": "push", "chunk": 0,
            "peer": self.name, "src_pool": src[0], "src_tag": src[1], "src_pages": src[2], "dst_pool": dst[0],
            "dst_tag": dst[1], "dst_pages": dst[2], "n": len(dst[2]),
        }  # fmt: skip
        self.site.wait(0.1)
        self.rec.record("transfers", "post", **row | columns)
        self.site.wait(0.2)
        self.rec.record("transfers", "done", **row | columns)

    def run(self, op: str = "decode", n: int = 1) -> None:
        """One run of `n` passes of 1 ms."""
        since, started = self.rec.seq, self.site.now
        self.site.wait(n)
        self.rec.record(
            "steps", op, since_seq=since, step=self.steps + 1, n=n, t=started, t_end=started + 1000 * (n - 1),
            batch=1, tokens=n, micros=1000 * n,
        )  # fmt: skip
        self.steps += n

    def first_token(self, req: int) -> None:
        """The request's first token is there: it takes part in no prefill pass any more."""
        self.rec.record("requests", "first_token", req=req)

    def end(self, req: int, tokens: int = 0, op: str = "finish", status: str = "200") -> None:
        """The request ends here; a token leaves right before if there was any."""
        last = self.site.now if tokens else None
        self.site.wait(0.1)
        self.rec.record(
            "requests",
            op,
            req=req,
            output_tokens=tokens,
            last_token=last,
            page_rows=self.rec.page_rows(req),
            status=status,
        )


class Site:
    """Workers on one clock. `beat` lets every two of them see each other's last row."""

    def __init__(self, directory: Path, *names: str, pools: Iterable[str] = ("kv",), **starts: dict[str, Any]) -> None:
        self.directory, self.now = directory, START_US
        names = names or ("gateway-0", "prefill-0", "decode-0")
        self.sides = {
            name: Side(self, name, ordinal, **starts.get(name.replace("-", "_"), {}))
            for ordinal, name in enumerate(names)
        }
        for name, side in self.sides.items():
            for pool in pools if not name.startswith("gateway") else ():
                side.pool(pool)
        self.rooms = 100

    def __getitem__(self, name: str) -> Side:
        return self.sides[name]

    @property
    def prefill(self) -> Side:
        """The first prefill worker."""
        return self["prefill-0"]

    @property
    def decode(self) -> Side:
        """The first decode worker."""
        return self["decode-0"]

    def wait(self, ms: float = 0.2) -> None:
        """Let time pass."""
        self.now += int(ms * 1000)

    def beat(self) -> None:
        """Every worker sees the last row of every other; clocks agree within 50 us."""
        for side in self.sides.values():
            for other in self.sides.values():
                if other is not side and "gateway-0" not in (side.name, other.name):
                    self.wait(0.1)
                    side.rec.heartbeat(other.name, other.rec.epoch, other.rec.seq, 0, 50)

    def close(self) -> Ledger:
        """The workers end; the ledger as it can be read then."""
        self.beat()
        for side in self.sides.values():
            side.rec.close()
        return read_ledger(self.directory)


class Handoff:
    """One request from `src` to `dst`: per pool the pages on both sides; `xfers`, tags and ordinals as it goes on."""

    def __init__(
        self, site: Site, rid: str, dst_pages: dict[str, list[int]], src_pages: dict[str, list[int]], tenant: str = ONE,
        src: str = "prefill-0", dst: str = "decode-0", room: int | None = None, **identity: Any,
    ) -> None:  # fmt: skip
        self.site, self.rid, self.dst_pages, self.src_pages = site, rid, dst_pages, src_pages
        self.src, self.dst = site[src], site[dst]
        site.rooms += 1
        self.room = site.rooms if room is None else room
        self.gate = site["gateway-0"].receive(rid, tenant, **identity) if "gateway-0" in site.sides else None
        self.there = self.src.receive(rid, tenant, room=self.room, **identity)
        self.here = self.dst.receive(rid, tenant, room=self.room, **identity)
        self.dst_tags: dict[str, int] = {}
        self.src_tags: dict[str, int] = {}
        self.xfers: dict[str, int] = {}

    def grant(self, writers: list[str] | None = None) -> None:
        """The destination reserves and says who may write."""
        rec = self.dst.rec
        for pool, pages in self.dst_pages.items():
            self.site.wait(0.1)
            self.dst_tags[pool] = self.dst.reserve(pool, self.here, pages)
            self.xfers[pool] = rec.ordinal << 50 | rec.epoch << 38 | rec.seq + 1
            rec.record(
                "transfers", "grant", xfer=self.xfers[pool], room=self.room, req=self.here, dir="push", peer=self.src.name,
                dst_pool=pool, dst_pages=pages, dst_tag=self.dst_tags[pool], n=len(pages), asked=len(pages),
                writers=writers or [self.src.name],
            )  # fmt: skip

    def compute(self, **written: Any) -> None:
        """Prefill fills its own pages in one pass."""
        site, src = self.site, self.src
        for pool, pages in self.src_pages.items():
            self.src_tags[pool] = src.reserve(pool, self.there, pages)
        since, started = src.rec.seq, site.now
        site.wait(2)
        for pool, pages in self.src_pages.items():
            src.pages("write", pool, self.there, self.src_tags[pool], pages, pos=0, **written)
            src.pages("bind", pool, self.there, self.src_tags[pool], pages, pos=0)
        src.rec.record(
            "steps", "prefill", since_seq=since, step=src.steps + 1, n=1, t=started, t_end=started, batch=1, micros=2000
        )
        src.steps += 1
        src.first_token(self.there)

    def row(self, pool: str, first: int = 0, stop: int | None = None, **columns: Any) -> dict[str, Any]:
        """Columns of one batch, pages [first, stop) of the request's table."""
        src_pages, dst_pages = self.src_pages[pool][first:stop], self.dst_pages[pool][first:stop]
        n = min(len(src_pages), len(dst_pages))
        row = {
            "xfer": self.xfers[pool], "room": self.room, "req": self.there, "dir": "push", "chunk": first,
            "peer": self.dst.name, "src_pool": pool, "dst_pool": pool, "src_pages": src_pages[:n],
            "dst_pages": dst_pages[:n], "src_tag": self.src_tags[pool], "dst_tag": self.dst_tags[pool], "pos": first, "n": n,
        }  # fmt: skip
        return row | columns

    def post(self, row: dict[str, Any]) -> None:
        """The batch goes out."""
        self.site.wait(0.1)
        self.src.rec.record("transfers", "post", **row)

    def done(self, row: dict[str, Any]) -> None:
        """The batch has landed."""
        self.site.wait(0.5)
        self.src.rec.record("transfers", "done", **row, bytes=64 * row["n"])

    def send(self, *pools: str, first: int = 0, stop: int | None = None, **columns: Any) -> None:
        """Post and land one batch of each pool (default all)."""
        for pool in pools or self.src_pages:
            row = self.row(pool, first, stop, **columns)
            self.post(row)
            self.done(row)

    def ack(self, outstanding: int = 0) -> None:
        """The mover says what is outstanding, for every pool, and the destination hears it."""
        for pool, xfer in self.xfers.items():
            row = {"xfer": xfer, "room": self.room, "outstanding": outstanding, "dst_tag": self.dst_tags[pool]}
            self.site.wait(0.1)
            self.src.rec.record("transfers", "ack", status="sent", req=self.there, peer=self.dst.name, **row)
            self.site.wait(0.1)
            self.dst.rec.record("transfers", "ack", status="received", req=self.here, peer=self.src.name, **row)

    def free_source(self, end: bool = True) -> None:
        """Prefill lets its pages go, and is done with the request."""
        for pool, pages in self.src_pages.items():
            self.src.pages("unbind", pool, self.there, self.src_tags[pool], pages, cause="sent")
            self.src.pages("free", pool, self.there, self.src_tags[pool], pages, cause="sent")
        if end:
            self.src.end(self.there)

    def commit(self, *pools: str) -> None:
        """Decode believes that everything is there, and starts to read."""
        for pool in pools or self.dst_pages:
            pages, tag = self.dst_pages[pool], self.dst_tags[pool]
            self.dst.pages("receipt", pool, self.here, tag, pages, xfer=self.xfers[pool])
            self.dst.pages("bind", pool, self.here, tag, pages, pos=0)
        self.dst.rec.record("requests", "commit", req=self.here, covered_tokens=PAGE_TOKENS)
        self.dst.first_token(self.here)

    def abort(self, cause: str = "abort", hold: bool = False) -> None:
        """Decode gives the handoff up: its pages go now, or are held."""
        for pool, pages in self.dst_pages.items():
            tag = self.dst_tags[pool]
            row = {"xfer": self.xfers[pool], "room": self.room, "dst_tag": tag}
            self.dst.rec.record("transfers", "abort", status="sent", peer=self.src.name, req=self.here, **row)
            self.site.wait(0.1)
            self.src.rec.record("transfers", "abort", status="received", peer=self.dst.name, req=self.there, **row)
            self.dst.pages("hold" if hold else "free", pool, self.here, tag, pages, cause=cause)
        if not hold:
            self.ended(0, "abort", "499")

    def release(self, cause: str) -> None:
        """A hold ends."""
        for pool, pages in self.dst_pages.items():
            self.dst.pages("free", pool, self.here, self.dst_tags[pool], pages, cause=cause)
        self.ended(0, "abort", "499")

    def finish(self, tokens: int = 2) -> None:
        """Decode unbinds and frees everything; the answer is complete."""
        for pool, pages in self.dst_pages.items():
            tag = self.dst_tags[pool]
            self.dst.pages("unbind", pool, self.here, tag, pages, cause="finish")
            self.dst.pages("free", pool, self.here, tag, pages, cause="finish")
        self.ended(tokens)

    def ended(self, tokens: int, op: str = "finish", status: str = "200") -> None:
        """Decode's and the gateway's last rows of the request."""
        self.dst.end(self.here, tokens, op, status)
        if self.gate is not None:
            self.site["gateway-0"].end(self.gate, tokens, op, status)

    def through(self, steps: int = 2) -> Handoff:
        """All of it, as it should be."""
        self.grant()
        self.compute()
        self.send()
        self.ack()
        self.free_source()
        self.commit()
        for _ in range(steps):
            self.dst.run()
        self.finish(steps)
        return self


def _array(pages: Iterable[int]) -> np.ndarray:
    return np.array(list(pages), np.int32)
