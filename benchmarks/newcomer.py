"""From a cold start to a contaminated response and its donors, with the keys that stand on the screen alone.

Run: python benchmarks/newcomer.py [--ledger DIR]    (default sample_logs/glm53-155/ledger)

A console of 160 x 48 opens, in a process of its own, on a ledger that it has never seen: nothing is kept of it, so that it
is read and judged by both engines first. Then one key after the other is pressed, each of them named in the footer or on the
tab line when it is. Printed: after how many seconds of wall and of CPU time each step was on the screen, and what stood there.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from pathlib import Path

from terminal import SIZE, now_us, surroundings
from textual.pilot import Pilot

from console.core.source import LedgerSource
from console.tui.app import ConsoleApp
from console.tui.incident_screen import IncidentScreen

SAMPLE = Path(__file__).parents[1] / "sample_logs" / "glm53-155" / "ledger"


def lines_of(app: ConsoleApp) -> list[str]:
    """The screen as lines of text."""
    return ["".join(segment.text for segment in strip) for strip in app.screen._compositor.render_strips()]


def said(what: str, line: str, began: float) -> None:
    print(
        f"{time.time() - began:6.1f} s, CPU {time.process_time():5.1f} s  {what:28} {' '.join(line.split())[:110]}",
        flush=True,
    )


def line_with(app: ConsoleApp, words: str) -> str:
    """The first line of the screen that has the words. Raises RuntimeError: they are part of what a newcomer has to see."""
    for line in lines_of(app):
        if words in line:
            return line
    raise RuntimeError(f"{words!r} does not stand on the screen:\n" + "\n".join(lines_of(app)))


async def press_shown(pilot: Pilot[None], app: ConsoleApp, key: str, hint: str) -> None:
    """Press a key that the tab line or the footer names."""
    lines = lines_of(app)
    if hint not in lines[1] and hint not in lines[-1]:
        raise RuntimeError(f"no key is named {hint!r} on the screen")
    await pilot.press(key)
    await pilot.pause()


async def walk(ledger: Path, kept: Path, began: float) -> None:
    app = ConsoleApp(LedgerSource(ledger, now_us=now_us), around=surroundings(kept))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause()
        said("it says that it reads", line_with(app, "Reading the ledger"), began)
        while app.desk.shown is None and app.desk.failure is None:
            await pilot.pause(0.05)
        await pilot.pause()
        said("the gravest incident", line_with(app, "▲P1"), began)
        await press_shown(pilot, app, "enter", "↵ open")
        while not isinstance(app.screen, IncidentScreen) or app.screen.is_computing:
            await pilot.pause(0.05)
        await pilot.pause()
        said("↵: the response", line_with(app, "VICTIM"), began)
        said("its pages and their donors", line_with(app, "◂━━"), began)
        said("the offending read", line_with(app, "»✗"), began)
        await press_shown(pilot, app, "full_stop", ". ")
        said(".: the next response", line_with(app, "VICTIM"), began)
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


def main() -> None:
    began = time.time() - time.process_time()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ledger", type=Path, default=SAMPLE)
    with tempfile.TemporaryDirectory() as place:
        asyncio.run(walk(parser.parse_args().ledger, Path(place), began))


if __name__ == "__main__":
    main()
