"""Cost of judging foreign reads: CPU, wall time, microseconds per page event and peak memory, of both engines.

Run: python benchmarks/foreign_reads.py [EVENTSxPAGES ...]   (default 2000000x64: page events, and pages per operation)

The ledger: one request life after another through one prefill and one decode worker, every hundredth handed over short
(its second half is what was there before). A page event is one page in one row of `pages`, or in one `done`. Printed: what
recording it cost and its bytes; in one process reading it, the evidence that both engines read, each engine on it, and the
verdicts, which together are `foreign_reads` by both. Then, each in a process of its own, the core pass: what did each read
find, the last write
of its page before it, by `forensics.last_writes` and, where they are installed (the `bench` extra), polars `join_asof` and
pandas `merge_asof`, each both by page and on one sorted number of page and seq. All of them must count the same reads of
another's write. What it cost to make each one's input from the ledger's rows stands beside.
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
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from engine.ledger.reader import read_ledger
from engine.ledger.recorder import Recorder
from forensics import replay, sql_engine
from forensics.evidence import prepare
from forensics.last_writes import Operations, last_writes
from forensics.responses import responses
from forensics.rows import Row, WorkerKey, WorkerRows, as_ints, worker_rows

DEFAULT = ("2000000x64",)
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


Workers = dict[WorkerKey, WorkerRows]
FILLS, READS = ("write", "receipt"), ("bind",)
"""What is taken to fill pages, and to read them, in the core pass."""
PAGE_BITS = 32


def _rows(workers: Workers, ops: tuple[str, ...]) -> list[tuple[int, Row]]:
    """(which worker, row) of some operations, by seq."""
    found = [(n, row) for n, worker in enumerate(workers.values()) for row in worker.pages if row["op"] in ops]
    return sorted(found, key=lambda one: one[1]["seq"])


def operations(workers: Workers) -> tuple[Operations, np.ndarray, Operations, np.ndarray]:
    """Writes with the request of each of their pages, and reads with theirs."""
    made: list[Any] = []
    for ops in (FILLS, READS):
        rows = _rows(workers, ops)
        pages = np.concatenate([as_ints(row["pages"]) + n * POOL_PAGES for n, row in rows])
        bounds = np.cumsum([0, *(len(row["pages"]) for _, row in rows)])
        seq, req = (np.array([row[name] for _, row in rows], np.int64) for name in ("seq", "req"))
        made += [Operations(seq, bounds, pages), np.repeat(req, np.diff(bounds))]
    return made[0], made[1], made[2], made[3]


def by_walk(given: tuple[Operations, np.ndarray, Operations, np.ndarray]) -> int:
    """Reads of what another request wrote last, by `last_writes`."""
    writes, writer, reads, reader = given
    found = last_writes(writes, reads, 2 * POOL_PAGES)
    return int(np.count_nonzero((found >= 0) & (writer[found] != reader)))


def flat(workers: Workers) -> dict[str, dict[str, np.ndarray]]:
    """Page, seq and request of every page written or read, by seq."""
    found = {}
    for name, ops, who in (("writes", FILLS, "writer"), ("reads", READS, "reader")):
        rows = _rows(workers, ops)
        lengths = [len(row["pages"]) for _, row in rows]
        page = np.concatenate([as_ints(row["pages"]) + n * POOL_PAGES for n, row in rows])
        seq, req = (np.repeat([row[column] for _, row in rows], lengths) for column in ("seq", "req"))
        found[name] = {"page": page, "seq": seq, who: req}
    return found


def on_one_number(workers: Workers) -> dict[str, dict[str, np.ndarray]]:
    """The same, page and seq as one number, by that."""
    found = {}
    for name, columns in flat(workers).items():
        at = (columns.pop("page") << PAGE_BITS) + columns.pop("seq")
        order = np.argsort(at, kind="stable")
        found[name] = {"at": at[order]} | {column: values[order] for column, values in columns.items()}
    found["writes"]["written"] = found["writes"]["at"]
    return found


def _frames(name: str, sorted_by: str) -> Callable[[Workers], tuple[Any, Any]]:
    """(reads, writes) as data frames of a library."""

    def made(workers: Workers) -> tuple[Any, Any]:
        library = importlib.import_module(name)
        arrays = (flat if sorted_by == "seq" else on_one_number)(workers)
        reads, writes = (library.DataFrame(arrays[which]) for which in ("reads", "writes"))
        if name == "polars":
            reads, writes = reads.set_sorted(sorted_by), writes.set_sorted(sorted_by)
        return reads, writes

    return made


def _of_others(joined: Any) -> int:
    """Reads that found another's write; one found by its number must be of the same page."""
    reader, writer = joined["reader"].to_numpy(), joined["writer"].to_numpy()
    found = ~np.isnan(writer.astype(np.float64)) & (writer != reader)
    if "written" in joined:
        written = np.nan_to_num(joined["written"].to_numpy().astype(np.float64), nan=-1.0).astype(np.int64)
        found &= written >> PAGE_BITS == joined["at"].to_numpy() >> PAGE_BITS
    return int(np.count_nonzero(found))


