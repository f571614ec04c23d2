"""What a long command is doing, how far it is and how long it may take, on a terminal; nothing is written where there is none.

Invariant: it goes to stderr and leaves nothing behind, so that data and words are the same with it and without.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text

Counted = Callable[[int, int], None]
"""Hears how many are done, and of how many."""


class Tell(Protocol):
    """Hears the stage that is under way and, where it can be counted, how many are done of how many."""

    def __call__(self, stage: str, done: int = 0, of: int | None = None) -> None:
        """`of` is None where it cannot be counted."""


def silent(stage: str, done: int = 0, of: int | None = None) -> None:
    """Tells nobody."""


def uncounted(done: int, of: int) -> None:
    """Tells nobody."""


@contextmanager
def stages(console: Console | None = None, clock: Callable[[], float] = time.monotonic) -> Iterator[Tell]:
    """Tells the stage that is under way, and how long those before it took. `clock` gives seconds."""
    console = console or Console(stderr=True)
    if not console.is_terminal:
        yield silent
        return
    columns = TextColumn("{task.description}", markup=False), BarColumn(20), _Left()
    with Progress(*columns, console=console, transient=True, get_time=clock) as bars:
        yield _Stages(bars, clock)


class _Stages:
    """One line: the stages that are over with their seconds, the one under way with its bar."""

    def __init__(self, bars: Progress, clock: Callable[[], float]) -> None:
        self._bars, self._clock = bars, clock
        self._over: list[str] = []
        self._stage: str | None = None
        self._begun = clock()
        self._task = bars.add_task("", total=None)

    def __call__(self, stage: str, done: int = 0, of: int | None = None) -> None:
        if stage != self._stage:
            self._begin(stage)
        self._bars.update(self._task, completed=done, total=of)

    def _begin(self, stage: str) -> None:
        now = self._clock()
        if self._stage is not None:
            self._over.append(f"{self._stage} {now - self._begun:.0f} s")
        self._stage, self._begun = stage, now
        self._bars.remove_task(self._task)  # what is left is reckoned from the pace of this stage alone
        self._task = self._bars.add_task(", ".join([*self._over, stage]) + " ...", total=None)


class _Left(ProgressColumn):
    """How many are done of how many, and how many seconds the rest takes at this pace."""

    def render(self, task: Task) -> Text:
        if task.total is None:
            return Text("")
        left = task.time_remaining
        return Text(f"{task.completed:.0f} of {task.total:.0f}" + (f", {left:.0f} s left" if left is not None else ""))
