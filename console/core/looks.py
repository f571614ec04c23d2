"""When a look at the ledger last came back, and whether one is overdue: what a source that hangs cannot say itself.

Invariant: measured on a clock that never jumps. A look that failed has come back and has seen nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from console.core.time_range import BadRange, length_us

OVERDUE_S = 15.0
"""How long a look may take before what is shown counts as stale. Readings take longer; looks at the streams go on beside them."""

MOST_REFRESH_S = 3600


@dataclass(frozen=True)
class LastLook:
    """`age_s`: how long ago the last look came back that saw the ledger; `is_overdue`: the next one does not come back."""

    age_s: float
    is_overdue: bool


def refresh_s(text: str) -> int:
    """Seconds between two looks, from a length such as 2s or 1m. Raises BadRange."""
    seconds = length_us(text.strip()) // 1_000_000
    if not 1 <= seconds <= MOST_REFRESH_S:
        raise BadRange(
            f"the ledger is looked at every second at most and once in {MOST_REFRESH_S} s at least; write 2s or 1m"
        )
    return seconds


class Looks:
    """Of one source. `steady_s` gives seconds. From any thread."""

    def __init__(self, steady_s: Callable[[], float]) -> None:
        self._steady_s = steady_s
        self._waiting_since: float | None = None
        self._saw_at: float | None = None

    def began(self) -> None:
        """A look begins; one that has not come back yet is waited for from its own beginning."""
        if self._waiting_since is None:
            self._waiting_since = self._steady_s()

    def ended(self, *, saw: bool) -> None:
        """A look came back; `saw`: it saw the ledger."""
        self._waiting_since = None
        if saw:
            self._saw_at = self._steady_s()

    @property
    def last(self) -> LastLook | None:
        """How it stands now; None before the ledger was seen."""
        seen, since, now = self._saw_at, self._waiting_since, self._steady_s()
        if seen is None:
            return None
        return LastLook(now - seen, since is not None and now - since > OVERDUE_S)
