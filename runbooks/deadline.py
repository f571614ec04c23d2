"""The time that a step has left.

Invariant: durations come from a monotonic clock that is handed in; nothing here reads a clock of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


class Clock(Protocol):
    """Wall time for records, monotonic time for durations."""

    def now_us(self) -> int:
        """Microseconds since 1970, UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now_us(self) -> int:
        """Microseconds since 1970, UTC."""
        return time.time_ns() // 1000

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back."""
        return time.monotonic()


@dataclass(frozen=True)
class Deadline:
    """A moment on a monotonic clock, in seconds."""

    at: float
    monotonic: Callable[[], float]

    def left(self) -> float:
        """Seconds left; zero when it has passed."""
        return max(0.0, self.at - self.monotonic())

    def within(self, seconds: float) -> Deadline:
        """The earlier of this deadline and `seconds` from now."""
        return Deadline(min(self.at, self.monotonic() + seconds), self.monotonic)
