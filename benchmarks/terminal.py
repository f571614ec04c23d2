"""The terminal console: first paint from what is remembered, key to paint, and what it costs when nothing happens.

Run: python benchmarks/terminal.py --ledger DIR [--keys N] [--idle SECONDS]    (DIR: `benchmarks/fleet.py --keep DIR` makes one)

The ledger is judged once, which is not measured, and kept in a store of its own. Then consoles of 160 x 48 open on it
without a terminal. Printed: seconds from the start of a new process to its first picture with figures in it, from what is
kept; milliseconds from a key to the last paint it led to (median, p95 and worst: wall, CPU of this process with what it computes
beside the screen, CPU of the thread that draws); and the part of a core that it takes while no key is pressed. Wall times
mean little on a machine that does other things, whose load is printed with them; CPU times say more.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import console.tui
from console.core.rollup_store import RollupStore
from console.core.snapshot import Snapshot
from console.core.source import LedgerSource
from console.tui.app import ConsoleApp
from console.tui.app_base import Surroundings

SIZE, PAINTS = (160, 48), 3
WALK = (
    "1", "j", "k", "2", "j", "j", "k", "G", "g", "4", "right_square_bracket", "plus", "z", "j", "5", "j", "k",
    "right_curly_bracket", "3", "right", "down", "n", "plus", "z", "7", "k", "k", "g", "1", "left_square_bracket",
)  # fmt: skip
"""Keys that move, change screens, point and zoom."""


class PaintedConsole(ConsoleApp):
    """A console that remembers when it last painted (`time.perf_counter`)."""

    CSS_PATH = Path(console.tui.__file__).parent / "console.tcss"
    painted = 0.0

    def _display(self, *args: Any, **more: Any) -> None:
        super()._display(*args, **more)
        self.painted = time.perf_counter()


def now_us() -> int:
    """Microseconds UTC."""
    return time.time_ns() // 1000


def app_over(ledger: Path, store: RollupStore, kept: Path) -> PaintedConsole:
    """A console that has never been open, but remembers the ledger."""
    return PaintedConsole(LedgerSource(ledger, now_us=now_us, engine="replay", store=store), around=surroundings(kept))


def surroundings(kept: Path) -> Surroundings:
    """Everything that the console keeps, in one directory."""
    return Surroundings(kept / "state", kept / "views.toml", kept, "benchmark", {})


async def paint_and_exit(ledger: Path, store: RollupStore, kept: Path) -> None:
    """Print when this process began to run and its CPU time so far as soon as there are figures, and end at once."""
    app = app_over(ledger, store, kept)
    async with app.run_test(size=SIZE):
        while app.desk.rollup is None:
            await asyncio.sleep(0)
        known = time.perf_counter()
        while app.painted < known:
            await asyncio.sleep(0)
        print(time.time(), time.process_time(), flush=True)
        os._exit(0)  # the reading that has begun meanwhile is not waited for


def first_paint(ledger: Path, kept: Path) -> tuple[float, float]:
    """Seconds from starting a console to a picture with figures: of wall, and of CPU, its imports among them."""
    started = time.time()
    child = [sys.executable, __file__, "--ledger", str(ledger), "--paint", str(kept)]
    drawn, spent = subprocess.run(child, check=True, capture_output=True, text=True).stdout.split()
    return float(drawn) - started, float(spent)


async def measure(source: LedgerSource, reading: Snapshot, kept: Path, keys: int, idle_s: float) -> None:
    """Print key to paint and the cost of idling, once the record has been read."""
    app = PaintedConsole(source, around=surroundings(kept))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause()
        app.take(reading)
        print(f"{app.known.rows:,} rows, {app.known.responses:,} responses, {len(app.known.incidents)} incidents")
        clocks = {"CPU": time.process_time, "CPU of drawing": time.thread_time}
        took: dict[str, list[float]] = {name: [] for name in ("wall", *clocks)}
        for n in range(keys):
            began, pressed = {name: clock() for name, clock in clocks.items()}, time.perf_counter()
            await pilot.press(WALK[n % len(WALK)])
            await pilot.pause()
            # The pilot waits some 80 ms for quiet after each key; the last paint tells when everything was drawn.
            took["wall"].append(max(app.painted - pressed, 0.0) * 1000)
            for name, clock in clocks.items():
                took[name].append((clock() - began[name]) * 1000)
        for name, ms in took.items():
            ms.sort()
            middle, high = ms[len(ms) // 2], ms[int(len(ms) * 0.95)]
            print(f"key to paint, {name}: median {middle:.0f} ms, p95 {high:.0f} ms, worst {ms[-1]:.0f} ms")
        started, spent = time.perf_counter(), time.process_time()
        await asyncio.sleep(idle_s)
        passed = time.perf_counter() - started
        print(f"idle: {(time.process_time() - spent) / passed:.1%} of a core over {passed:.0f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ledger", type=Path, required=True)
    parser.add_argument("--keys", type=int, default=200)
    parser.add_argument("--idle", type=float, default=20.0, help="seconds")
    parser.add_argument("--paint", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.paint is not None:
        asyncio.run(paint_and_exit(given.ledger, RollupStore(given.paint / "rollups"), given.paint))
    with tempfile.TemporaryDirectory() as place:
        kept, spent = Path(place), time.process_time()
        source = LedgerSource(given.ledger, now_us=now_us, engine="replay", store=RollupStore(kept / "rollups"))
        reading = source.read()
        if not isinstance(reading, Snapshot):
            raise SystemExit(f"{reading.what}; {reading.remedy}")
        print(f"judged in {time.process_time() - spent:.1f} s of CPU")
        paints = [first_paint(given.ledger, kept) for _ in range(PAINTS)]
        wall, cpu = (min(paint[i] for paint in paints) for i in (0, 1))
        print(f"first paint from the start of the process: {wall:.2f} s, of CPU {cpu:.2f} s, the best of {len(paints)}")
        asyncio.run(measure(source, reading, kept, given.keys, given.idle))
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
