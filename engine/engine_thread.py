"""The thread that turns a worker's control plane, and the way its events reach HTTP handlers.

Invariant: the control plane runs in this thread alone; each live request id has one listener, so that no client ever
hears another's tokens.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable

from engine.role import Event, Role

log = logging.getLogger(__name__)

IDLE_WAIT, BUSY_WAIT = 0.01, 0.0005


class RequestIdInUse(Exception):
    """Somebody already listens to this request id."""


class EngineThread:
    """Turns a role's `tick` in a thread of its own and carries its events to asyncio queues."""

    def __init__(self) -> None:
        self._listeners: dict[str, tuple[asyncio.AbstractEventLoop, asyncio.Queue[Event]]] = {}
        self._stop = threading.Event()
        self._wake = threading.Event()
        self.failure: BaseException | None = None
        self._thread: threading.Thread | None = None

    def start(self, role: Role, on_failure: Callable[[], None]) -> None:
        """Begin to tick. `on_failure` is called if the control plane raises: the worker must then end."""

        def run() -> None:
            try:
                while not self._stop.is_set():
                    if not role.tick().busy:
                        # Messages of peers come without a wake-up: short naps while any request is alive.
                        self._wake.wait(BUSY_WAIT if role.running() else IDLE_WAIT)
                        self._wake.clear()
            except Exception as error:
                self.failure = error
                log.exception("the control plane failed; this worker ends")
                on_failure()

        self._thread = threading.Thread(target=run, name="engine", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stop.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join()

    def emit(self, rid: str, event: Event) -> None:
        """Called by the engine thread."""
        entry = self._listeners.get(rid)
        if entry is not None:
            entry[0].call_soon_threadsafe(entry[1].put_nowait, event)

    def listen(self, rid: str) -> asyncio.Queue[Event]:
        """A queue of one request's events; call before `submit`. Raises RequestIdInUse."""
        if rid in self._listeners:
            raise RequestIdInUse(rid)
        queue: asyncio.Queue[Event] = asyncio.Queue()
        self._listeners[rid] = (asyncio.get_running_loop(), queue)
        return queue

    def forget(self, rid: str) -> None:
        """No more events of a request are wanted."""
        self._listeners.pop(rid, None)

    def wake(self) -> None:
        """There is something to do."""
        self._wake.set()
