"""Virtual time: one queue of timed actions, and tasks that wait in it.

A task is a greenlet: the synchronous control plane runs inside it unchanged, and a call that takes time (a forward
pass, a nap) gives way to the others until that time has come.

Invariant: time never goes back, actions of one moment happen in the order in which they were planned, and nothing
else decides an order; so the same plan gives the same run.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

from greenlet import GreenletExit, getcurrent, greenlet

Action = Callable[[], None]


class World:
    """The queue. Times are us of true time; workers see them through clocks of their own."""

    def __init__(self, start_us: int) -> None:
        self.now = start_us
        self.failure: BaseException | None = None
        self._queue: list[tuple[int, int, Action]] = []
        self._planned = 0
        self._loop = getcurrent()

    def at(self, when_us: int, action: Action) -> None:
        """Plan an action; what is planned for the past happens now, after what is already planned for now."""
        self._planned += 1
        heapq.heappush(self._queue, (when_us if when_us > self.now else self.now, self._planned, action))

    def run(self, until_us: int) -> None:
        """Let time pass up to and with `until_us`. Raises what a task or an action raised."""
        queue = self._queue
        while queue and queue[0][0] <= until_us:
            self.now, _, action = heapq.heappop(queue)
            action()
            if self.failure is not None:
                raise self.failure
        self.now = max(self.now, until_us)

    def next_us(self) -> int | None:
        """When the next action is due; None where nothing is planned."""
        return self._queue[0][0] if self._queue else None

    def give_way(self) -> None:
        """From inside a task: go on with other actions until the task is switched to again."""
        self._loop.switch()


class Task:
    """A body of code that waits in virtual time."""

    def __init__(self, world: World, name: str, body: Action) -> None:
        self.world, self.name = world, name
        self.ended = False
        self._body = body
        self._greenlet = greenlet(self._run)
        self._nap = 0  # counts waits, so that a timer that comes too late wakes nobody
        self._waiting = self._deaf = self._called = False
        world.at(world.now, self._switch)

    def wait(self, until_us: int) -> bool:
        """From inside: wait until then, or until somebody calls. True where called (also before the wait began)."""
        if not self._called:
            self._park(until_us)
        called, self._called = self._called, False
        return called

    def work(self, until_us: int) -> None:
        """From inside: be busy until then; calls wait."""
        self._deaf = True
        self._park(until_us)
        self._deaf = False

    def heard(self) -> None:
        """From inside: who has called so far is about to be listened to, and ends no wait that begins later."""
        self._called = False

    def call(self) -> None:
        """From outside: end the task's wait, or its next one."""
        self._called = True
        if self._waiting and not self._deaf:
            self._wake_at(self.world.now)

    def kill(self) -> None:
        """From outside: the task ends where it stands."""
        self.ended, self._waiting = True, False
        self._nap += 1
        self._greenlet.throw(GreenletExit)

    def _park(self, until_us: int) -> None:
        self._waiting = True
        self._wake_at(until_us)
        self.world.give_way()

    def _wake_at(self, when_us: int) -> None:
        self._nap += 1
        nap = self._nap

        def wake() -> None:
            if self._waiting and self._nap == nap:  # who has ended waits no more
                self._waiting = False
                self._greenlet.switch()

        self.world.at(when_us, wake)

    def _switch(self) -> None:
        if not self.ended:
            self._greenlet.switch()

    def _run(self) -> None:
        try:
            self._body()
        except Exception as error:
            self.world.failure = error
        self.ended = True
