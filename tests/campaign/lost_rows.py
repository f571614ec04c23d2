"""A ledger some of whose rows are taken away after it was written, as if they had never reached its files.

Invariant: what the files claim of their ends (manifest, closes) stays, so that the loss can be proved.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pyarrow as pa

from engine.ledger import reader
from engine.ledger.files import LedgerFiles
from engine.ledger.reader import Ledger

LOSABLE = ("requests", "pages", "transfers", "steps", "checks")
RowName = tuple[str, str, int, int]
"""(table, worker, epoch, seq)."""


def draw_rows(ledger: Ledger, source: random.Random, share: float) -> list[RowName]:
    """Each row of the `LOSABLE` tables with probability `share`."""
    names = []
    for table in LOSABLE:
        rows = ledger.tables[table]
        columns = (rows[name].to_pylist() for name in ("worker", "epoch", "seq"))
        names += [(table, *row) for row in zip(*columns, strict=True) if source.random() < share]
    return names


def read_without(path: Path, lost: Collection[RowName]) -> Ledger:
    """The ledger at `path` without some rows."""
    gone = set(lost)

    class LosingFiles(LedgerFiles):
        def read(self) -> None:
            super().read()
            self.parts = [replace(part, rows=part.rows.filter(kept(part))) for part in self.parts]

    def kept(part: reader.Part) -> pa.Array:
        seqs = part.rows["seq"].to_pylist()
        return pa.array([(part.table, part.worker, part.epoch, seq) not in gone for seq in seqs], pa.bool_())

    with mock.patch.object(reader, "LedgerFiles", LosingFiles):
        return reader.read_ledger(path, verify=False)


def smallest(lost: list[RowName], fails: Callable[[list[RowName]], bool]) -> list[RowName]:
    """A part of `lost` of which no row can be left out without `fails` being false."""
    size = max(len(lost) // 2, 1)
    while True:
        start = 0
        while start < len(lost):
            fewer = lost[:start] + lost[start + size :]
            if fails(fewer):
                lost = fewer
            else:
                start += size
        if size == 1:
            return lost
        size //= 2
