"""The terminal console: first paint from what is remembered, key to paint, and what it costs when nothing happens.

Run: python benchmarks/terminal.py --ledger DIR [--keys N] [--idle SECONDS]    (DIR: `benchmarks/fleet.py --keep DIR` makes one)

The ledger is judged once before, which is not measured, and kept in a store of its own. Then a console of 160 x 48 opens
on it without a terminal. Printed: seconds from the start to the first picture with figures in it, milliseconds from a key
to a drawn screen (median, p95 and worst, of wall and of CPU time of this process), and the part of a core that it takes
while no key is pressed. Wall times mean little on a machine that does other things; CPU times do.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from pathlib import Path

from console.core.rollup_store import RollupStore
from console.core.snapshot import Snapshot
from console.core.source import LedgerSource
from console.tui.app import ConsoleApp
from console.tui.app_base import Surroundings

SIZE = (160, 48)
WALK = (
    "1", "j", "k", "2", "j", "j", "k", "G", "g", "4", "right_square_bracket", "plus", "z", "j", "5", "j", "k",
    "right_curly_bracket", "1", "left_square_bracket",
)  # fmt: skip
"""Keys that move, change screens, point and zoom."""


def now_us() -> int:
    """Microseconds UTC."""
    return time.time_ns() // 1000


def app_over(ledger: Path, store: RollupStore, kept: Path) -> ConsoleApp:
    """A console that has never been open, but remembers the ledger."""
    around = Surroundings(kept / "state", kept / "views.toml", kept, "benchmark", {})
    return ConsoleApp(LedgerSource(ledger, now_us=now_us, engine="replay", store=store), around=around)


async def first_paint(ledger: Path, store: RollupStore, kept: Path) -> tuple[float, float]:
    """Seconds from making the console to a picture with figures, of wall and of CPU time."""
    started, spent = time.perf_counter(), time.process_time()
    app = app_over(ledger, store, kept)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause()
        assert app.desk.rollup is not None
        took = time.perf_counter() - started, time.process_time() - spent
    return took


async def measure(ledger: Path, store: RollupStore, kept: Path, keys: int, idle_s: float) -> None:
    """Print key to paint and the cost of idling, once the record has been read."""
    app = app_over(ledger, store, kept)
    async with app.run_test(size=SIZE) as pilot:
        while app.desk.shown is None and app.desk.failure is None:
            await pilot.pause(0.1)
        print(f"{app.known.rows:,} rows, {app.known.responses:,} responses, {len(app.known.incidents)} incidents")
        wall, cpu = [], []
        for n in range(keys):
            started, spent = time.perf_counter(), time.process_time()
            await pilot.press(WALK[n % len(WALK)])
            await pilot.pause()
            wall.append(time.perf_counter() - started)
            cpu.append(time.process_time() - spent)
        for name, took in (("wall", sorted(wall)), ("CPU", sorted(cpu))):
            p50, p95 = took[len(took) // 2], took[int(len(took) * 0.95)]
            print(
                f"key to paint, {name}: median {p50 * 1e3:.0f} ms, p95 {p95 * 1e3:.0f} ms, worst {took[-1] * 1e3:.0f} ms"
            )
        started, spent = time.perf_counter(), time.process_time()
        await asyncio.sleep(idle_s)
        passed = time.perf_counter() - started
        print(f"idle: {(time.process_time() - spent) / passed:.1%} of a core over {passed:.0f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ledger", type=Path, required=True)
    parser.add_argument("--keys", type=int, default=200)
    parser.add_argument("--idle", type=float, default=20.0, help="seconds")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        kept, store = Path(place), RollupStore(Path(place) / "rollups")
        spent = time.process_time()
        reading = LedgerSource(given.ledger, now_us=now_us, engine="replay", store=store).read()
        if not isinstance(reading, Snapshot):
            raise SystemExit(f"{reading.what}; {reading.remedy}")
        print(f"judged in {time.process_time() - spent:.1f} s of CPU")
        del reading
        paints = [asyncio.run(first_paint(given.ledger, store, kept)) for _ in range(3)]
        wall, cpu = (min(paint[i] for paint in paints) for i in (0, 1))
        print(f"first paint: {wall:.2f} s, of CPU {cpu:.2f} s, the best of {len(paints)}")
        asyncio.run(measure(given.ledger, store, kept, given.keys, given.idle))


if __name__ == "__main__":
    main()
