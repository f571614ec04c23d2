"""Where a stored run goes on: at the question that it waits with, or at the first step that has not run yet.

Invariant: nothing is changed here; a run that cannot go on says why and what to do.
"""

from __future__ import annotations

from runbooks.errors import UsageError
from runbooks.states import RunState, StepState
from runbooks.store import StoredRun, StoredStep

MOST_WORDS = 500
"""Of an answer, and of the reason of an abort."""
STANDING = frozenset({RunState.WAITING, RunState.INTERRUPTED})
"""States of a run that has not ended and that no process drives."""


def question_of(run: StoredRun) -> StoredStep | None:
    """The step that waits for a person's answer."""
    return next((step for step in run.steps if step.state is StepState.WAITING), None)


def next_step(run: StoredRun) -> StoredStep | None:
    """The step at which a standing run goes on: its question, else what is in doubt or has not run; None = at its end."""
    return question_of(run) or next(
        (step for step in run.steps if step.state in (StepState.IN_DOUBT, StepState.PLANNED)), None
    )


def check_going_on(run: StoredRun, answer: str | None) -> None:
    """Raises UsageError where a run cannot go on so."""
    asked = question_of(run)
    if run.state not in STANDING:
        raise UsageError(f"run {run.run_id} is {run.state}: only one that waits or was interrupted can go on")
    if asked is not None and answer is None:
        raise UsageError(f"run {run.run_id} waits at step '{asked.step_id}' for an answer: give one with --answer")
    if asked is None and answer is not None:
        raise UsageError(f"run {run.run_id} asks nothing: resume it without an answer, or abort it")
    if answer is not None:
        checked_words(answer, "--answer")


def checked_words(words: str, name: str) -> str:
    """What a person wrote, without blanks around it. Raises UsageError for nothing, too much, or control characters."""
    words = words.strip()
    if not words or len(words) > MOST_WORDS or not words.isprintable():
        raise UsageError(f"{name}: write one line of 1 to {MOST_WORDS} printable characters")
    return words
