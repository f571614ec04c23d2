"""What a recorder costs the engine: calls of its handlers and the time they took.

Invariant: what is measured is the engine's own thread; the drain runs beside it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass
class Meter:
    """Counts calls and nanoseconds of `now_ns`."""

    now_ns: Callable[[], int] = time.perf_counter_ns
    calls: int = 0
    ns: int = 0

    def add(self, ns: int) -> None:
        """One call has taken so long."""
        self.calls += 1
        self.ns += ns
