"""Going on with runs: answers, what was interrupted, aborts, who did it, and what is refused."""

import json
import random

import pytest
from runbook_fakes import StepClock
from runbook_worlds import Number, number_action, states, step

from runbooks.actions.registry import Action, Effect
from runbooks.audit import verify_audit
from runbooks.errors import EvidenceBroken, RunBusy, UsageError
from runbooks.executor import Executor
from runbooks.report import exit_code, headline
from runbooks.states import Conclusion, RunState, StepState


def question(step_id, phase="contain", on_fail="ask"):
    return step(step_id, "manual.confirm", phase, on_fail, "with: {ask: do it}").replace(
        '{field: number, op: "==", to: $params.wanted}', "{field: answer, op: in, to: [clamped, drained]}"
    )


def audit(world):
    return [json.loads(line) for line in (world.state / "audit.jsonl").read_text().splitlines()]


@pytest.fixture
def waiting(world):
    """A run that waits at `act`, two more steps behind it."""
    plan = world.plan(
        step("a", "t.two", on_fail="goto:act"), question("act"), step("more", "t.one", "scope"), question("last", "fix")
    )
    return plan, world.executor().run(plan, None, None).run


def by(world, name="kl"):
    return Executor(world.store, world.clock, random.Random(3), world.words.append, world.actions, by=name)


def test_an_answer_is_judged_and_the_run_goes_on_to_the_next_question(world, waiting):
    plan, run = waiting
    finished = by(world).resume(run.run_id, plan, None, None, " clamped ")
    assert states(finished) == {"a": "failed", "act": "confirmed", "more": "confirmed", "last": "waiting"}
    assert finished.run.steps[1].output == {"answer": "clamped"}
    assert (finished.run.state, finished.run.conclusion) == (RunState.WAITING, Conclusion.CONFIRMED)
    finished = by(world).resume(run.run_id, plan, None, None, "drained")
    assert (finished.run.state, exit_code(finished.run)) == (RunState.FINISHED, 1)
    assert headline(finished.run) == "RB-42 1.0.0: confirmed; finished"
    lines = audit(world)
    assert [(e["event"], e.get("by")) for e in lines if e["event"] in ("run.running", "step.intent") and "by" in e] == [
        ("run.running", "kl"), ("step.intent", "kl"), ("run.running", "kl"), ("step.intent", "kl"),
    ]  # fmt: skip
    assert verify_audit(world.state / "audit.jsonl", finished.head) == finished.head


def test_an_answer_that_does_not_hold_waits_and_can_be_gone_past(world, waiting):
    plan, run = waiting
    finished = by(world).resume(run.run_id, plan, None, None, "no")
    assert states(finished)["act"] == "failed"
    assert headline(finished.run) == "RB-42 1.0.0: confirmed; waits to be resumed or aborted"
    with pytest.raises(UsageError, match="asks nothing"):
        by(world).resume(run.run_id, plan, None, None, "clamped")
    finished = by(world).resume(run.run_id, plan, None, None)
    assert states(finished) == {"a": "failed", "act": "failed", "more": "confirmed", "last": "waiting"}


def test_a_confirming_answer_is_part_of_the_conclusion(world):
    plan = world.plan(step("a", "t.one"), question("look", "confirm"))
    run = world.executor().run(plan, None, None).run
    assert run.conclusion is Conclusion.UNDECIDED
    finished = by(world).resume(run.run_id, plan, None, None, "clamped")
    assert (finished.run.state, finished.run.conclusion) == (RunState.FINISHED, Conclusion.NOT_CONFIRMED)
    assert headline(finished.run).endswith("finished; nothing was changed")


def test_a_late_answer_says_so(world, waiting):
    plan, run = waiting
    world.clock = StepClock(start_us=run.changed_us + 60_000_000)
    finished = by(world).resume(run.run_id, plan, None, None, "clamped")
    assert states(finished)["act"] == "confirmed"
    assert "after the step's time was over" in finished.run.steps[1].findings[0]


@pytest.mark.parametrize(
    ("answer", "words"),
    [(None, "waits at step 'act' for an answer"), (" ", "1 to 500 printable"), ("x\x1b[2J", "1 to 500 printable"), ("x" * 501, "500")],
)  # fmt: skip
def test_what_cannot_go_on_changes_nothing(world, waiting, answer, words):
    plan, run = waiting
    before = audit(world)
    with pytest.raises(UsageError, match=words):
        by(world).resume(run.run_id, plan, None, None, answer)
    assert (world.store.read(run.run_id), audit(world)) == (run, before)


def test_another_plan_an_ended_run_a_held_lock_and_a_spoiled_log_are_refused(world, waiting):
    plan, run = waiting
    with pytest.raises(UsageError, match="began with another plan"):
        by(world).resume(run.run_id, world.plan(step("a", "t.one")), None, None, "clamped")
    with world.store.lock("RB-42", ""), pytest.raises(RunBusy):
        by(world).abort(run.run_id, "no")
    ended = by(world).abort(run.run_id, "wrong engine")
    assert states(ended) == {"a": "failed", "act": "aborted", "more": "skipped", "last": "skipped"}
    assert ended.run.state is RunState.ABORTED
    assert [(e["why"], e["by"]) for e in audit(world) if e["event"] == "run.aborted"] == [("wrong engine", "kl")]
    for act in (lambda: by(world).abort(run.run_id, "x"), lambda: by(world).resume(run.run_id, plan, None, None, "x")):
        with pytest.raises(UsageError, match="is aborted"):
            act()
    (world.state / "audit.jsonl").write_text("")
    with pytest.raises(EvidenceBroken):
        by(world).abort(run.run_id, "x")


def died(world, plan, place):
    """A run whose process died in the step at `place`."""
    store = world.store
    store.create("rb42-dead", plan, 1)
    store.move_run("rb42-dead", RunState.RUNNING, 1)
    for done in range(place):
        for state in (StepState.INTENT, StepState.APPLIED, StepState.CONFIRMED):
            store.move_step("rb42-dead", done, state, 2, output={"number": 1} if state is StepState.APPLIED else None)
    store.move_step("rb42-dead", place, StepState.INTENT, 3)


def test_an_interrupted_run_observes_again_with_what_it_knew(world):
    plan = world.plan(
        step("a", "t.one"), step("b", "t.same", with_="with: {number: $steps.a.number}"), step("c", "t.one")
    )
    died(world, plan, 1)
    finished = by(world).resume("rb42-dead", plan, None, None)
    assert world.calls == ["t.same", "t.one"]
    assert states(finished) == {"a": "confirmed", "b": "confirmed", "c": "confirmed"}
    assert finished.run.conclusion is Conclusion.NOT_CONFIRMED
    assert [e["event"] for e in audit(world)][:3] == ["run.interrupted", "run.running", "step.approved"]


def test_a_change_in_doubt_is_never_made_again(world):
    changed = []
    act = number_action("t.change", lambda given, context: Number(number=1), changed)
    world.actions["t.change"] = Action("t.change", Effect.CHANGE, Number, Number, act.apply)
    plan = world.plan(step("a", "t.change"), step("b", "t.one"))
    died(world, plan, 0)
    with pytest.raises(UsageError, match="whether it did is not known"):
        by(world).resume("rb42-dead", plan, None, None)
    assert changed == []
    assert states(by(world).abort("rb42-dead", "looked: nothing was done")) == {"a": "aborted", "b": "skipped"}
