"""Cost of judging foreign reads: seconds and microseconds per page event, and peak memory, of both engines.

Run: python benchmarks/foreign_reads.py [page events] [pages per operation]   (default 2,000,000 and 64)

The ledger: one request life after another through one prefill and one decode worker, every hundredth handed over short
(its second half is what was there before). A page event is one page in one row of `pages`, or in one `done`. Printed: the
evidence that both engines read (the core pass), each engine on it, and the whole of `foreign_reads` by each engine and
by both; then, where they are installed (the `bench` extra), polars `join_asof` and pandas `merge_asof` looking up no more
than the last writer before each read, on flat arrays of the same ledger. Each in a process of its own, CPU and wall time.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from engine.ledger.reader import Ledger, read_ledger
from engine.ledger.recorder import Recorder
from forensics import replay, sql_engine
from forensics.evidence import prepare
from forensics.foreign_reads import foreign_reads
from forensics.rows import as_ints, worker_rows

PAGE_EVENTS, PAGES_PER_OPERATION = 2_000_000, 64
POOL_PAGES = 32_768
PAGE_TOKENS = 64
SHORT_EVERY = 100
REQUESTS_PER_DRAIN = 50
EVENTS_PER_PAGE = 11
"""reserve, write, bind, unbind, free at prefill; done; reserve, receipt, bind, unbind, free at decode."""


class Site:
    """One prefill and one decode worker that take one request after another."""

    def __init__(self, directory: str) -> None:
        self.now = 1_790_000_000_000_000
        self.prefill, self.decode = (
            self._worker(directory, name, n) for n, name in enumerate(("prefill-0", "decode-0"), 1)
        )
        self.free_pages = np.random.default_rng(7).permutation(POOL_PAGES).astype(np.int32)
        self.at = self.steps = 0

    def _worker(self, directory: str, name: str, ordinal: int) -> Recorder:
        recorder = Recorder(
            directory, name, ordinal=ordinal, now_us=lambda: self.now, digest_key=b"benchmark", threaded=False,
            rotate_bytes=1 << 40,
        )  # fmt: skip
        recorder.record("workers", "start", role=name.split("-", maxsplit=1)[0], ordinal=ordinal)
        recorder.record("workers", "config", pool="kv", pool_pages=POOL_PAGES, page_tokens=PAGE_TOKENS, page_bytes=4096)
        return recorder

    def request(self, req: int, pages: int) -> None:
        """One whole life."""
        self.now += 1000
        self.at = (self.at + pages) % (POOL_PAGES - pages)
        mine = self.free_pages[self.at : self.at + pages]
        moved = pages // 2 if req % SHORT_EVERY == 0 else pages
        for recorder in (self.prefill, self.decode):
            recorder.record(
                "requests", "receive", req=req, rid=f"r{req}", attempt=1, tenant=f"t{req % 7}", purpose="customer"
            )
        here = self.decode.reserve("kv", req, mine)
        xfer = self.decode.ordinal << 50 | self.decode.epoch << 38 | self.decode.seq
        room = {"xfer": xfer, "room": req}
        self.decode.record(
            "transfers", "grant", **room, req=req, dir="push", peer="prefill-0", dst_pool="kv", dst_pages=mine, dst_tag=here,
            n=pages, asked=pages, writers=["prefill-0"],
        )  # fmt: skip
        there = self._prefilled(req, mine)
        row = room | {
            "req": req, "dir": "push", "chunk": 0, "peer": "decode-0", "src_pool": "kv", "dst_pool": "kv", "pos": 0,
            "src_pages": mine[:moved], "dst_pages": mine[:moved], "src_tag": there, "dst_tag": here, "n": moved,
        }  # fmt: skip
        self.prefill.record("transfers", "post", **row)
        self.prefill.record("transfers", "done", **row, bytes=4096 * moved)
        for recorder, peer, status in ((self.prefill, "decode-0", "sent"), (self.decode, "prefill-0", "received")):
            recorder.record("transfers", "ack", **room, req=req, peer=peer, status=status, outstanding=0, dst_tag=here)
        self._end(self.prefill, req, there, mine)
        self.decode.pages("receipt", "kv", req, here, mine)
        self.decode.pages("bind", "kv", req, here, mine, pos=0)
        self._run(self.decode, "decode")
        self._end(self.decode, req, here, mine)

    def _prefilled(self, req: int, mine: np.ndarray) -> int:
        tag = self.prefill.reserve("kv", req, mine)
        self.prefill.pages("write", "kv", req, tag, mine, pos=0)
        self.prefill.pages("bind", "kv", req, tag, mine, pos=0)
        self._run(self.prefill, "prefill")
        self.prefill.record("requests", "first_token", req=req)
        return tag

    def _run(self, recorder: Recorder, op: str) -> None:
        self.steps += 1
        since, began, self.now = recorder.seq, self.now, self.now + 500
        recorder.record(
            "steps", op, since_seq=since, step=self.steps, n=1, t=began, t_end=began, batch=1, tokens=1, micros=400
        )

    def _end(self, recorder: Recorder, req: int, tag: int, mine: np.ndarray) -> None:
        recorder.pages("unbind", "kv", req, tag, mine)
        recorder.pages("free", "kv", req, tag, mine, cause="finish")
        recorder.record(
            "requests",
            "finish",
            req=req,
            status="200",
            page_rows=recorder.page_rows(req),
            output_tokens=1,
            last_token=self.now,
        )
        if req % REQUESTS_PER_DRAIN == 0:
            recorder.flush()


def write_ledger(directory: str, page_events: int, pages: int) -> int:
    """A sealed ledger of about `page_events`; returns how many."""
    site = Site(directory)
    requests = max(page_events // (EVENTS_PER_PAGE * pages), 1)
    for req in range(1, requests + 1):
        site.request(req, pages)
    for recorder in (site.prefill, site.decode):
        recorder.close()
    return requests * pages * EVENTS_PER_PAGE


def flat(ledger: Ledger) -> dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """(page, seq, req) of what filled pages (`write`, `receipt`) and of what read them (`bind`), by seq; sorted, unlike a ledger."""
    found = {}
    for name, ops in (("writes", ("write", "receipt")), ("reads", ("bind",))):
        columns: list[np.ndarray] = []
        for number, worker in enumerate(worker_rows(ledger).values()):
            for row in (row for row in worker.pages if row["op"] in ops):
                pages = as_ints(row["pages"]) + (number << 32)
                columns.append(np.stack([pages, np.full(len(pages), row["seq"]), np.full(len(pages), row["req"])]))
        page, seq, req = np.concatenate(columns, axis=1)
        order = np.argsort(seq, kind="stable")
        found[name] = (page[order], seq[order], req[order])
    return found


def _frames(library: Any, arrays: dict[str, Any]) -> tuple[Any, Any]:
    """(reads, writes) as data frames of a library."""
    named = (("reads", "reader"), ("writes", "writer"))
    reads, writes = (
        library.DataFrame(dict(zip(("page", "seq", who), arrays[name], strict=True))) for name, who in named
    )
    return reads, writes


def by_polars(arrays: dict[str, Any]) -> int:
    """Reads of what another request wrote last, by polars."""
    reads, writes = _frames(importlib.import_module("polars"), arrays)
    reads, writes = reads.set_sorted("seq"), writes.set_sorted("seq")
    joined = reads.join_asof(writes, on="seq", by="page", strategy="backward", check_sortedness=False)
    return int((joined["writer"] != joined["reader"]).sum())


def by_pandas(arrays: dict[str, Any]) -> int:
    """Reads of what another request wrote last, by pandas."""
    pandas: Any = importlib.import_module("pandas")
    joined = pandas.merge_asof(*_frames(pandas, arrays), on="seq", by="page", direction="backward")
    return int((joined["writer"] != joined["reader"]).sum())


MEASURES: dict[str, tuple[Callable[[Ledger], Any], Callable[[Any], Any]]] = {
    "evidence": (lambda ledger: ledger, prepare),
    "replay on the evidence": (prepare, replay.run),
    "SQL on the evidence": (prepare, sql_engine.run),
    "foreign_reads, replay": (lambda ledger: ledger, lambda ledger: foreign_reads(ledger, engine="replay")),
    "foreign_reads, SQL": (lambda ledger: ledger, lambda ledger: foreign_reads(ledger, engine="duckdb")),
    "foreign_reads, both": (lambda ledger: ledger, foreign_reads),
    "polars join_asof": (flat, by_polars),
    "pandas merge_asof": (flat, by_pandas),
}
"""Name: what is made ready, and what is measured."""
NEEDS = {"polars join_asof": "polars", "pandas merge_asof": "pandas"}


def measure(name: str, directory: str) -> dict[str, float]:
    """One measure, in this process."""
    ready, measured = MEASURES[name]
    given = ready(read_ledger(directory))
    cpu, wall = time.process_time(), time.perf_counter()
    measured(given)
    rows = sum(len(page) for page, _, _ in given.values()) if isinstance(given, dict) else 0
    spent = {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}
    return spent | {"rows": rows, "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def main() -> None:
    if sys.argv[1:2] == ["--measure"]:
        print(json.dumps(measure(*sys.argv[2:4])))
        return
    wanted, pages = (
        (int(word) for word in [*sys.argv[1:], "2000000", "64"][:2]) if len(sys.argv) != 2 else (int(sys.argv[1]), 64)
    )
    with tempfile.TemporaryDirectory() as directory:
        events = write_ledger(directory, wanted, pages)
        print(f"{events:,} page events at {pages} pages an operation")
        for name in MEASURES:
            if name in NEEDS and importlib.util.find_spec(NEEDS[name]) is None:
                print(f"{name:<24} not installed: pip install -e '.[bench]'")
                continue
            command = [sys.executable, __file__, "--measure", name, directory]
            spent = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            micros = {what: 1e6 * spent[what] / events for what in ("cpu", "wall")}
            print(
                f"{name:<24} {spent['cpu']:7.2f} s CPU {spent['wall']:7.2f} s wall {micros['cpu']:7.3f} us CPU"
                f" {micros['wall']:7.3f} us wall a page event, {spent['peak_mb']:6.0f} MB"
                + (f" (of which {spent['rows']:,} are flat rows here)" if spent["rows"] else "")
            )


if __name__ == "__main__":
    main()
