"""Cost of the web console's answers over a large record: pages, charts over ranges of all sizes, tables as files.

Run: python benchmarks/console_web.py [page events | ledger directory]   (default 5,000,000)

The ledger is that of `foreign_reads.py`, 64 pages an operation, or one that is there (`benchmarks/fleet.py --keep DIR` makes
one). It is read once; then every address is asked for several
times, charts over ranges that were not asked for before. Printed: seconds to write and to read it, then for each kind of
address p50 and p95 of an answer in ms, CPU time of the process and wall time, without a socket. CPU time is what counts
where the machine does other work too.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
from foreign_reads import write_ledger

from console.core.rollup import Rollup
from console.core.source import LedgerSource
from console.core.time_range import rfc3339
from console.web.app import create_app
from console.web.gate import Gate, Role

PAGE_EVENTS, PAGES = 5_000_000, 64
TOKEN = "token-of-the-benchmark"
ROUNDS = 12
SCREENS = ("overview", "incidents", "held", "latency", "events", "runs")


def addresses(known: Rollup, incident: str | None) -> Iterator[tuple[str, str]]:
    """(kind, address), every round other ranges: from the whole record down to a few ms of it."""
    first, last = known.first_us or 0, known.data_us or 0
    random = np.random.default_rng(11)
    for turn in range(ROUNDS):
        length = (last - first) // 2 ** (turn % 12)
        start = first + int(random.integers(0, max(last - first - length, 1)))
        span = f"from={rfc3339(start)}&to={rfc3339(start + length)}"
        for screen in SCREENS:
            yield f"/{screen}", f"/{screen}?{span}"
        if incident is not None:
            yield "/incidents/ID", f"/incidents/{incident}"
        yield "/pages", f"/pages?{span}"
        yield "chart pages (new range)", f"/api/charts/pages?{span}&rows={turn}-{turn + 20_000}"
        for chart in ("swimlanes", "latency", "strip"):
            yield f"chart {chart}", f"/api/charts/{chart}?{span}"
        if incident is not None:
            yield "chart flows", f"/api/charts/flows?incident={incident}"
        for table in ("incidents.csv", "latency.parquet", "marks.csv"):
            yield f"table {table}", f"/tables/{table}?{span}"


async def ask_all(app: object, incident: str | None, known: Rollup) -> dict[str, list[tuple[float, float]]]:
    took: dict[str, list[tuple[float, float]]] = {}
    headers = {"authorization": f"Bearer {TOKEN}"}
    transport = httpx.ASGITransport(app)  # type: ignore[arg-type]
    async with httpx.AsyncClient(
        transport=transport, base_url="http://127.0.0.1", headers=headers, timeout=600
    ) as client:
        for kind, address in addresses(known, incident):
            wall, cpu = time.perf_counter(), time.process_time()
            answer = await client.get(address)
            spent = time.process_time() - cpu, time.perf_counter() - wall
            if answer.status_code != 200:
                raise RuntimeError(f"{address}: {answer.status_code} {answer.text[:300]}")
            took.setdefault(kind, []).append(spent)
    return took


def main(given: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        ledger, started = Path(directory) / "ledger", time.process_time()
        if given.isdecimal():
            events = write_ledger(str(ledger), int(given), PAGES)
            print(f"{events:,} page events written in {time.process_time() - started:.1f} s CPU", flush=True)
        else:
            ledger = Path(given)
        source = LedgerSource(ledger, now_us=lambda: time.time_ns() // 1000, engine="replay")
        app = create_app(source, Gate({TOKEN: Role.VIEWER}), ("127.0.0.1",), Path(directory) / "state", patience_s=600)
        started = time.process_time()
        desk = asyncio.run(app.state.feed.fresh())
        print(f"read and judged in {time.process_time() - started:.1f} s CPU", flush=True)
        if desk.rollup is None:
            raise RuntimeError(f"the ledger could not be read: {desk.failure}")
        app.state.feed._next_look = time.monotonic() + 3600
        report(asyncio.run(ask_all(app, next((i.id for i in desk.rollup.incidents), None), desk.rollup)))
        print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


def report(took: dict[str, list[tuple[float, float]]]) -> None:
    everything = [spent for kind in took.values() for spent in kind]
    print(f"{'answer':26} {'n':>4} {'cpu p50':>8} {'cpu p95':>8} {'wall p50':>9} {'wall p95':>9}  ms")
    for kind, spent in [*took.items(), ("all", everything)]:
        ms = np.array(spent) * 1000
        (cpu50, wall50), (cpu95, wall95) = np.percentile(ms, 50, axis=0), np.percentile(ms, 95, axis=0)
        print(f"{kind:26} {len(spent):>4} {cpu50:8.1f} {cpu95:8.1f} {wall50:9.1f} {wall95:9.1f}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else str(PAGE_EVENTS))
