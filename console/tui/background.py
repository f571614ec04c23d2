"""Screens whose picture takes longer to compute than a key may take: it is made in a thread and drawn when it is there.

Invariant: per name one computation runs and at most one waits, the newest; what is drawn stays until the next is there.
That something is on its way is said only once it has taken LOADING_AFTER_S, and what could not be made is said in its place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from textual.worker import Worker, WorkerState

from console.core.printable import printable
from console.tui.notices import Notice
from console.tui.screen_base import DeskScreen

LOADING_AFTER_S = 0.15
"""What takes less long is not announced: words that flash by are noise."""


@dataclass(frozen=True, eq=False)
class _Task:
    work: Callable[[], Any]
    done: Callable[[Any], None]


class BackgroundScreen(DeskScreen):
    """A screen that computes beside the event loop."""

    def __init__(self) -> None:
        super().__init__()
        self._now: dict[str, _Task] = {}
        self._next: dict[str, _Task] = {}
        self._slow: set[_Task] = set()
        self._failures: dict[str, str] = {}

    def compute(self, name: str, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """Run `work` in a thread and hand what it gives to `done`; a newer one takes the place of one that waits."""
        task = _Task(work, done)
        if name in self._now:
            self._next[name] = task
            return
        self._now[name] = task
        self._failures.pop(name, None)
        self.run_worker(work, name=name, group=name, thread=True, exit_on_error=False)
        self.set_timer(LOADING_AFTER_S, partial(self._say_slow, name, task))

    def _say_slow(self, name: str, task: _Task) -> None:
        if self._now.get(name) is task:
            self._slow.add(task)
            self.draw()

    @property
    def is_computing(self) -> bool:
        """Whether something is on its way."""
        return bool(self._now)

    def pending(self, name: str, loading: Notice) -> Notice | None:
        """What stands in the place of a picture that is not there: nothing at first, `loading` after a while, or why it failed."""
        if name in self._failures:
            return Notice(
                "This could not be drawn", self._failures[name], "Next: the other screens still work; q quits."
            )
        return loading if self._now.get(name) in self._slow else None

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """A computation has ended."""
        worker = event.worker
        if worker.name not in self._now or not worker.is_finished:
            return
        event.stop()
        task = self._now.pop(worker.name)
        self._slow.discard(task)
        if worker.name in self._next:
            following = self._next.pop(worker.name)
            self.compute(worker.name, following.work, following.done)
        if event.state is WorkerState.SUCCESS:
            task.done(worker.result)
        elif event.state is WorkerState.ERROR and worker.name not in self._now:
            self._failures[worker.name] = printable(str(worker.error) or type(worker.error).__name__)
            self.console_app.say_once(f"{worker.name} could not be drawn: {worker.error}")
            self.draw()
