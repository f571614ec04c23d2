"""Screens whose picture takes longer to compute than a key may take: it is made in a thread and drawn when it is there.

Invariant: per name one computation runs and at most one waits, the newest; what is drawn stays until the next is there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from textual.worker import Worker, WorkerState

from console.tui.screen_base import DeskScreen


@dataclass(frozen=True)
class _Task:
    work: Callable[[], Any]
    done: Callable[[Any], None]


class BackgroundScreen(DeskScreen):
    """A screen that computes beside the event loop."""

    def __init__(self) -> None:
        super().__init__()
        self._now: dict[str, _Task] = {}
        self._next: dict[str, _Task] = {}

    def compute(self, name: str, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """Run `work` in a thread and hand what it gives to `done`; a newer one takes the place of one that waits."""
        if name in self._now:
            self._next[name] = _Task(work, done)
            return
        self._now[name] = _Task(work, done)
        self.run_worker(work, name=name, group=name, thread=True, exit_on_error=False)

    @property
    def is_computing(self) -> bool:
        """Whether something is on its way."""
        return bool(self._now)

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """A computation has ended."""
        worker = event.worker
        if worker.name not in self._now or not worker.is_finished:
            return
        event.stop()
        task = self._now.pop(worker.name)
        if worker.name in self._next:
            following = self._next.pop(worker.name)
            self.compute(worker.name, following.work, following.done)
        if event.state is WorkerState.SUCCESS:
            task.done(worker.result)
        elif event.state is WorkerState.ERROR:
            self.console_app.say_once(f"{worker.name} could not be drawn: {worker.error}")
