"""Checks of a runbook beyond its shape, and of a library as a whole.

Invariant: a runbook without errors here can run to its end without meeting an unknown action, parameter, step, output
field or type.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import date
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from runbooks.actions.catalogue import ACTIONS
from runbooks.actions.registry import Action, ActionModel, Effect
from runbooks.model import PARAM_TYPES, PHASE_ORDER, LocatedStep, Phase, Runbook
from runbooks.parser import LintProblem, parse_runbook
from runbooks.predicates import Predicate
from runbooks.references import (
    BadReference,
    Location,
    Reference,
    compatible,
    field_annotation,
    parse_reference,
    strings,
)

REQUIRED_SECTIONS = ("Meaning", "Impact", "When not to use")
MEANING_WORDS = 120
EXERCISED_DAYS = 90


def lint_files(paths: Iterable[Path], today: date) -> tuple[list[Runbook], list[LintProblem]]:
    """Parse and check every file, then the files against each other. Problems come sorted by file and line."""
    runbooks: list[Runbook] = []
    problems: list[LintProblem] = []
    for path in paths:
        parsed = parse_runbook(path)
        problems += parsed.problems
        if parsed.runbook is not None:
            runbooks.append(parsed.runbook)
            problems += lint_runbook(parsed.runbook, today)
    problems += _lint_library(runbooks)
    return runbooks, sorted(problems, key=lambda problem: (str(problem.path), problem.line, problem.message))


def lint_runbook(runbook: Runbook, today: date) -> list[LintProblem]:
    """Every fault of one parsed runbook."""
    return _Linter(runbook).lint(today)


def _lint_library(runbooks: list[Runbook]) -> list[LintProblem]:
    problems = []
    ids = Counter(runbook.head.id for runbook in runbooks)
    alerts = Counter(alert for runbook in runbooks for alert in runbook.head.alerts)
    for runbook in runbooks:
        if ids[runbook.head.id] > 1:
            line = runbook.head_lines.get(("id",), 1)
            problems.append(
                LintProblem(runbook.path, line, "error", f"id {runbook.head.id} is used by another file too")
            )
        for place, alert in enumerate(runbook.head.alerts):
            if alerts[alert] > 1:
                line = runbook.head_lines.get(("alerts", place), 1)
                problems.append(
                    LintProblem(runbook.path, line, "error", f"alert {alert} leads to more than one runbook")
                )
    return problems


class _Linter:
    """One pass over one runbook."""

    def __init__(self, runbook: Runbook) -> None:
        self._runbook = runbook
        self._problems: list[LintProblem] = []
        self._used_params: set[str] = set()

    def lint(self, today: date) -> list[LintProblem]:
        self._check_sections()
        self._check_age(today)
        self._check_params()
        self._check_order()
        for index, located in enumerate(self._runbook.steps):
            self._check_step(index, located)
        for name in self._runbook.head.params:
            if name not in self._used_params:
                self._error(self._head_line("params", name), f"parameter '{name}' is used by no step")
        return self._problems

    def _error(self, line: int, message: str) -> None:
        self._problems.append(LintProblem(self._runbook.path, line, "error", message))

    def _warn(self, line: int, message: str) -> None:
        self._problems.append(LintProblem(self._runbook.path, line, "warning", message))

    def _head_line(self, *path: str | int) -> int:
        while path and path not in self._runbook.head_lines:
            path = path[:-1]
        return self._runbook.head_lines.get(path, 1)

    def _check_sections(self) -> None:
        for name in REQUIRED_SECTIONS:
            if not self._runbook.sections.get(name):
                self._error(1, f"section '## {name}' is missing or empty")
        words = len(self._runbook.sections.get("Meaning", "").split())
        if words > MEANING_WORDS:
            self._warn(1, f"section 'Meaning' has {words} words; say it in {MEANING_WORDS}")

    def _check_age(self, today: date) -> None:
        age = (today - self._runbook.head.last_exercised).days
        if age > EXERCISED_DAYS:
            self._warn(self._head_line("last_exercised"), f"was last exercised {age} days ago; run it on a test engine")

    def _check_params(self) -> None:
        for name, param in self._runbook.head.params.items():
            if param.required:
                continue
            try:
                param.convert(param.default)
            except ValueError as error:
                self._error(self._head_line("params", name, "default"), f"default of parameter '{name}': {error}")

    def _check_order(self) -> None:
        steps = self._runbook.steps
        if not steps or steps[0].step.phase is not Phase.CONFIRM:
            line = steps[0].line_of("phase") if steps else 1
            self._error(line, "has to begin with a step of phase 'confirm'")
        for before, after in pairwise(steps):
            if PHASE_ORDER[after.step.phase] < PHASE_ORDER[before.step.phase]:
                self._error(
                    after.line_of("phase"), f"phase '{after.step.phase}' stands after phase '{before.step.phase}'"
                )
        counts = Counter(located.step.id for located in steps)
        for located in steps:
            if counts[located.step.id] > 1:
                self._error(
                    located.line_of("id"), f"step id '{located.step.id}' is used {counts[located.step.id]} times"
                )

    def _check_step(self, index: int, located: LocatedStep) -> None:
        step = located.step
        if step.goto is not None:
            self._check_goto(index, located, step.goto)
        action = ACTIONS.get(step.uses)
        if action is None:
            close = difflib.get_close_matches(step.uses, ACTIONS, n=1)
            hint = f"; did you mean '{close[0]}'?" if close else f"; known: {', '.join(sorted(ACTIONS))}"
            self._error(located.line_of("uses"), f"unknown action '{step.uses}'{hint}")
            return
        if action.effect is not Effect.OBSERVE:
            self._error(
                located.line_of("uses"), f"action '{step.uses}' changes the system; this executor only observes"
            )
        if action.sends_traffic and not step.warn:
            self._error(located.line_of("uses"), f"action '{step.uses}' sends requests of its own; say so in 'warn'")
        self._check_inputs(index, located, action)
        for place, predicate in enumerate(step.expect):
            self._check_predicate(index, located, predicate, action.outputs, ("expect", place))

    def _check_goto(self, index: int, located: LocatedStep, target: str) -> None:
        found = self._runbook.step_index(target)
        if found is None:
            self._error(located.line_of("on_fail"), f"on_fail goes to step '{target}', which does not exist")
        elif found <= index:
            self._error(located.line_of("on_fail"), f"on_fail goes back to step '{target}'; a run only goes forward")

    def _check_inputs(self, index: int, located: LocatedStep, action: Action) -> None:
        given = located.step.with_
        fields = action.inputs.model_fields
        for name in given:
            if name not in fields:
                self._error(located.line_of("with", name), f"action '{action.name}' takes no '{name}'")
        for name, info in fields.items():
            if name not in given and info.is_required():
                self._error(located.line_of("with"), f"action '{action.name}' needs '{name}' in 'with'")
        whole: dict[str, Any] = {}
        for name, value in given.items():
            references = list(self._references(index, located, value, ("with", name)))
            if name in fields and len(references) == 1 and isinstance(value, str):
                source = references[0][1]
                if not compatible(source, fields[name].annotation):
                    self._error(
                        located.line_of("with", name),
                        f"'{name}' of action '{action.name}' is {_type_name(fields[name].annotation)}, "
                        f"{value} is {_type_name(source)}",
                    )
            elif name in fields and not references:
                whole[name] = value
        self._check_literals(located, action, whole)

    def _check_literals(self, located: LocatedStep, action: Action, values: dict[str, Any]) -> None:
        for name, value in values.items():
            try:
                annotation: Any = action.inputs.model_fields[name].annotation
                TypeAdapter(annotation).validate_python(value, strict=True)
            except ValidationError as error:
                message = error.errors()[0]["msg"]
                self._error(located.line_of("with", name), f"'{name}' of action '{action.name}': {message}")

    def _check_predicate(
        self, index: int, located: LocatedStep, predicate: Predicate, outputs: type[ActionModel], at: Location
    ) -> None:
        list(self._references(index, located, predicate.to, (*at, "to")))
        if predicate.of is not None:
            list(self._references(index, located, predicate.of.to, (*at, "of", "to")))
        try:
            field_annotation(outputs, predicate.field)
        except KeyError as error:
            known = ", ".join(outputs.model_fields)
            self._error(
                located.line_of(*at, "field"),
                f"action '{located.step.uses}' gives no '{error.args[0] or predicate.field}'; it gives {known}",
            )

    def _references(
        self, index: int, located: LocatedStep, value: Any, at: Location
    ) -> Iterable[tuple[Reference, Any]]:
        """Every usable reference inside `value` with the type of what it stands for; the others are reported."""
        for place, text in strings(value, at):
            line = located.line_of(*place)
            try:
                reference = parse_reference(text)
            except BadReference as error:
                self._error(line, str(error))
                continue
            if reference is None:
                continue
            annotation = self._annotation(index, reference, partial(self._error, line))
            if annotation is not None:
                yield reference, annotation

    def _annotation(self, index: int, reference: Reference, report: Callable[[str], None]) -> Any:
        if reference.param is not None:
            param = self._runbook.head.params.get(reference.param)
            if param is None:
                report(f"{reference.text}: there is no parameter '{reference.param}'")
                return None
            self._used_params.add(reference.param)
            return PARAM_TYPES[param.kind]
        found = self._runbook.step_index(reference.step or "")
        if found is None or found >= index:
            report(f"{reference.text}: there is no earlier step '{reference.step}'")
            return None
        action = ACTIONS.get(self._runbook.steps[found].step.uses)
        if action is None:
            return None
        try:
            return field_annotation(action.outputs, reference.field or "")
        except KeyError:
            known = ", ".join(action.outputs.model_fields)
            report(f"{reference.text}: step '{reference.step}' gives no '{reference.field}'; it gives {known}")
            return None


def _type_name(annotation: Any) -> str:
    return getattr(annotation, "__name__", str(annotation)) if isinstance(annotation, type) else str(annotation)
