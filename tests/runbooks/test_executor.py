"""The state machine and the executor, with actions made for the purpose."""

import json
import sqlite3
import subprocess
import sys

import pytest
from runbook_worlds import PERSON, Number, number_action, states, step

from runbooks.actions.registry import Action, ActionModel, Effect
from runbooks.audit import verify_audit
from runbooks.errors import EvidenceBroken, RunBusy, UsageError
from runbooks.plan import make_plan
from runbooks.report import exit_code, headline, run_data
from runbooks.states import (
    RUN_MOVES,
    STEP_MOVES,
    Conclusion,
    IllegalMove,
    RunState,
    StepState,
    check_run_move,
    check_step_move,
)
from runbooks.store import RunStore


def test_tables_know_every_state_and_terminal_states_do_not_move():
    assert set(STEP_MOVES) == set(StepState) and set(RUN_MOVES) == set(RunState)
    for table, check, kinds in ((STEP_MOVES, check_step_move, StepState), (RUN_MOVES, check_run_move, RunState)):
        for before in kinds:
            for after in kinds:
                if after in table[before]:
                    check(before, after)
                else:
                    with pytest.raises(IllegalMove):
                        check(before, after)
    assert [state for state in StepState if StepState.APPLIED in STEP_MOVES[state]] == [
        StepState.INTENT,
        StepState.IN_DOUBT,
    ]


def test_all_hold_ends_not_confirmed_without_touching_later_phases(world):
    finished = world.run(step("a", "t.one"), step("b", "t.one"), PERSON)
    assert states(finished) == {"a": "confirmed", "b": "confirmed", "act": "skipped"}
    assert (finished.run.state, finished.run.conclusion) == (RunState.FINISHED, Conclusion.NOT_CONFIRMED)
    assert exit_code(finished.run) == 0
    assert headline(finished.run) == "RB-42 1.0.0: not confirmed; finished; nothing was changed"


def test_refuted_and_undecided_conclude_differently_and_refuted_outranks(world):
    for first, second, code in (
        ("t.two", "t.one", 1),
        ("t.undecided", "t.one", 2),
        ("t.none", "t.one", 2),
        ("t.undecided", "t.two", 1),
        ("t.two", "t.undecided", 1),
        ("t.bug", "t.one", 2),
    ):
        finished = world.run(
            step("a", first, on_fail="goto:b"), step("b", second, on_fail="goto:act"), PERSON, seed=first + second
        )
        assert exit_code(finished.run) == code, (first, second)
        assert states(finished)["act"] == "waiting"
        assert finished.run.state is RunState.WAITING
        assert "waits for a person at step 'act'" in headline(finished.run)


def test_what_only_a_person_can_confirm_is_not_said_to_be_unconfirmed(world):
    asks = step("asks", "manual.confirm", "confirm", "ask", "with: {ask: look}")
    for before, code in (("t.one", 2), ("t.two", 1)):
        finished = world.run(step("a", before, on_fail="goto:asks"), asks, PERSON, seed=before)
        assert (finished.run.state, exit_code(finished.run)) == (RunState.WAITING, code)
    assert exit_code(world.run(asks, PERSON).run) == 2


def test_goto_skips_what_lies_between(world):
    finished = world.run(step("a", "t.two", on_fail="goto:act"), step("b", "t.one"), PERSON)
    assert states(finished) == {"a": "failed", "b": "skipped", "act": "waiting"}
    assert world.calls == ["t.two"]


def test_abort_ends_the_run(world):
    finished = world.run(step("a", "t.two"), step("b", "t.one"), PERSON)
    assert states(finished) == {"a": "failed", "b": "skipped", "act": "skipped"}
    assert (finished.run.state, exit_code(finished.run)) == (RunState.ABORTED, 1)


def test_ask_waits(world):
    finished = world.run(step("a", "t.two", on_fail="ask"), PERSON)
    assert states(finished) == {"a": "failed", "act": "planned"}
    assert finished.run.state is RunState.WAITING


