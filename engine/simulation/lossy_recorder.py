"""A recorder some of whose rows never reach the ledger.

Invariant: a lost row keeps its seq and its place in the `prev` chains, so that its loss can be proved.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.ledger.forms import Form
from engine.ledger.recorder import Recorder


class LossyRecorder(Recorder):
    """Drops each row for which `loses(table)` is true."""

    loses: Callable[[str], bool] | None = None

    def _queue(self, form: Form, columns: dict[str, Any]) -> int:
        seq = super()._queue(form, columns)
        if self.loses is not None and form.table != "workers" and self.loses(form.table):
            self._ring.pop()
        return seq
