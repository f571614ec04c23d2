"""Running a plan, step by step, and going on with a run that waits or was interrupted.

Invariant: intent is durable (audit line, then state) before an action is called; a step that cannot be decided is
treated as failed for what happens next (fail closed) and as undecided for what is concluded; the run goes past the
confirm phase only if a confirm step did not hold. A run goes on with the plan that it began with, or not at all.
"""

from __future__ import annotations

import random
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from runbooks.actions.catalogue import ACTIONS
from runbooks.actions.registry import Action, ActionContext, Effect
from runbooks.audit import AuditLog, Head
from runbooks.deadline import Clock, Deadline
from runbooks.engine_client import EngineClient
from runbooks.errors import StepUndecided, UsageError
from runbooks.going_on import STANDING, check_going_on, checked_words, next_step, question_of
from runbooks.model import LocatedStep, Phase, Step
from runbooks.plan import Plan
from runbooks.predicates import Checked, Outcome, Predicate, evaluate
from runbooks.references import from_run, resolve
from runbooks.states import Conclusion, RunState, StepState
from runbooks.store import RunStore, StoredRun

_STEP_STATE = {
    Outcome.HELD: StepState.CONFIRMED,
    Outcome.REFUTED: StepState.FAILED,
    Outcome.UNDECIDED: StepState.UNDECIDED,
}

_WORDS = {
    StepState.CONFIRMED: "as expected",
    StepState.FAILED: "NOT as expected:",
    StepState.UNDECIDED: "could not be decided (counts as not as expected):",
}


@dataclass(frozen=True)
class Finished:
    """A run as it stands after the executor let go of it, and the audit head to publish."""

    run: StoredRun
    head: Head


class Executor:
    """Runs plans against one state directory, on behalf of `by`. Time and randomness come from outside."""

    def __init__(
        self,
        store: RunStore,
        clock: Clock,
        source: random.Random,
        say: Callable[[str], None],
        actions: dict[str, Action] = ACTIONS,
        *,
        by: str = "",
    ) -> None:
        self._by = by
        self._store = store
        self._audit = AuditLog(store.audit_path)
        self._clock = clock
        self._random = source
        self._say = say
        self._actions = actions

    def run(self, plan: Plan, engine: EngineClient | None, ledger: Path | None) -> Finished:
        """Run `plan` until it ends, aborts or waits for a person. Raises RunBusy, EvidenceBroken."""
        with self._held(plan.runbook.head.id, plan.target):
            run_id = f"{plan.runbook.head.id.lower().replace('-', '')}-{self._random.getrandbits(40):010x}"
            self._store.create(run_id, plan, self._clock.now_us())
            _Run(self, plan, run_id, engine, ledger).go()
            return self._finished(run_id)

    def resume(
        self, run_id: str, plan: Plan, engine: EngineClient | None, ledger: Path | None, answer: str | None = None
    ) -> Finished:
        """Go on with a run that waits (with the answer that it waits for, if any) or was interrupted.

        Raises UsageError where it cannot go on, and where `plan` is not the one that it began with.
        """
        with self._held(plan.runbook.head.id, plan.target):
            stored = self._store.read(run_id)
            check_going_on(stored, answer)
            if plan.digest != stored.plan_digest:
                raise UsageError(
                    f"run {run_id} began with another plan: the runbook, the engine's addresses or the ledger have changed "
                    "since; abort it and start another"
                )
            doubtful = next_step(stored)
            if (
                doubtful is not None
                and doubtful.state is StepState.IN_DOUBT
                and self._actions[doubtful.uses].effect is not Effect.OBSERVE
            ):
                raise UsageError(
                    f"step '{doubtful.step_id}' changes something, and whether it did is not known: look, then abort the run"
                )
            _Run(self, plan, run_id, engine, ledger).go_on(stored, answer)
            return self._finished(run_id)

    def abort(self, run_id: str, why: str) -> Finished:
        """End a run that waits or was interrupted. Raises UsageError where it has ended, RunBusy where it still runs."""
        run, why = self._store.read(run_id), checked_words(why, "--why")
        with self._held(run.runbook, run.target):
            run = self._store.read(run_id)
            if run.state not in STANDING:
                raise UsageError(f"run {run_id} is {run.state}: only one that waits or was interrupted can be aborted")
            for step in run.steps:
                if step.state in (StepState.WAITING, StepState.IN_DOUBT, StepState.PLANNED):
                    left = StepState.SKIPPED if step.state is StepState.PLANNED else StepState.ABORTED
                    self._note(run_id, f"step.{left.value}", step=step.step_id)
                    self._store.move_step(run_id, step.place, left, self._clock.now_us())
            self._note(run_id, "run.aborted", why=why, **self._whose)
            self._store.move_run(run_id, RunState.ABORTED, self._clock.now_us())
            return self._finished(run_id)

    @contextmanager
    def _held(self, runbook: str, target: str) -> Iterator[None]:
        """The audit log checked, the lock held, and runs whose process died found."""
        self._store.verified_audit()
        with self._store.lock(runbook, target):
            for dead in self._store.interrupt_dead(runbook, target, self._clock.now_us()):
                self._note(dead, "run.interrupted")
                self._say(f"run {dead} was interrupted earlier; its started steps are in doubt")
            yield

    def _finished(self, run_id: str) -> Finished:
        return Finished(self._store.read(run_id), self._store.audit_head())

    @property
    def _whose(self) -> dict[str, str]:
        return {"by": self._by} if self._by else {}

    def _note(self, run_id: str, event: str, **details: Any) -> None:
        head = self._audit.append({"t": self._clock.now_us(), "run": run_id, "event": event, **details})
        self._store.set_audit_head(head)


