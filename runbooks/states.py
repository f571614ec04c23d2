"""States of a run and of its steps, and every move that is allowed between them.

Invariant: `STEP_MOVES` and `RUN_MOVES` are the only tables of transitions; a move that is not in them is a bug and
raises. `intent` is stored before an action runs, so a step found in `intent` without `applied` is in doubt.
"""

from __future__ import annotations

from enum import StrEnum


class StepState(StrEnum):
    """Where a step stands. `confirmed`: its expectation held; `failed`: it was refuted."""

    PLANNED = "planned"
    APPROVED = "approved"
    INTENT = "intent"
    APPLIED = "applied"
    CONFIRMED = "confirmed"
    FAILED = "failed"
    UNDECIDED = "undecided"
    WAITING = "waiting"
    SKIPPED = "skipped"
    ABORTED = "aborted"
    IN_DOUBT = "in_doubt"
    UNDONE = "undone"


class RunState(StrEnum):
    """Where a run stands. `waiting`: for a person; `interrupted`: its process died."""

    PLANNED = "planned"
    RUNNING = "running"
    WAITING = "waiting"
    FINISHED = "finished"
    ABORTED = "aborted"
    INTERRUPTED = "interrupted"


class Conclusion(StrEnum):
    """What the confirm phase found. `confirmed`: the alert's cause is real."""

    NOT_CONFIRMED = "not confirmed"
    UNDECIDED = "undecided"
    CONFIRMED = "confirmed"


_ENDED = (StepState.CONFIRMED, StepState.FAILED, StepState.UNDECIDED)

STEP_MOVES: dict[StepState, frozenset[StepState]] = {
    StepState.PLANNED: frozenset(
        {StepState.APPROVED, StepState.INTENT, StepState.WAITING, StepState.SKIPPED, StepState.ABORTED}
    ),
    StepState.APPROVED: frozenset({StepState.INTENT, StepState.ABORTED}),
    StepState.INTENT: frozenset({StepState.APPLIED, StepState.UNDECIDED, StepState.FAILED, StepState.IN_DOUBT}),
    StepState.APPLIED: frozenset({*_ENDED, StepState.IN_DOUBT}),
    StepState.WAITING: frozenset({StepState.INTENT, StepState.ABORTED}),
    StepState.IN_DOUBT: frozenset({StepState.APPLIED, StepState.APPROVED, StepState.ABORTED}),
    StepState.CONFIRMED: frozenset({StepState.UNDONE}),
    StepState.FAILED: frozenset(),
    StepState.UNDECIDED: frozenset(),
    StepState.SKIPPED: frozenset(),
    StepState.ABORTED: frozenset(),
    StepState.UNDONE: frozenset(),
}

RUN_MOVES: dict[RunState, frozenset[RunState]] = {
    RunState.PLANNED: frozenset({RunState.RUNNING, RunState.ABORTED}),
    RunState.RUNNING: frozenset({RunState.WAITING, RunState.FINISHED, RunState.ABORTED, RunState.INTERRUPTED}),
    RunState.WAITING: frozenset({RunState.RUNNING, RunState.ABORTED}),
    RunState.INTERRUPTED: frozenset({RunState.RUNNING, RunState.ABORTED}),
    RunState.FINISHED: frozenset(),
    RunState.ABORTED: frozenset(),
}


class IllegalMove(Exception):
    """A transition that the table does not allow: a bug, never a user's fault."""


def check_step_move(before: StepState, after: StepState) -> None:
    """Raise IllegalMove unless `before -> after` is allowed."""
    if after not in STEP_MOVES[before]:
        raise IllegalMove(f"step: {before} -> {after}")


def check_run_move(before: RunState, after: RunState) -> None:
    """Raise IllegalMove unless `before -> after` is allowed."""
    if after not in RUN_MOVES[before]:
        raise IllegalMove(f"run: {before} -> {after}")
