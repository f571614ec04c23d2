"""Cost of recording: nanoseconds per page event on the hot path, in the drain, and bytes per page event sealed.

Run: python benchmarks/recording.py [pages per operation ...]   (default 512 and 32; CPU time of one process)

The load is one request life after another: receive, reserve, receipt, bind, unbind, free of the same shuffled pages,
a run of steps, finish. A page event is one page in one `pages` row. Bars: <= 10 ns on the hot path at 512 pages an
operation; <= 1.0 byte sealed.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from engine.ledger.recorder import Recorder

POOL_PAGES = 445_000
PAGE_EVENTS = 4_000_000
PAGE_OPS = ("receipt", "bind", "unbind", "free")
REQUESTS_PER_DRAIN = 100


def now_us() -> int:
    return time.time_ns() // 1000


def record_requests(recorder: Recorder, pages_per_op: int, requests: int) -> tuple[float, float]:
    """CPU seconds in recorder calls that carry pages (reserve and `PAGE_OPS`), and in draining, as often as a worker does."""
    pool = np.random.default_rng(7).permutation(POOL_PAGES).astype(np.int32)
    last_start = POOL_PAGES - pages_per_op
    hot = drain = 0.0
    for req in range(1, requests + 1):
        start = (req * pages_per_op) % last_start
        pages = pool[start : start + pages_per_op]
        recorder.record("requests", "receive", req=req, rid=f"r{req}", attempt=0, tenant="t-a", prompt_tokens=100)
        began = time.process_time()
        tag = recorder.reserve("kv", req, pages)
        for op in PAGE_OPS:
            recorder.pages(op, "kv", req, tag, pages)
        hot += time.process_time() - began
        recorder.record("steps", "decode", since_seq=recorder.seq, step=req, n=10, batch=3, tokens=10, micros=100)
        recorder.record("requests", "finish", req=req, page_rows=recorder.page_rows(req), output_tokens=5)
        if req % REQUESTS_PER_DRAIN == 0:
            began = time.process_time()
            recorder.flush()
            drain += time.process_time() - began
    return hot, drain


def measure(pages_per_op: int) -> str:
    """One line of figures for one size of operation."""
    events_per_request = pages_per_op * (1 + len(PAGE_OPS))
    requests = max(1, PAGE_EVENTS // events_per_request // REQUESTS_PER_DRAIN) * REQUESTS_PER_DRAIN
    events = requests * events_per_request
    with tempfile.TemporaryDirectory() as directory:
        recorder = Recorder(
            directory, "decode-0", ordinal=1, now_us=now_us, digest_key=b"benchmark", threaded=False,
            rotate_bytes=1 << 40,
        )  # fmt: skip
        hot, drain = record_requests(recorder, pages_per_op, requests)
        began = time.process_time()
        recorder.close()
        seal = time.process_time() - began
        size = sum(file.stat().st_size for file in Path(directory).rglob("*.parquet"))
    nanos = [
        f"{name} {1e9 * spent / events:.2f}" for name, spent in (("hot path", hot), ("drain", drain), ("seal", seal))
    ]
    return f"{pages_per_op:>5} pages/op: ns per page event: {', '.join(nanos)}; {size / events:.3f} bytes per page event sealed"


def main() -> None:
    for pages_per_op in [int(word) for word in sys.argv[1:]] or [512, 32]:
        print(measure(pages_per_op))


if __name__ == "__main__":
    main()