class _Run:
    """One run in progress."""

    def __init__(
        self, executor: Executor, plan: Plan, run_id: str, engine: EngineClient | None, ledger: Path | None
    ) -> None:
        self._executor = executor
        self._store = executor._store
        self._clock = executor._clock
        self._plan = plan
        self._run_id = run_id
        self._engine = engine
        self._ledger = ledger
        self._outputs: dict[str, dict[str, Any]] = {}
        self._confirm_states: list[StepState] = []
        self._end = Deadline(self._clock.monotonic() + plan.runbook.head.max_duration, self._clock.monotonic)

    def go(self) -> None:
        """Drive the run to its end."""
        head = self._plan.runbook.head
        self._move_run(
            RunState.RUNNING,
            None,
            runbook=head.id,
            version=head.version,
            runbook_digest=self._plan.runbook.digest,
            plan_digest=self._plan.digest,
            target=self._plan.target,
            params=dict(self._plan.params),
            **self._executor._whose,
        )
        self._drive(0)

    def go_on(self, stored: StoredRun, answer: str | None) -> None:
        """Drive a stored run on from where it stands."""
        self._outputs = {step.step_id: step.output for step in stored.steps if step.output}
        ended = (StepState.CONFIRMED, StepState.FAILED, StepState.UNDECIDED)
        self._confirm_states = [s.state for s in stored.steps if s.phase == Phase.CONFIRM and s.state in ended]
        going_on, asked = next_step(stored), question_of(stored)
        self._move_run(RunState.RUNNING, None, resumed=True, **self._executor._whose)
        if asked is not None and answer is not None:
            self._drive(self._answered(asked.place, answer.strip(), asked.changed_us))
        elif going_on is not None:
            if going_on.state is StepState.IN_DOUBT:
                self._move_step(going_on.place, StepState.APPROVED, **self._executor._whose)
            self._drive(going_on.place)
        else:
            self._drive(len(stored.steps))

    def _drive(self, place: int | None) -> None:
        while place is not None:
            place = self._advance(place)

    def _answered(self, place: int, answer: str, asked_us: int) -> int | None:
        """Take a person's answer; the place of the next step, or None at the end."""
        located = self._plan.runbook.steps[place]
        late_s = (self._clock.now_us() - asked_us) / 1e6 - located.step.timeout
        late = [f"answered {late_s:,.0f} s after the step's time was over"] if late_s > 0 else []
        self._move_step(place, StepState.INTENT, **self._executor._whose)
        return self._after(place, located, self._judge(place, located.step, {"answer": answer}, late))

    def _advance(self, place: int) -> int | None:
        """Run or settle the step at `place`; the place of the next one, or None at the end."""
        steps = self._plan.runbook.steps
        if place == len(steps):
            self._close(RunState.FINISHED)
            return None
        located = steps[place]
        past_confirm = located.step.phase is not Phase.CONFIRM
        if past_confirm and self._conclusion() is Conclusion.NOT_CONFIRMED:
            self._skip(range(place, len(steps)))
            self._close(RunState.FINISHED)
            return None
        if self._executor._actions[located.step.uses].needs_person:
            self._wait(place, located)
            return None
        return self._after(place, located, self._perform(place, located))

    def _after(self, place: int, located: LocatedStep, state: StepState) -> int | None:
        """Where a step that ended in `state` leads."""
        if located.step.phase is Phase.CONFIRM:
            self._confirm_states.append(state)
        if state is StepState.CONFIRMED:
            return place + 1
        return self._branch(place, located)

    def _branch(self, place: int, located: LocatedStep) -> int | None:
        """Where `on_fail` leads after the step at `place`."""
        if located.step.goto is not None:
            target = self._plan.runbook.step_index(located.step.goto)
            if target is None:
                raise ValueError(f"step {located.step.id} goes to an unknown step; lint the runbook")
            self._skip(range(place + 1, target))
            return target
        if located.step.on_fail == "abort":
            self._skip(range(place + 1, len(self._plan.runbook.steps)))
            self._close(RunState.ABORTED)
        else:
            self._close(RunState.WAITING)
        return None

    def _wait(self, place: int, located: LocatedStep) -> None:
        if located.step.phase is Phase.CONFIRM:
            self._confirm_states.append(StepState.UNDECIDED)  # nobody has looked yet
        self._move_step(place, StepState.WAITING, findings=[str(located.step.with_.get("ask", ""))])
        self._close(RunState.WAITING)

    def _perform(self, place: int, located: LocatedStep) -> StepState:
        """Run the step's action and check its expectation."""
        step = located.step
        self._say(f"step {step.id}: {located.heading}")
        if step.warn:
            self._say(f"warning: {step.warn}")
        self._move_step(place, StepState.INTENT, **({"warned": step.warn} if step.warn else {}))
        try:
            output = self._call(located)
        except StepUndecided as reason:
            return self._settle(place, StepState.UNDECIDED, [str(reason)])
        except Exception as error:
            # Fail closed: a bug in an observation must not keep the run from containing. Its text may quote answers.
            traceback.print_exc(limit=-3)
            return self._settle(place, StepState.UNDECIDED, [f"the action broke ({type(error).__name__}); report it"])
        return self._judge(place, step, output)

    def _judge(self, place: int, step: Step, output: dict[str, Any], said: Sequence[str] = ()) -> StepState:
        """Hold what a step gave against its expectation. `said`: findings beside those of the checks."""
        self._outputs[step.id] = output
        self._move_step(place, StepState.APPLIED, output=output)
        checks = [self._check(predicate, output) for predicate in step.expect]
        findings = [*said, *(check.detail for check in checks if check.outcome is not Outcome.HELD)]
        return self._settle(place, _STEP_STATE[_worst(checks)], findings)

    def _call(self, located: LocatedStep) -> dict[str, Any]:
        step = located.step
        action = self._executor._actions[step.uses]
        given = resolve(step.with_, from_run(self._plan.params, self._outputs))
        try:
            inputs = action.inputs.model_validate(given)
        except ValidationError as error:
            faults = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
            raise StepUndecided(f"its inputs are not usable, because an earlier step gave none ({faults})") from error
        context = ActionContext(
            run_id=self._run_id,
            engine=self._engine,
            ledger=self._ledger,
            deadline=self._end.within(step.timeout),
            random=self._executor._random,
            say=self._executor._say,
        )
        if context.deadline.left() <= 0:
            raise StepUndecided("the runbook's max_duration is over")
        return action.apply(inputs, context).model_dump(mode="json")

    def _check(self, predicate: Predicate, output: dict[str, Any]) -> Checked:
        given = {"to": resolve(predicate.to, from_run(self._plan.params, self._outputs))}
        if predicate.of is not None:
            of = resolve(predicate.of.to, from_run(self._plan.params, self._outputs))
            given["of"] = predicate.of.model_copy(update={"to": of})
        return evaluate(predicate.model_copy(update=given), output)

    def _settle(self, place: int, state: StepState, findings: list[str]) -> StepState:
        self._move_step(place, state, findings=findings)
        self._say("\n".join([f"  {_WORDS[state]}", *(f"    {finding}" for finding in findings)]))
        return state

    def _skip(self, places: range) -> None:
        for place in places:
            self._move_step(place, StepState.SKIPPED)

    def _conclusion(self) -> Conclusion:
        """What the confirm steps say together. A refuted expectation outranks an undecided one."""
        if StepState.FAILED in self._confirm_states:
            return Conclusion.CONFIRMED
        if StepState.UNDECIDED in self._confirm_states:
            return Conclusion.UNDECIDED
        return Conclusion.NOT_CONFIRMED

    def _close(self, state: RunState) -> None:
        self._move_run(state, conclusion=self._conclusion())

    def _say(self, words: str) -> None:
        self._executor._say(words)

    def _move_step(self, place: int, state: StepState, **details: Any) -> None:
        step_id = self._plan.runbook.steps[place].step.id
        # The audit line comes first: a state that no line explains must not exist.
        self._executor._note(self._run_id, f"step.{state.value}", step=step_id, **details)
        stored = {name: details[name] for name in ("output", "findings") if name in details}
        self._store.move_step(self._run_id, place, state, self._clock.now_us(), **stored)

    def _move_run(self, state: RunState, conclusion: Conclusion | None = None, **details: Any) -> None:
        said = {"conclusion": conclusion.value} if conclusion else {}
        self._executor._note(self._run_id, f"run.{state.value}", **said, **details)
        self._store.move_run(self._run_id, state, self._clock.now_us(), conclusion)


def _worst(checks: list[Checked]) -> Outcome:
    outcomes = {check.outcome for check in checks}
    if Outcome.REFUTED in outcomes:
        return Outcome.REFUTED
    return Outcome.UNDECIDED if Outcome.UNDECIDED in outcomes else Outcome.HELD
