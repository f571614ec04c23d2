"""Passes of a decode worker are played as runs, and who goes away in the middle of one has had what has left by then."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from engine.ledger.reader import read_ledger
from engine.simulation import fleet
from engine.simulation.executor import SimExecutor
from engine.simulation.scenario import parse_scenario
from engine.simulation.simulate import simulate

PASS_US = 10_000
OUTPUT = 400


def scenario_of(script: list[dict], **more) -> dict:
    """A script on one worker of each role, whose decode passes take 10 ms each."""
    return {
        "name": "runs", "seed": 1, "duration": "10s", "script": script,
        "fleet": [
            {"group": role, "role": role, "pages": {"kv": 64}, "context_tokens": 4096} for role in ("prefill", "decode")
        ],
        "costs": {"decode": {"base": "10ms", "per_sequence_us": 0, "per_1k_context_us": 0}}, **more,
    }  # fmt: skip


def played(tmp_path: Path, script: list[dict], table: str = "requests", **more) -> list[dict]:
    """The rows that a script leaves."""
    simulate(parse_scenario(yaml.safe_dump(scenario_of(script, **more))), tmp_path / "ledger")
    return read_ledger(tmp_path / "ledger").tables[table].to_pylist()


def request(rid: str, at: str = "1s") -> dict:
    return {"at": at, "action": "request", "rid": rid, "tenant": "acme", "prompt": 100, "max_tokens": OUTPUT}


def only(rows: list[dict], worker: str, op: str) -> dict:
    (found,) = [row for row in rows if row["worker"] == worker and row["op"] == op]
    return found


def test_a_call_that_was_heard_cuts_no_later_run(tmp_path, monkeypatch):
    runs = []

    class Counting(SimExecutor):
        def decode(self, works, **given):
            run = super().decode(works, **given)
            runs.append(run.passes)
            return run

    monkeypatch.setattr(fleet, "SimExecutor", Counting)
    rows = played(tmp_path, [request("one")])
    assert only(rows, "decode-0", "finish")["output_tokens"] == OUTPUT
    assert sum(runs) == OUTPUT - 1
    assert len(runs) < OUTPUT / 8  # cut at page ends, beats and gauges alone


@pytest.mark.parametrize(("step_run", "longest_us"), [("0us", 0), ("200ms", 200_000), ("1s", 1_000_000)])
def test_no_row_of_steps_covers_more_than_it_may(tmp_path, step_run, longest_us):
    rows = played(tmp_path, [request("one")], "steps", recording={"step_run": step_run})
    decoded = [row for row in rows if row["op"] == "decode"]
    assert sum(row["n"] for row in decoded) == OUTPUT - 1
    spans = [(row["t_end"] - row["t"]).total_seconds() * 1e6 for row in decoded]
    assert max(spans) <= longest_us
    assert longest_us == 0 or max(row["n"] for row in decoded) > 8


@pytest.mark.parametrize("after_us", [1_234_567, 2_000_001])
def test_who_hangs_up_within_a_run_has_had_every_token_that_had_left(tmp_path, after_us):
    hangs_up = {"at": f"{1_000_000 + after_us}us", "action": "abort", "rid": "one"}
    rows = played(tmp_path, [request("one"), hangs_up])
    begun, ended = only(rows, "decode-0", "first_token")["t"], only(rows, "gateway", "abort")
    passes = (ended["t"] - begun).total_seconds() * 1e6 // PASS_US
    assert ended["output_tokens"] == 1 + passes
    assert (ended["last_token"] - begun).total_seconds() == pytest.approx(passes * PASS_US / 1e6)
    later = only(rows, "decode-0", "abort")  # decode hears of it a message later, and ends its pass
    assert ended["output_tokens"] <= later["output_tokens"] <= ended["output_tokens"] + 1


def test_who_loses_its_worker_has_had_every_token_that_had_left(tmp_path):
    kills = {"at": "2345ms", "action": "kill", "worker": "decode-0"}
    rows = played(tmp_path, [request("one"), kills])
    begun, ended = only(rows, "decode-0", "first_token")["t"], only(rows, "gateway", "abort")
    assert ended["status"] == "502"
    assert ended["output_tokens"] == 1 + (ended["t"] - begun).total_seconds() * 1e6 // PASS_US


def test_pages_of_a_request_that_has_ended_have_no_reader(tmp_path):
    scenario = parse_scenario(yaml.safe_dump(scenario_of([request("one")])))
    readers = []
    simulate(scenario, tmp_path / "ledger", at_end=lambda fleet: readers.append(fleet.workers["decode-0"]))
    assert not readers[0].executor._store.readers.any()
