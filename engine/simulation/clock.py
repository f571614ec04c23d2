"""A worker's clock in virtual time: true time, shifted and drifting.

Invariant: it never goes back, unless a scenario makes it jump.
"""

from __future__ import annotations

from engine.simulation.world import World

PPM = 1_000_000


class VirtualClock:
    """`offset_us` at the start of the world, `drift_ppm` us gained per second of true time."""

    def __init__(self, world: World, offset_us: int = 0, drift_ppm: int = 0) -> None:
        self._world, self._offset_us, self._drift_ppm = world, offset_us, drift_ppm
        self._start = world.now

    def now_us(self) -> int:
        """See `Clock`."""
        now = self._world.now
        if not self._drift_ppm:
            return now + self._offset_us
        return now + self._offset_us + (now - self._start) * self._drift_ppm // PPM

    def true_us(self, local_us: int) -> int:
        """The first moment of true time at which this clock shows `local_us`."""
        passed = local_us - self._offset_us - self._start
        true = self._start + passed * PPM // (PPM + self._drift_ppm)
        while true + self._offset_us + (true - self._start) * self._drift_ppm // PPM < local_us:
            true += 1
        return true

    def jump(self, micros: int) -> None:
        """Move the clock at once."""
        self._offset_us += micros
