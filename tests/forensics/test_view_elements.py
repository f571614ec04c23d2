"""Views are compared some at a time: where they are cut changes no evidence, and no view is left out or met twice."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from engine.ledger.reader import read_ledger
from forensics import view_classes, view_elements
from forensics.evidence import EVIDENCE_SCHEMAS, prepare
from forensics.view_elements import strides

LOGS = Path(__file__).parents[2] / "sample_logs"


@pytest.mark.parametrize("lengths", [[], [0], [9], [0, 0, 0], [1, 2, 3, 4], [0, 100, 0, 1, 1, 1], [4] * 50])
def test_every_view_is_in_one_stride(lengths, monkeypatch):
    monkeypatch.setattr(view_elements, "STRIDE", 5)
    found = strides(np.array(lengths, np.int64))
    assert [view for first, last in found for view in range(first, last)] == list(range(len(lengths)))


def test_a_stride_is_no_longer_than_one_view_makes_it(monkeypatch):
    monkeypatch.setattr(view_elements, "STRIDE", 5)
    lengths = np.array([1, 1, 1, 1, 30, 1, 1, 0, 2, 2, 2], np.int64)
    found = strides(lengths)
    assert len(found) > 4
    assert max(int(lengths[first:last].sum()) for first, last in found) <= 30 + 5


@pytest.mark.parametrize("name", ["classes/m05-source-reuse/ledger", "prefix-cross-tenant", "gappy"])
def test_cutting_changes_no_evidence(name, monkeypatch):
    ledger = read_ledger(LOGS / name)
    whole = prepare(ledger)
    for module in (view_elements, view_classes):
        monkeypatch.setattr(module, "STRIDE", 7)
    cut = prepare(ledger)
    for table in EVIDENCE_SCHEMAS:
        assert getattr(cut, table).equals(getattr(whole, table)), table
