"""Time as the control plane sees it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Microseconds UTC; never goes back within one process."""

    def now_us(self) -> int:
        """The present time."""


class RealClock:
    """Wall-clock time at start, carried on by the monotonic clock."""

    def __init__(self) -> None:
        self._base = time.time_ns() - time.monotonic_ns()

    def now_us(self) -> int:
        """See `Clock`."""
        return (self._base + time.monotonic_ns()) // 1000


class ManualClock:
    """A clock that a test or a simulation moves."""

    def __init__(self, start_us: int = 1_780_000_000_000_000) -> None:
        self._now = start_us

    def now_us(self) -> int:
        """See `Clock`; each look moves it by one microsecond, so that no two rows share a time by accident."""
        self._now += 1
        return self._now

    def advance(self, micros: int) -> None:
        """Let time pass."""
        self._now += micros
