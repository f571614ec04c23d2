"""A state directory with an executor over made-up actions, and runbooks written for a test."""

import random

from runbook_fakes import StepClock

from runbooks.actions.catalogue import ACTIONS
from runbooks.actions.registry import Action, ActionModel, Effect
from runbooks.errors import StepUndecided
from runbooks.executor import Executor
from runbooks.parser import parse_runbook
from runbooks.plan import make_plan
from runbooks.store import RunStore

HEAD = """---
schema: kvwitness.runbook/1
id: RB-42
version: 1.0.0
title: A test
alerts: [KvTest]
severity: 3
owner: tests
last_exercised: 2026-11-30
max_duration: 5m
roles: {initiator: operator, approver: lead}
params:
  wanted: {kind: integer, says: a number, default: 1}
---
"""

STEP = """
## {id}

```yaml step
id: {id}
phase: {phase}
uses: {uses}
{with_}
expect:
  - {{field: number, op: "==", to: $params.wanted}}
on_fail: {on_fail}
timeout: 10s
```
"""


class Number(ActionModel):
    number: int | None = None


def number_action(name, effect, calls):
    def apply(given, context):
        calls.append(name)
        return effect(given, context)

    return Action(name, Effect.OBSERVE, Number, Number, apply)


def _raise(error):
    raise error


def step(step_id, uses, phase="confirm", on_fail="abort", with_=""):
    return STEP.format(id=step_id, uses=uses, phase=phase, on_fail=on_fail, with_=with_)


PERSON = step("act", "manual.confirm", "contain", "ask", "with: {ask: do it}")


class World:
    """A state directory, an executor over made-up actions, and the list of actions called."""

    def __init__(self, directory):
        self.directory, self.calls, self.words = directory, [], []
        self.state = self.directory / "state"
        self.store = RunStore(self.state)
        self.clock = StepClock()
        self.actions = dict(ACTIONS)

    def plan(self, *steps, params=None):
        path = self.directory / "RB-42-test.md"
        path.write_text(HEAD + "".join(steps))
        parsed = parse_runbook(path)
        assert parsed.runbook is not None, parsed.problems
        return make_plan(parsed.runbook, params or {}, None)

    def executor(self, seed=7):
        return Executor(self.store, self.clock, random.Random(seed), self.words.append, self.actions)

    def run(self, *steps, params=None, seed=7):
        return self.executor(seed).run(self.plan(*steps, params=params), None, None)


def made_world(directory):
    """A world with the actions that most tests call; the caller closes its store."""
    made = World(directory)
    for name, effect in {
        "t.one": lambda given, context: Number(number=1),
        "t.two": lambda given, context: Number(number=2),
        "t.none": lambda given, context: Number(),
        "t.same": lambda given, context: Number(number=given.number),
        "t.undecided": lambda given, context: _raise(StepUndecided("no answer")),
        "t.bug": lambda given, context: _raise(ZeroDivisionError("secret words")),
    }.items():
        made.actions[name] = number_action(name, effect, made.calls)
    return made


def states(finished):
    return {step.step_id: step.state.value for step in finished.run.steps}
