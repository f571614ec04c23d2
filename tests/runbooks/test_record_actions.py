"""Runbooks that read a ledger: RB-05, RB-10 and RB-13 on samples with known answers, and what they make of no answer."""

import random
from datetime import date
from pathlib import Path

import pytest
from runbook_fakes import StepClock

from engine.ledger.recorder import Recorder
from runbooks.executor import Executor
from runbooks.lookup import find_runbook
from runbooks.plan import make_plan
from runbooks.report import exit_code
from runbooks.states import StepState
from runbooks.store import RunStore

TODAY = date(2026, 12, 1)
SAMPLES = Path(__file__).parents[2] / "sample_logs"


@pytest.fixture
def run_on(tmp_path):
    """Run a runbook on a ledger directory, in process. Gives (exit code, step that waits, output of the first step)."""

    seeds = iter(range(10))

    def run(name, ledger):
        plan = make_plan(find_runbook(name, TODAY), {}, None, ledger)
        store = RunStore(tmp_path / "state")
        try:
            finished = Executor(store, StepClock(), random.Random(next(seeds)), lambda words: None).run(
                plan, None, ledger
            )
        finally:
            store.close()
        waits = next((step.step_id for step in finished.run.steps if step.state is StepState.WAITING), None)
        return exit_code(finished.run), waits, finished.run.steps[0]

    return run


@pytest.mark.parametrize(
    ("name", "sample", "code", "waits"),
    [
        ("RB-10", "abort-storm", 0, None),
        ("RB-10", "classes/m03-late-write", 1, "stop"),
        ("RB-10", "gappy", 2, "stop"),
        ("RB-13", "gappy", 1, "preserve"),
        ("RB-13", "abort-storm", 2, "what"),
        ("RB-05", "abort-storm", 1, "holders"),
        ("RB-05", "healthy", 0, None),
    ],
)
def test_samples(run_on, name, sample, code, waits):
    got, waiting, first = run_on(name, SAMPLES / sample)
    assert (got, waiting) == (code, waits), first.findings


@pytest.mark.parametrize("name", ["RB-05", "RB-10", "RB-13"])
def test_a_ledger_that_cannot_be_read_or_is_empty_decides_nothing(run_on, tmp_path, name):
    (tmp_path / "none").mkdir()
    code, waiting, first = run_on(name, tmp_path / "none")
    assert (code, first.state) == (2, StepState.UNDECIDED)
    assert waiting is not None
    recorder = Recorder(tmp_path / "ledger", "decode-0", ordinal=0, now_us=lambda: 1, digest_key=b"x", threaded=False)
    recorder.record("workers", "start", role="decode", ordinal=0, host="node-a", engine="kvwitness")
    recorder.close()
    assert run_on(name, tmp_path / "ledger")[0] == 2


def test_the_numbers_are_those_of_the_verdict(run_on):
    output = run_on("RB-10", SAMPLES / "classes" / "m03-late-write")[2].output
    assert output["contaminated"] > 0
    assert sum(output.values()) > output["contaminated"]
    held = run_on("RB-05", SAMPLES / "abort-storm")[2].output
    assert held["largest_share"] == max(pool["share"] for pool in held["pools"])
