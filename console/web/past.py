"""The record as it was, for replays in browsers: judged one moment at a time, the last ones kept.

Invariant: what is given is of the moment that was asked for or of one before it, never of one after it; judging takes half
of a core at most, however many replay.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict

from console.core.as_it_was import snapshot_at
from console.core.snapshot import Snapshot
from console.web.kept import Kept

PATIENCE_S = 2.0
"""How long an answer waits for its moment; then it gets the last one before it that was judged."""
MOST_KEPT = 16
LOOK_AGAIN_S = 0.05


class PastFailed(Exception):
    """The record as it was cannot be judged; the message says why."""


class Past:
    """Moments of one ledger. `patience_s` replaces PATIENCE_S."""

    def __init__(self, patience_s: float | None = None) -> None:
        self._patience_s = PATIENCE_S if patience_s is None else patience_s
        self._kept: OrderedDict[tuple[str, int], Kept] = OrderedDict()
        self._judging: asyncio.Task[None] | None = None
        self._rest_until = 0.0

    async def at(self, whole: Snapshot, t_us: int) -> Kept | None:
        """`whole` as it was at a moment, or at the last judged moment before; None = neither yet. Raises PastFailed."""
        deadline = time.monotonic() + self._patience_s
        while (whole.fingerprint, t_us) not in self._kept and (left := deadline - time.monotonic()) > 0:
            rest = self._rest_until - time.monotonic()
            if self._judging is not None:
                done, _ = await asyncio.wait({self._judging}, timeout=left)
                for error in filter(None, (task.exception() for task in done)):
                    raise PastFailed(f"the record as it was could not be judged: {error}") from error
            elif rest > 0:
                await asyncio.sleep(min(rest, left))
            else:
                self._judging = asyncio.create_task(self._judge(whole, t_us))
        earlier = [key for key in self._kept if key[1] <= t_us]
        if not earlier:
            return None
        best = max(earlier, key=lambda key: (key[1], key[0] == whole.fingerprint))
        self._kept.move_to_end(best)
        return self._kept[best]

    async def exactly(self, whole: Snapshot, t_us: int) -> Kept:
        """`whole` as it was at that moment and no other, however long it takes. Raises PastFailed."""
        while True:
            found = await self.at(whole, t_us)
            if found is not None and found.snapshot.taken_us == t_us:
                return found
            await asyncio.sleep(LOOK_AGAIN_S)

    async def _judge(self, whole: Snapshot, t_us: int) -> None:
        try:
            made, took = await asyncio.to_thread(_judged, whole, t_us)
            self._kept[whole.fingerprint, t_us] = made
            while len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
            self._rest_until = time.monotonic() + took
        finally:
            self._judging = None


def _judged(whole: Snapshot, t_us: int) -> tuple[Kept, float]:
    """The record at a moment, and for how many seconds it was computed."""
    started = time.thread_time()
    past = snapshot_at(whole, t_us)
    _ = past.rollup.incidents, past.rollup.owners, past.incidents, past.order  # computed here, not in the event loop
    return Kept(past), time.thread_time() - started