def test_outputs_and_parameters_reach_later_steps(world):
    first = step("a", "t.one")
    second = step("b", "t.same", with_="with: {number: $steps.a.number}")
    assert exit_code(world.run(first, second).run) == 0
    assert exit_code(world.run(first, second, params={"wanted": "2"}, seed=8).run) == 1


def test_a_step_that_needs_what_an_earlier_one_could_not_give_is_undecided(world):
    world.actions["t.strict"] = Action(
        "t.strict", Effect.OBSERVE, type("Strict", (ActionModel,), {"__annotations__": {"number": int}}), Number,
        lambda given, context: Number(number=1),
    )  # fmt: skip
    finished = world.run(
        step("a", "t.undecided", on_fail="goto:b"), step("b", "t.strict", with_="with: {number: $steps.a.number}")
    )
    assert states(finished) == {"a": "undecided", "b": "undecided"}
    assert "an earlier step gave none" in finished.run.steps[1].findings[0]


def test_a_bug_in_an_action_fails_closed_and_its_words_are_not_kept(world):
    finished = world.run(step("a", "t.bug", on_fail="goto:act"), PERSON)
    assert finished.run.steps[0].findings == ["the action broke (ZeroDivisionError); report it"]
    assert "secret words" not in (world.state / "audit.jsonl").read_text() + json.dumps(run_data(finished))


def test_intent_is_on_disk_before_the_action_runs(world):
    seen = []

    def look(given, context):
        with sqlite3.connect(world.state / "runs.sqlite") as other:
            seen.append(other.execute("SELECT state, intent_us FROM steps WHERE step_id = 'a'").fetchone())
        seen.append(json.loads((world.state / "audit.jsonl").read_text().splitlines()[-1])["event"])
        return Number(number=1)

    world.actions["t.look"] = number_action("t.look", look, [])
    world.run(step("a", "t.look"))
    assert seen[0][0] == "intent" and seen[0][1] is not None
    assert seen[1] == "step.intent"


def test_deadline_is_the_steps_timeout_within_the_runbooks(world):
    left = []
    world.actions["t.left"] = number_action(
        "t.left", lambda given, context: left.append(context.deadline.left()) or Number(number=1), []
    )
    world.run(step("a", "t.left"))
    assert 9 < left[0] <= 10


def test_an_illegal_move_is_refused_and_changes_nothing(world):
    world.store.create("r", world.plan(step("a", "t.one")), 1)
    with pytest.raises(IllegalMove):
        world.store.move_step("r", 0, StepState.APPLIED, 2)
    with pytest.raises(IllegalMove):
        world.store.move_run("r", RunState.FINISHED, 2)
    run = world.store.read("r")
    assert (run.state, run.steps[0].state, run.changed_us) == (RunState.PLANNED, StepState.PLANNED, 1)


def test_one_run_per_runbook_and_target(world):
    plan = world.plan(step("a", "t.one"))
    with world.store.lock(plan.runbook.head.id, plan.target), pytest.raises(RunBusy, match="already running"):
        world.executor().run(plan, None, None)
    assert world.store.run_ids() == []
    assert exit_code(world.executor().run(plan, None, None).run) == 0


KILLED = """
import os, random, sys
sys.path[:0] = {paths!r}
from runbook_fakes import StepClock
from runbooks.actions.registry import Action, ActionModel, Effect
from runbooks.executor import Executor
from runbooks.parser import parse_runbook
from runbooks.plan import make_plan
from runbooks.store import RunStore
from pathlib import Path
class Number(ActionModel):
    number: int | None = None
def die(given, context):
    os.kill(os.getpid(), 9)
actions = {{"t.one": Action("t.one", Effect.OBSERVE, Number, Number, lambda given, context: Number(number=1)),
           "t.die": Action("t.die", Effect.OBSERVE, Number, Number, die)}}
plan = make_plan(parse_runbook(Path({path!r})).runbook, {{}}, None)
Executor(RunStore(Path({state!r})), StepClock(), random.Random(1), print, actions).run(plan, None, None)
"""


