"""A recorder some of whose rows never reach the ledger.

Invariant: a lost row keeps its seq and its place in the `prev` chains, so that its loss can be proved.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from engine.ledger.forms import RecordedRow
from engine.ledger.recorder import Recorder


class LossyRecorder(Recorder):
    """See the module."""

    def lose(self, loses: Callable[[str], bool]) -> None:
        """From now on drop each row for whose table `loses` is true, but for those of the worker itself."""
        self._ring = _LeakyRing(self._ring, loses)


class _LeakyRing(deque[RecordedRow]):
    def __init__(self, rows: Iterable[RecordedRow], loses: Callable[[str], bool]) -> None:
        super().__init__(rows)
        self._loses = loses

    def append(self, row: RecordedRow) -> None:
        """Queue a row, or lose it."""
        table = row[0].table
        if table == "workers" or not self._loses(table):
            super().append(row)
