"""A run at a moment, made from the audit log, is the run as it was stored then."""

from dataclasses import replace

import pytest
from runbook_worlds import number_action, step

from runbooks.course import courses, run_at
from runbooks.errors import EvidenceBroken
from runbooks.states import RunState, StepState


class Killed(BaseException):
    """What ends a process in the middle of a step."""


def timeless(run):
    return replace(run, changed_us=0, steps=[replace(step, changed_us=0) for step in run.steps])


def test_every_stored_state_is_there_again_from_the_log(world):
    stored = {}

    def watched(move):
        def moved(run_id, *given, **named):
            move(run_id, *given, **named)
            stored[world.clock.us] = world.store.read(run_id)

        return moved

    dies = [True]

    def once(given, context):
        if dies:
            raise Killed(dies.pop())
        return world.actions["t.one"].apply(given, context)

    world.actions["t.dies"] = number_action("t.dies", once, world.calls)
    question = step("act", "manual.confirm", "contain", "ask", "with: {ask: do it}").replace(
        '{field: number, op: "==", to: $params.wanted}', "{field: answer, op: in, to: [clamped]}"
    )
    plan = world.plan(step("a", "t.two", on_fail="goto:b"), step("b", "t.dies", "scope"), question)
    world.store.move_step, world.store.move_run = watched(world.store.move_step), watched(world.store.move_run)
    with pytest.raises(Killed):
        world.executor().run(plan, None, None)
    (run_id,) = world.store.run_ids()
    world.executor().resume(run_id, plan, None, None)
    world.executor().resume(run_id, plan, None, None, "clamped")
    last = world.store.read(run_id)
    course = courses(world.state / "audit.jsonl")[run_id]
    seen = {step.state for run in stored.values() for step in run.steps}
    assert {StepState.INTENT, StepState.APPLIED, StepState.IN_DOUBT, StepState.WAITING, StepState.FAILED} <= seen
    found = next(row["t"] for row in course if row["event"] == "run.interrupted")
    died = next(run for run in stored.values() if run.state is RunState.INTERRUPTED)
    assert timeless(run_at(last, course, found)) == timeless(died)
    for at_us, then in stored.items():
        if found - 5000 < at_us < found:
            continue  # found to be dead, step by step; the log has one line for all of it, after them
        assert timeless(run_at(last, course, at_us)) == timeless(then), at_us
    assert run_at(last, course, last.started_us).state is RunState.PLANNED


def test_a_log_that_cannot_be_read_tells_nothing(tmp_path):
    with pytest.raises(EvidenceBroken, match="cannot be read"):
        courses(tmp_path / "audit.jsonl")
    (tmp_path / "audit.jsonl").write_text('{"t": 1}\n')
    with pytest.raises(EvidenceBroken, match="cannot be read"):
        courses(tmp_path / "audit.jsonl")
