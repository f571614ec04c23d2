"""Who takes part in which decode pass, as the record says it: exactly as many as its `batch`, however full it is."""

from __future__ import annotations

from collections import Counter

import pytest

from engine.ledger.reader import read_ledger
from engine.simulation.fault_plan import KNOWN
from engine.simulation.scenario import parse_scenario
from engine.simulation.simulate import simulate
from forensics.foreign_reads import foreign_reads
from forensics.reading import attendances
from forensics.rows import worker_rows

SCENARIO = """
name: batches
seed: {seed}
duration: 3s
recording: {{step_run: {step_run}}}
fleet:
  - {{group: prefill, role: prefill, pages: {{kv: 96}}, page_tokens: 4, page_bytes: 64Ki, context_tokens: 4096}}
  - {{group: decode, role: decode, pages: {{kv: {pages}}}, page_tokens: 4, page_bytes: 64Ki, context_tokens: 4096,
      max_batch: {batch}{more}}}
traffic:
  - name: api
    arrivals: {{kind: poisson, rate_per_s: 30}}
    prompt: {{kind: uniform, min: 2, max: 40}}
    output: {{kind: uniform, min: 1, max: 60}}
    tenants: [acme, globex]
    disconnects: {{probability: 0.2, after: {{kind: uniform, min: 1ms, max: 300ms}}}}
"""
RETRACTING = ", host_pages: 96, reserved_tokens: 4"
SHAPES = {
    "room for all": (96, 16, ""),
    "full batches": (96, 2, ""),
    "retraction": (40, 16, RETRACTING),
    "retraction from full batches": (40, 2, RETRACTING),
}


def played(directory, shape, seed, step_run):
    pages, batch, more = SHAPES[shape]
    text = SCENARIO.format(seed=seed, step_run=step_run, pages=pages, batch=batch, more=more)
    simulate(parse_scenario(text, "batches", KNOWN), directory)
    return read_ledger(directory)


@pytest.mark.parametrize("step_run", ["0us", "1s"])
@pytest.mark.parametrize("shape", SHAPES)
def test_who_is_bound_and_not_paused_is_in_the_batch(shape, step_run, tmp_path):
    ledger = played(tmp_path / "ledger", shape, 1, step_run)
    worker = worker_rows(ledger)["decode-0", 1]
    taking_part = Counter(one.seq for asked in attendances(worker).values() for one in asked.passes)
    runs = [row for row in worker.steps if row["op"] == "decode"]
    assert len(runs) > 20
    assert {row["seq"]: taking_part[row["seq"]] for row in runs} == {row["seq"]: row["batch"] for row in runs}
    reasons = {row["reason"] for row in worker.requests if row["op"] == "pause"}
    assert reasons == {"retraction": {"retracted"}, "full batches": {"batch_full"}, "room for all": set()}.get(
        shape, {"retracted", "batch_full"}
    )


@pytest.mark.parametrize("shape", SHAPES)
def test_without_a_fault_every_answer_is_clean(shape, tmp_path):
    reads = foreign_reads(played(tmp_path / "ledger", shape, 2, "1s"))
    verdicts = Counter(str(row["verdict"]) for row in reads.responses.to_pylist())
    assert set(verdicts) == {"clean"} and verdicts["clean"] > 20
