"""RB-01 against a fake engine on loopback: healthy, inverted, leaking, hanging, unreachable, contradictory."""

import json

import pytest
from runbook_fakes import KEYS

from runbooks.audit import verify_audit
from runbooks.canary import CUES
from runbooks.report import exit_code, run_data
from runbooks.states import Conclusion, RunState, StepState


def steps(finished):
    return {step.step_id: step for step in finished.run.steps}


def said(finished, step):
    return " | ".join(steps(finished)[step].findings)


def probes(finished):
    return steps(finished)["probe"].output["probes"]


def test_healthy_engine_is_not_confirmed_and_nothing_is_changed(fake_engine, run_rb01):
    finished, words = run_rb01(fake_engine().engine_file())
    assert finished.run.conclusion is Conclusion.NOT_CONFIRMED
    assert exit_code(finished.run) == 0
    assert [step.state for step in finished.run.steps[:3]] == [StepState.CONFIRMED] * 3
    assert {step.state for step in finished.run.steps[3:]} == {StepState.SKIPPED}
    assert [(p["kind"], p["prompt_tokens"], p["status"]) for p in probes(finished)] == [
        ("stain", 992, 200),
        *[("below", 992, 200)] * 3,
        *[("boundary", 1023, 200)] * 3,
        ("stain", 992, 200),
        ("over", 1024, 400),
    ]
    assert [p["echoed"] for p in probes(finished)] == [32] * 4 + [1] * 3 + [32, 0]
    assert any(line.startswith("warning: sends up to ten synthetic prompts") for line in words)


def test_small_pool_behind_a_gate_is_confirmed_by_reading(fake_engine, run_rb01):
    finished, _ = run_rb01(fake_engine(prefill_pool=512).engine_file())
    assert finished.run.conclusion is Conclusion.CONFIRMED
    assert exit_code(finished.run) == 1
    assert steps(finished)["compare"].state is StepState.FAILED
    assert "prefill-0: its pool holds 512 tokens, the advertised context of 1024 needs 1024" in said(
        finished, "compare"
    )
    assert steps(finished)["probe"].state is StepState.CONFIRMED
    assert [p["echoed"] for p in probes(finished) if p["kind"] == "boundary"] == [32, 32, 32]
    assert steps(finished)["clamp"].state is StepState.WAITING
    assert finished.run.state is RunState.WAITING


def test_leak_is_confirmed_by_a_foreign_nonce(fake_engine, run_rb01):
    finished, _ = run_rb01(fake_engine(prefill_pool=512, gate=False, leak=True).engine_file())
    assert exit_code(finished.run) == 1
    over = probes(finished)[-1]
    assert (over["kind"], over["prompt_tokens"], over["status"]) == ("over", 513, 200)
    assert over["foreign"] == ["donor-2 of canary-a (32 of 32 characters)"]
    assert over["echoed"] == 0
    assert "an answer held another tenant's nonce" in said(finished, "probe")
    assert "a prompt beyond the limit was not refused" in said(finished, "probe")


def test_garbage_beyond_the_limit_is_confirmed_without_a_nonce(fake_engine, run_rb01):
    finished, _ = run_rb01(fake_engine(prefill_pool=512, gate=False).engine_file())
    assert exit_code(finished.run) == 1
    assert probes(finished)[-1]["foreign"] == []
    assert "answered 200 without an error code with 96 tokens" in said(finished, "probe")


def test_a_gate_that_lies_about_its_pool_is_found_by_the_probe_alone(fake_engine, run_rb01):
    """Reading says that all is well; only the answer one token beyond the limit shows the fault."""
    finished, _ = run_rb01(fake_engine(over_status=400).engine_file())
    assert steps(finished)["compare"].state is StepState.CONFIRMED
    assert "answered 400 without an error code" in said(finished, "probe")
    assert exit_code(finished.run) == 1


def test_silence_beyond_the_limit_of_a_living_gateway_is_confirmed(fake_engine, run_rb01):
    engine = fake_engine(prefill_pool=512, gate=False, hang=True)
    finished, _ = run_rb01(engine.engine_file(), {"refusal_within": "300ms"})
    assert "no answer within 0.3 s, while the gateway is alive" in said(finished, "probe")
    assert exit_code(finished.run) == 1


@pytest.mark.parametrize("place", list(CUES.values()))
def test_a_lost_page_within_the_limit_is_found_by_content(fake_engine, run_rb01, place):
    """Every status is 200 and every count right: only the nonce of that place is missing."""
    finished, _ = run_rb01(fake_engine(forget=place).engine_file())
    wrong = [p for p in probes(finished) if p["kind"] != "over" and p["echoed"] < p["expected"]]
    assert wrong and all(p["status"] == 200 and p["usage_prompt_tokens"] == p["prompt_tokens"] for p in wrong)
    assert "an answer within the limit was wrong" in said(finished, "probe")
    assert exit_code(finished.run) == 1


def test_two_sources_that_disagree_are_undecided_and_contained(fake_engine, run_rb01):
    finished, _ = run_rb01(fake_engine(metric_shift=-512).engine_file())
    assert exit_code(finished.run) == 2
    assert "prefill-0: pool_tokens is 1024 in /server_info and 512 in /metrics" in said(finished, "read")
    assert steps(finished)["read"].output["workers"][0]["pool_tokens"] is None
    assert steps(finished)["probe"].state is StepState.SKIPPED
    assert steps(finished)["clamp"].state is StepState.WAITING


def test_a_missing_metric_is_undecided(fake_engine, run_rb01):
    finished, _ = run_rb01(fake_engine(drop_metric="kvwitness_pool_tokens").engine_file())
    assert exit_code(finished.run) == 2
    assert "prefill-0: /metrics does not state kvwitness_pool_tokens" in said(finished, "read")


