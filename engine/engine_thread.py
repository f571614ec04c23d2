"""The thread that turns a worker's control plane, the way its events reach HTTP handlers, and aborts the way back.

Invariant: the control plane runs in this thread alone; each live request id has one listener, so that no client ever
hears another's tokens. A turn begins with what was handed in, so one pass at most ends after an abort was.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any

from engine.role import Event, Role

log = logging.getLogger(__name__)

IDLE_WAIT, BUSY_WAIT = 0.01, 0.0005
REMEMBERED_ABORTS = 4096


class RequestIdInUse(Exception):
    """Somebody already listens to this request id."""


class EngineThread:
    """Turns a role's `tick` in a thread of its own and carries its events to asyncio queues."""

    def __init__(self) -> None:
        self._listeners: dict[str, tuple[asyncio.AbstractEventLoop, asyncio.Queue[Event]]] = {}
        self._aborts: OrderedDict[str, int] = OrderedDict()  # rid -> passes that had ended when its abort came
        self._calls: deque[Callable[[], None]] = deque()
        self._stop = threading.Event()
        self._wake = threading.Event()
        self.failure: BaseException | None = None
        self._thread: threading.Thread | None = None

    def start(self, role: Role, on_failure: Callable[[], None]) -> None:
        """Begin to tick. `on_failure` is called if the control plane raises: the worker must then end."""

        def run() -> None:
            try:
                while not self._stop.is_set():
                    while self._calls:
                        self._calls.popleft()()
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
        self._aborts.pop(rid, None)
        queue: asyncio.Queue[Event] = asyncio.Queue()
        self._listeners[rid] = (asyncio.get_running_loop(), queue)
        return queue

    def forget(self, rid: str) -> None:
        """No more events of a request are wanted."""
        self._listeners.pop(rid, None)

    def abort(self, role: Role, rid: str, reason: str, room: int | None = None) -> int:
        """Give up a request; returns how many passes of this worker had ended when its first abort was handed in."""
        role.abort(rid, reason, room)
        after = self._aborts.setdefault(rid, role.runs.steps)
        if len(self._aborts) > REMEMBERED_ABORTS:
            self._aborts.popitem(last=False)
        self.wake()
        return after

    async def call(self, question: Callable[[], Any]) -> Any:
        """What `question` answers between two turns, in the engine thread."""
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[Any] = loop.create_future()

        def tell(answer: Any) -> None:
            if not answered.cancelled():
                answered.set_result(answer)

        def ask() -> None:
            loop.call_soon_threadsafe(tell, question())

        self._calls.append(ask)
        self.wake()
        return await answered

    def wake(self) -> None:
        """There is something to do."""
        self._wake.set()
