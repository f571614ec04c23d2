"""The axis of a length's prefill times: linear, or logarithmic where they lie too far apart for a linear one.

Invariant: everything that is drawn of a length lies on its axis: p5 to p95 of every stretch, the baseline's band, the floor.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from console.core.latency import Length

LOG_FROM = 8.0
"""Where the largest is so many times the least, or more, a linear axis shows nothing of the small ones."""
_LEAST_MS = 1e-3


@dataclass(frozen=True)
class LatencyAxis:
    """From `low` at the bottom to `high` at the top, ms."""

    low: float
    high: float
    is_log: bool

    def part(self, ms: float) -> float:
        """How far up a time lies, 0 to 1."""
        if self.is_log:
            ms, low, high = (math.log(max(value, _LEAST_MS)) for value in (ms, self.low, self.high))
        else:
            low, high = self.low, self.high
        return min(max((ms - low) / max(high - low, 1e-9), 0.0), 1.0)

    def at(self, part: float) -> float:
        """The time that lies so far up, ms."""
        if self.is_log:
            return math.exp(math.log(self.low) + part * (math.log(self.high) - math.log(self.low)))
        return self.low + part * (self.high - self.low)


def axis_of(length: Length) -> LatencyAxis:
    """The axis on which one length is drawn."""
    return axis_over(
        [*length.p5, *length.p95, length.floor_ms, length.baseline_p5_ms or length.floor_ms, *(length.band_ms or ())]
    )


def axis_over(values: Iterable[float]) -> LatencyAxis:
    """The axis for some times, ms."""
    there = [max(value, _LEAST_MS) for value in values] or [_LEAST_MS]
    low, high = min(there), max(there)
    if high >= LOG_FROM * low:
        return LatencyAxis(low, high, is_log=True)
    return LatencyAxis(0.0, high, is_log=False)
