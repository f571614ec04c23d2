"""RB-01 against the real engine: what its own two sources say, and what its answers hold."""

import pytest

from runbooks.report import exit_code
from runbooks.states import Conclusion, StepState

pytestmark = pytest.mark.engine

OPEN = {"admission-gate": "off", "covered-count": "off", "page-tag": "off"}


def outputs(finished):
    return {step.step_id: step.output for step in finished.run.steps}


def test_healthy_engine_is_not_confirmed(live_engine, run_rb01):
    finished, _ = run_rb01(live_engine(prefill_pages=65).state)
    probes = outputs(finished)["probe"]["probes"]
    assert finished.run.conclusion is Conclusion.NOT_CONFIRMED, finished.run
    assert [(p["kind"], p["status"], p["code"]) for p in probes][-1] == ("over", 400, "prompt_exceeds_context")
    assert all(p["echoed"] == p["expected"] for p in probes[:-1])


def test_small_pool_behind_its_gate_is_confirmed_by_reading(live_engine, run_rb01):
    finished, _ = run_rb01(live_engine().state)
    read, compare, probe = finished.run.steps[:3]
    assert exit_code(finished.run) == 1
    assert {worker["role"]: worker["pool_tokens"] for worker in read.output["workers"]} == {
        "prefill": 512,
        "decode": 1536,
    }
    assert compare.output["smallest_margin_tokens"] == 512 - 1024
    assert compare.output["boundary_tokens"] == 512
    assert probe.state is StepState.CONFIRMED
    assert (probe.output["probes"][-1]["status"], probe.output["probes"][-1]["code"]) == (400, "prompt_exceeds_pool")


@pytest.mark.parametrize("seed", range(3))
def test_open_engine_leaks_the_donors_nonce(live_engine, run_rb01, seed):
    """The fault of SGLang #30233: one token beyond the pool is answered from the donor's pages, with a 200."""
    engine = live_engine(faults=("short-handoff",), defences=OPEN)
    finished, _ = run_rb01(engine.state, seed=seed)
    over = outputs(finished)["probe"]["probes"][-1]
    assert exit_code(finished.run) == 1
    assert (over["prompt_tokens"], over["status"], over["usage_completion_tokens"]) == (513, 200, 96)
    assert over["foreign"] == ["donor-2 of acme (32 of 32 characters)"]
    assert outputs(finished)["probe"]["leaks"]
