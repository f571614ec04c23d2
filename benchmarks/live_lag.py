"""How far the consoles lag behind an engine that writes: the picture, and its verdicts.

Run: python benchmarks/live_lag.py [--ledger DIR] [--rate 1000] [--seconds 60]

A writer of its own process writes a prefill and a decode worker's rows at RATE a second into a new ledger, or into a copy of
DIR as a next life of its workers (`benchmarks/fleet.py --keep DIR` makes one). The terminal console (160 x 48, without a
terminal) and the feed of the web console, with one listener, follow it for SECONDS each. Ten times a second what is shown is
held against the clock. Printed: median, p95 and worst of how old the newest row is that is shown (the picture), and of how old
the newest is that verdicts are made of; how many rows a second there really were; and CPU of the console.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from foreign_reads import PAGE_TOKENS, POOL_PAGES, Site
from terminal import SIZE, now_us, surroundings

from console.core.desk import Desk
from console.core.source import LedgerSource
from console.tui.app import ConsoleApp
from console.web.feed import Feed
from engine.ledger.recorder import Recorder

PAGES = 16
SAMPLE_S = 0.1


class LiveSite(Site):
    """The workers of `foreign_reads.py` on the clock of the wall, with recorders that drain by themselves."""

    @property
    def now(self) -> int:  # type: ignore[override]
        """Microseconds UTC."""
        return now_us()

    @now.setter
    def now(self, value: int) -> None:
        """Time passes by itself."""

    def _worker(self, directory: str, name: str, ordinal: int) -> Recorder:
        made = Recorder(directory, name, ordinal=ordinal, now_us=now_us, digest_key=b"benchmark")
        made.record("workers", "start", role=name.split("-", maxsplit=1)[0], ordinal=ordinal)
        made.record("workers", "config", pool="kv", pool_pages=POOL_PAGES, page_tokens=PAGE_TOKENS, page_bytes=4096)
        return made

    @property
    def rows(self) -> int:
        """Rows of both workers so far."""
        return self.prefill.seq + self.decode.seq


def write(directory: str, rate: int) -> None:
    """Write until the parent closes this process's input."""
    site, started, req = LiveSite(directory), time.monotonic(), 0
    os.set_blocking(sys.stdin.fileno(), False)
    while sys.stdin.buffer.read(1) is None:
        while site.rows < rate * (time.monotonic() - started):
            req += 1
            site.request(req, PAGES)
        time.sleep(0.005)
    print(site.rows / (time.monotonic() - started))
    for recorder in (site.prefill, site.decode):
        recorder.close()


async def watch(desk: Callable[[], Desk], seconds: float) -> tuple[list[float], list[float]]:
    """Ages in seconds of what is shown and of what is judged, sampled from the first picture on."""
    until = time.monotonic() + seconds
    shown, judged = [], []
    while time.monotonic() < until:
        await asyncio.sleep(SAMPLE_S)
        known = desk().rollup
        if known is not None and known.data_us is not None and known.judged_us is not None:
            shown.append((now_us() - known.data_us) / 1e6)
            judged.append((now_us() - known.judged_us) / 1e6)
    return shown, judged


async def terminal(source: LedgerSource, seconds: float, kept: Path) -> tuple[list[float], list[float]]:
    """The terminal console."""
    app = ConsoleApp(source, around=surroundings(kept))
    async with app.run_test(size=SIZE):
        return await watch(lambda: app.desk, seconds)


async def web(source: LedgerSource, seconds: float) -> tuple[list[float], list[float]]:
    """The web console's feed with a browser that listens."""
    feed = Feed(source)
    tasks = [asyncio.create_task(feed.run()), asyncio.create_task(_listen(feed))]
    try:
        return await watch(lambda: feed.desk, seconds)
    finally:
        await feed.close()
        for task in tasks:
            task.cancel()


async def _listen(feed: Feed) -> None:
    async for _ in feed.news(""):
        pass


def report(name: str, found: tuple[list[float], list[float]], spent: float, seconds: float) -> None:
    for what, ages in zip(("picture", "verdicts"), found, strict=True):
        ages.sort()
        if ages:
            middle, high = ages[len(ages) // 2], ages[int(len(ages) * 0.95)]
            print(f"{name}, {what}: median {middle:.1f} s, p95 {high:.1f} s, worst {ages[-1]:.1f} s behind", flush=True)
    print(f"{name}: {spent / seconds:.0%} of a core")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ledger", type=Path)
    parser.add_argument("--rate", type=int, default=1000, help="rows a second")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--write", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.write:
        write(given.write, given.rate)
        return
    for name in ("terminal", "web"):
        with tempfile.TemporaryDirectory() as place:
            ledger = Path(place) / "ledger"
            if given.ledger:
                shutil.copytree(given.ledger, ledger)
            command = [sys.executable, __file__, "--write", str(ledger), "--rate", str(given.rate)]
            with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
                while not list(ledger.glob("wal/*.wal")):
                    time.sleep(0.05)
                source, spent = LedgerSource(ledger, now_us=now_us, engine="replay"), time.process_time()
                # The loop is not closed by asyncio.run, which would wait for a reading that has begun.
                loop = asyncio.new_event_loop()
                following = (
                    terminal(source, given.seconds, Path(place)) if name == "terminal" else web(source, given.seconds)
                )
                report(name, loop.run_until_complete(following), time.process_time() - spent, given.seconds)
                rows, _ = writer.communicate()
                print(f"{name}: {float(rows):,.0f} rows a second were written")
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