def polars_by_page(given: tuple[Any, Any]) -> int:
    """By polars, with a column for the page."""
    return _of_others(given[0].join_asof(given[1], on="seq", by="page", check_sortedness=False))


def polars_on_one(given: tuple[Any, Any]) -> int:
    """By polars, on one number."""
    return _of_others(given[0].join_asof(given[1], on="at", check_sortedness=False))


def pandas_by_page(given: tuple[Any, Any]) -> int:
    """By pandas, with a column for the page."""
    return _of_others(importlib.import_module("pandas").merge_asof(*given, on="seq", by="page"))


def pandas_on_one(given: tuple[Any, Any]) -> int:
    """By pandas, on one number."""
    return _of_others(importlib.import_module("pandas").merge_asof(*given, on="at"))


Stage = Callable[[Any], Any]
CORE: dict[str, tuple[Stage, Stage]] = {
    "core pass: last_writes": (operations, by_walk),
    "core pass: polars, by page": (_frames("polars", "seq"), polars_by_page),
    "core pass: polars, one number": (_frames("polars", "at"), polars_on_one),
    "core pass: pandas, by page": (_frames("pandas", "seq"), pandas_by_page),
    "core pass: pandas, one number": (_frames("pandas", "at"), pandas_on_one),
}
"""Name: what is made of the ledger's rows, and what is measured."""


JUDGING = ("reading", "evidence", "replay", "SQL", "verdicts")
WHOLE = "all of it: both engines"


def _timed(measured: Stage, given: Any) -> tuple[Any, dict[str, float]]:
    """(result, what it took); the peak of memory is the process's until then."""
    cpu, wall = time.process_time(), time.perf_counter()
    result = measured(given)
    spent = {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}
    return result, spent | {"peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def judging(directory: str) -> dict[str, dict[str, float]]:
    """What `foreign_reads` does, stage by stage in this process, and all of it together."""
    ledger, of_reading = _timed(read_ledger, directory)
    evidence, of_evidence = _timed(prepare, ledger)
    findings, of_replay = _timed(replay.run, evidence)
    others, of_sql = _timed(sql_engine.run, evidence)
    if not findings.equals(others):
        raise SystemExit("the engines disagree")
    _, of_verdicts = _timed(partial(responses, evidence), findings)
    stages = (of_reading, of_evidence, of_replay, of_sql, of_verdicts)
    whole = {what: sum(stage[what] for stage in stages) for what in ("cpu", "wall")}
    return dict(zip((*JUDGING, WHOLE), (*stages, whole | {"peak_mb": of_verdicts["peak_mb"]}), strict=True))


def core(name: str, directory: str) -> dict[str, float]:
    """One core pass, in this process."""
    ready, measured = CORE[name]
    if needed := _library(name):
        importlib.import_module(needed)
    rows = worker_rows(read_ledger(directory))
    given, made = _timed(ready, rows)
    del rows
    answer, spent = _timed(measured, given)
    return spent | {"made": made["cpu"], "answer": answer}


def _library(name: str) -> str | None:
    return next((library for library in ("polars", "pandas") if library in name), None)


def measure(name: str, directory: str) -> dict[str, dict[str, float]]:
    """One measure, in this process: lines of the table."""
    return judging(directory) if name == "judging" else {name: core(name, directory)}


def run(wanted: int, pages: int) -> None:
    """Every measure on a ledger of one size."""
    with tempfile.TemporaryDirectory() as directory:
        begun = time.process_time()
        events = write_ledger(directory, wanted, pages)
        spent = time.process_time() - begun
        size = sum(path.stat().st_size for path in Path(directory).rglob("*") if path.is_file())
        print(
            f"{events:,} page events at {pages} pages an operation: recorded, drained and compacted in {spent:.1f} s CPU,"
            f" {1e9 * spent / events:.0f} ns a page event; {size / events:.3f} bytes a page event",
            flush=True,
        )
        answers: set[float] = set()
        for name in ("judging", *CORE):
            needed = _library(name)
            if needed is not None and importlib.util.find_spec(needed) is None:
                print(f"{name:<30} not installed: pip install -e '.[bench]'")
                continue
            command = [sys.executable, __file__, "--measure", name, directory]
            told = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            for line, spent in told.items():
                answers |= {spent["answer"]} if "answer" in spent else set()
                print(_line(line, spent, events), flush=True)
        if len(answers) > 1:
            raise SystemExit(f"the core passes count different reads of another's write: {sorted(answers)}")


def _line(name: str, spent: dict[str, float], events: int) -> str:
    micros = 1e6 * spent["cpu"] / events
    told = f"{name:<30} {spent['cpu']:7.2f} s CPU {spent['wall']:7.2f} s wall, {micros:6.4f} us CPU a page event"
    made = f"; its input made in {1e6 * spent['made'] / events:.4f} us" if "made" in spent else ""
    return f"{told}, {spent['peak_mb']:6.0f} MB{made}"


def main() -> None:
    """Prints a table for each size."""
    if sys.argv[1:2] == ["--measure"]:
        print(json.dumps(measure(*sys.argv[2:4])))
        return
    for size in sys.argv[1:] or DEFAULT:
        wanted, pages = (int(number) for number in size.split("x"))
        run(wanted, pages)


if __name__ == "__main__":
    main()
