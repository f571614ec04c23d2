"""A ledger some of whose rows are taken away after it was written, as if they had never reached its files.

Invariant: what the files claim of their ends (manifest, closes) stays, so that the loss can be proved.
"""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pyarrow as pa

from engine.ledger import reader
from engine.ledger.files import LedgerFiles
from engine.ledger.reader import Ledger

LOSABLE = ("requests", "pages", "transfers", "steps", "checks")


def read_without(path: Path, source: random.Random, share: float) -> Ledger:
    """The ledger at `path` without some rows: each of `LOSABLE` tables' rows is lost with probability `share`."""

    class LosingFiles(LedgerFiles):
        def read(self) -> None:
            super().read()
            self.parts = [replace(part, rows=_thinned(part.rows, source, share)) if part.table in LOSABLE else part for part in self.parts]

    with mock.patch.object(reader, "LedgerFiles", LosingFiles):
        return reader.read_ledger(path, verify=False)


def _thinned(rows: pa.Table, source: random.Random, share: float) -> pa.Table:
    return rows.filter(pa.array([source.random() >= share for _ in range(rows.num_rows)], pa.bool_()))