def test_different_contexts_are_confirmed(fake_engine, run_rb01):
    finished, _ = run_rb01(fake_engine(decode_context=900).engine_file())
    assert exit_code(finished.run) == 1
    assert "decode-0: its context is 900, the gateway advertises 1024" in said(finished, "compare")


def test_reserve_counts_against_the_pool(fake_engine, run_rb01):
    finished, _ = run_rb01(fake_engine().engine_file(), {"reserve_tokens": "1"})
    assert "prefill-0: its pool holds 1024 tokens less 1 in reserve" in said(finished, "compare")
    assert exit_code(finished.run) == 1


def test_unreachable_engine_is_undecided(run_rb01):
    dead = "http://127.0.0.1:9"
    file = {"gateway": dead, "prefill": [dead], "decode": [dead], "api_keys": KEYS}
    finished, _ = run_rb01(file)
    assert exit_code(finished.run) == 2
    assert "a role could not be read" in said(finished, "read")
    assert steps(finished)["clamp"].state is StepState.WAITING


def test_one_dead_role_is_undecided(fake_engine, run_rb01):
    file = fake_engine().engine_file()
    finished, _ = run_rb01({**file, "decode": ["http://127.0.0.1:9"]})
    assert exit_code(finished.run) == 2
    assert "decode" in said(finished, "read")


def test_an_engine_without_a_decode_role_is_undecided(fake_engine, run_rb01):
    finished, _ = run_rb01({**fake_engine().engine_file(), "decode": []})
    assert exit_code(finished.run) == 2
    assert "the engine file names no decode worker" in said(finished, "read")


def test_unknown_model_is_undecided_never_passed(fake_engine, run_rb01):
    finished, _ = run_rb01(fake_engine(model="smollm2-135m").engine_file())
    assert exit_code(finished.run) == 2
    assert "the model is smollm2-135m" in said(finished, "probe")


@pytest.mark.parametrize("status", [401, 429, 503])
def test_refusals_that_say_nothing_about_lengths_are_undecided(fake_engine, run_rb01, status):
    finished, _ = run_rb01(fake_engine(status=status).engine_file())
    assert exit_code(finished.run) == 2
    assert str(status) in said(finished, "probe")


def test_one_tenant_is_not_enough(fake_engine, run_rb01):
    finished, _ = run_rb01({**fake_engine().engine_file(), "api_keys": {"canary-a": KEYS["canary-a"]}})
    assert exit_code(finished.run) == 2
    assert "needs the API keys of two tenants" in said(finished, "probe")


def test_tokens_added_by_a_template_are_measured(fake_engine, run_rb01):
    engine = fake_engine(overhead=7)
    finished, _ = run_rb01(engine.engine_file())
    assert exit_code(finished.run) == 0
    assert probes(finished)[-1]["prompt_tokens"] == 1024
    assert len(engine.bodies[-1]["prompt"]) == 1017


def test_the_chosen_tenants_are_used(fake_engine, run_rb01):
    engine = fake_engine()
    run_rb01(engine.engine_file(), {"donor_tenant": "canary-b", "probe_tenant": "canary-a"})
    assert [body["tenant"] for body in engine.bodies[:3]] == ["canary-b", "canary-b", "canary-a"]


def test_no_prompt_answer_or_key_is_kept_or_said(fake_engine, run_rb01, tmp_path):
    engine = fake_engine(prefill_pool=512, gate=False, leak=True)
    finished, words = run_rb01(engine.engine_file())
    kept = json.dumps(run_data(finished)) + "\n".join(words)
    for path in (tmp_path / "state").iterdir():
        kept += path.read_bytes().decode("utf-8", errors="replace")
    windows = {body["prompt"][at : at + 12] for body in engine.bodies for at in range(0, len(body["prompt"]) - 12)}
    assert not [window for window in windows if window in kept]
    assert not [key for key in KEYS.values() if key in kept]


def test_request_ids_name_the_run(fake_engine, run_rb01):
    engine = fake_engine()
    finished, _ = run_rb01(engine.engine_file())
    assert all(body["rid"].startswith(finished.run.run_id) for body in engine.bodies)
    assert {p["rid"] for p in probes(finished)} < {body["rid"] for body in engine.bodies}


def test_audit_log_tells_the_whole_run_in_order(fake_engine, run_rb01, tmp_path):
    finished, _ = run_rb01(fake_engine(prefill_pool=512).engine_file())
    lines = [json.loads(line) for line in (tmp_path / "state" / "audit.jsonl").read_text().splitlines()]
    assert [(line["event"], line.get("step")) for line in lines] == [
        ("run.running", None),
        *[("step." + state, "read") for state in ("intent", "applied", "confirmed")],
        *[("step." + state, "compare") for state in ("intent", "applied", "failed")],
        *[("step." + state, "probe") for state in ("intent", "applied", "confirmed")],
        ("step.waiting", "clamp"),
        ("run.waiting", None),
    ]
    assert verify_audit(tmp_path / "state" / "audit.jsonl", finished.head) == finished.head
    assert next(line for line in lines if line.get("step") == "probe")["warned"].startswith("sends up to ten")


def test_same_seed_same_probes(fake_engine, run_rb01):
    engine = fake_engine()
    run_rb01(engine.engine_file(), state="one")
    first = [body["prompt"] for body in engine.bodies]
    engine.bodies.clear()
    run_rb01(engine.engine_file(), state="two")
    assert [body["prompt"] for body in engine.bodies] == first
