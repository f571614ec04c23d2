"""Ledgers that real vLLM servers wrote, judged as what was asked of them demands; what they answered agrees."""

import json

import pytest
from catalogue import HERE

from engine.ledger.reader import read_ledger
from forensics.foreign_reads import foreign_reads

RECORDED = sorted(path.parent for path in HERE.glob("vllm-*/expected.json"))


def test_the_recorded_samples_are_there():
    assert [path.name for path in RECORDED] == ["vllm-handoffs", "vllm-stolen-blocks", "vllm-stub"]


@pytest.mark.parametrize("sample", RECORDED, ids=lambda path: path.name)
def test_a_recorded_ledger_is_judged_as_what_was_asked_demands(sample):
    expected = json.loads((sample / "expected.json").read_text())
    found = foreign_reads(read_ledger(sample / "ledger"), engine="both")
    judged = {row["rid"]: row for row in found.responses.to_pylist()}
    for rid, wanted in expected["verdicts"].items():
        row = judged[rid]
        assert (row["verdict"], row["mechanism"] or "", list(row["donors"] or ())) == (
            wanted["verdict"], wanted["mechanism"], wanted["donors"],
        ), rid  # fmt: skip
        if row["verdict"] == "contaminated":
            assert (row["proof"], row["derived"]) == ("proved", False)
            leaked = [secret for donor in wanted["donors"] for secret in expected["secrets"][donor]]
            assert any(secret in expected["answers"][rid] for secret in leaked)
        elif rid in expected["answers"]:
            others = [secret for owner, secrets in expected["secrets"].items() if owner != rid for secret in secrets]
            assert not any(secret in expected["answers"][rid] for secret in others)
