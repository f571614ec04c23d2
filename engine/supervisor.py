"""Keeps a started engine going when a child ends by itself.

Invariant: the end of a worker ends nothing else; every end is said, with the name and the exit code.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from engine.serve import GATEWAY, RunningEngine

SHORT_LIFE, FIRST_PAUSE, LONGEST_PAUSE = 10.0, 0.5, 30.0
"""Seconds. A child that ends sooner than the first after its start waits before its next start, longer each time."""


class Supervisor:
    """Looks at the children of an engine; with `restart`, those that ended are started again."""

    def __init__(
        self, engine: RunningEngine, restart: bool, say: Callable[[str], None],
        now: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._engine, self._restart, self._say, self._now = engine, restart, say, now
        self._started = dict.fromkeys(engine.children, now())
        self._pause = dict.fromkeys(engine.children, 0.0)  # of a child's next start
        self._due: dict[str, float] = {}  # children that have ended -> when they are to be started
        self._gone: set[str] = set()

    def look(self) -> str | None:
        """Note what has ended and start what is due; says why where the whole engine is to end."""
        for name, code in self._engine.ended().items():
            if name in self._gone or name in self._due:
                continue
            if not self._restart and name == GATEWAY:
                return f"{name} ended with exit code {code}; its messages are above"
            self._note(name, code)
        for name in [name for name, due in self._due.items() if due <= self._now()]:
            del self._due[name]
            self._engine.start(name)
            self._started[name] = self._now()
        return None

    def _note(self, name: str, code: int) -> None:
        words = f"{name} ended with exit code {code}"
        if not self._restart:
            self._gone.add(name)
            self._say(f"{words}; the engine goes on without it")
            return
        short = self._now() - self._started[name] < SHORT_LIFE
        self._pause[name] = min(max(2 * self._pause[name], FIRST_PAUSE), LONGEST_PAUSE) if short else 0.0
        self._due[name] = self._now() + self._pause[name]
        self._say(f"{words}; it is started again" + (f" in {self._pause[name]:g} s" if self._pause[name] else ""))