def test_a_killed_run_is_found_interrupted_with_its_started_step_in_doubt(world, tmp_path):
    plan = world.plan(step("a", "t.one"), step("b", "t.die"), step("c", "t.one"))
    paths = [entry for entry in sys.path if "runbooks" in entry]
    script = KILLED.format(paths=paths, path=str(plan.runbook.path), state=str(world.state))
    assert subprocess.run([sys.executable, "-c", script], check=False, timeout=60, capture_output=True).returncode == -9
    (dead,) = world.store.run_ids()
    assert world.store.read(dead).state is RunState.RUNNING
    world.actions["t.die"] = world.actions["t.one"]
    finished = world.executor().run(plan, None, None)
    assert exit_code(finished.run) == 0
    left = world.store.read(dead)
    assert left.state is RunState.INTERRUPTED
    assert [step.state.value for step in left.steps] == ["confirmed", "in_doubt", "planned"]
    assert exit_code(left) == 2
    assert verify_audit(world.state / "audit.jsonl", finished.head) == finished.head


def test_a_spoiled_audit_log_stops_the_next_run(world):
    world.run(step("a", "t.one"))
    path = world.state / "audit.jsonl"
    content = path.read_bytes()
    path.write_bytes(b"".join(content.splitlines(keepends=True)[:-1]))
    with pytest.raises(EvidenceBroken, match="was cut or rewritten"):
        world.run(step("a", "t.one"), seed=9)
    path.write_bytes(content.replace(b"step.confirmed", b"step.confirmeD"))
    with pytest.raises(EvidenceBroken, match="was changed"):
        world.run(step("a", "t.one"), seed=9)
    path.unlink()
    with pytest.raises(EvidenceBroken, match="cannot be read"):
        world.run(step("a", "t.one"), seed=9)
    assert len(world.store.run_ids()) == 1


def test_state_outlives_the_process(world):
    finished = world.run(step("a", "t.two", on_fail="goto:act"), PERSON)
    world.store.close()
    world.store = RunStore(world.state)
    assert world.store.read(finished.run.run_id) == finished.run
    with pytest.raises(UsageError, match="there is no run 'nothing'"):
        world.store.read("nothing")


def test_a_broken_database_is_broken_evidence(tmp_path):
    (tmp_path / "runs.sqlite").write_bytes(b"this is no database at all, " * 40)
    with pytest.raises(EvidenceBroken, match="cannot be opened"):
        RunStore(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be used"):
        RunStore(tmp_path / "file")


def test_plan_digest_covers_parameters_target_and_text(world):
    one = world.plan(step("a", "t.one"))
    assert world.plan(step("a", "t.one")).digest == one.digest
    assert world.plan(step("a", "t.one"), params={"wanted": "2"}).digest != one.digest
    assert world.plan(step("a", "t.one") + "\nmore words\n").digest != one.digest
    with pytest.raises(UsageError, match="has no parameter 'other'; it has wanted"):
        world.plan(step("a", "t.one"), params={"other": "1"})
    reads_ledger = one.runbook.model_copy(update={"head": one.runbook.head.model_copy(update={"requires": ["ledger"]})})
    with pytest.raises(UsageError, match="give --ledger DIR"):
        make_plan(reads_ledger, {}, None, world.state / "none")
    bound = make_plan(reads_ledger, {}, None, world.state)
    assert bound.digest not in (one.digest, make_plan(reads_ledger, {}, None, world.directory).digest)
    assert bound.digest == make_plan(reads_ledger, {}, None, world.state / ".." / world.state.name).digest
    with pytest.raises(UsageError, match="'many' is no integer"):
        world.plan(step("a", "t.one"), params={"wanted": "many"})
