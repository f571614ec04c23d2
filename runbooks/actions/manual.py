"""Steps that a person does and reports.

Invariant: the executor never answers for the person; a run that reaches such a step waits.
"""

from __future__ import annotations

from runbooks.actions.registry import Action, ActionContext, ActionModel, Effect
from runbooks.errors import StepUndecided


class Question(ActionModel):
    """What to do and to report."""

    ask: str


class Answer(ActionModel):
    """The person's typed answer."""

    answer: str


def confirm(given: Question, context: ActionContext) -> Answer:
    """Never answers: the executor waits for a person before it would call this."""
    del given, context
    raise StepUndecided("a person has to answer this step")


CONFIRM = Action("manual.confirm", Effect.OBSERVE, Question, Answer, confirm, needs_person=True)
