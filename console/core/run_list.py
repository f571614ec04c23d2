"""The runbooks that there are, and the runs that were made of them, for reading.

Invariant: nothing here runs or changes one; a state directory is read where it is there, and never made.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import date
from functools import lru_cache
from pathlib import Path

from console.core.printable import counted
from console.core.times import moment
from runbooks.course import Course, courses, run_at
from runbooks.errors import EvidenceBroken, RunbookError
from runbooks.going_on import STANDING, next_step, question_of
from runbooks.lint import lint_files
from runbooks.lookup import library_files
from runbooks.model import LocatedStep, Runbook
from runbooks.predicates import Predicate
from runbooks.states import Conclusion, RunState, StepState
from runbooks.store import RunStore, StoredRun, StoredStep, has_runs

MOST_RUNS = 50
STEP_MARKS: dict[StepState, tuple[str, str]] = {
    StepState.PLANNED: ("·", "planned"),
    StepState.APPROVED: ("+", "approved"),
    StepState.INTENT: ("»", "running"),
    StepState.APPLIED: ("»", "checked now"),
    StepState.CONFIRMED: ("✓", "holds"),
    StepState.FAILED: ("✗", "does not hold"),
    StepState.UNDECIDED: ("?", "undecided"),
    StepState.WAITING: ("!", "waits for a person"),
    StepState.SKIPPED: ("–", "skipped"),
    StepState.ABORTED: ("■", "aborted"),
    StepState.IN_DOUBT: ("?", "in doubt"),
    StepState.UNDONE: ("<", "undone"),
}
"""Glyph and word of a step's state; `confirmed` of a step says that its expectation held."""


@dataclass(frozen=True)
class RunList:
    """`runs`: the latest first, `more` of them left out. `problem`: why runs cannot be read, else empty.

    `audit`: how whole the audit log is, in words; `broken`: that it is not. `at_us`: of which moment, None = now.
    `courses`: what the audit log tells of runs, by run; `untold`: runs of which it does not tell how they stood at `at_us`.
    """

    runbooks: tuple[Runbook, ...]
    runs: tuple[StoredRun, ...] = ()
    more: int = 0
    problem: str = ""
    audit: str = "no audit log yet"
    broken: bool = False
    at_us: int | None = None
    courses: Mapping[str, Course] = field(default_factory=dict)
    untold: tuple[str, ...] = ()

    @property
    def moment_words(self) -> str:
        """Of which moment the runs are, and of which steps that is not known; empty = of now."""
        if self.at_us is None:
            return ""
        said = f"runs as far as they had come at {moment(self.at_us)}"
        if not self.untold:
            return said
        which = "no audit log that is whole tells how they stood, so that steps changed later stand as planned"
        return f"{said}; of {', '.join(self.untold)} {which}"

    def runbook(self, runbook_id: str) -> Runbook | None:
        """A runbook by its id."""
        return next((book for book in self.runbooks if book.head.id == runbook_id), None)

    def in_order_of(self, run_ids: list[str]) -> RunList:
        """The same runs in another order."""
        by_id = {run.run_id: run for run in self.runs}
        return replace(self, runs=tuple(by_id[run_id] for run_id in run_ids))

    def run(self, run_id: str) -> StoredRun | None:
        """A run by its id."""
        return next((run for run in self.runs if run.run_id == run_id), None)


def library(today: date) -> tuple[Runbook, ...]:
    """The runbooks that ship with KV Witness, those with faults in their text left out."""
    return tuple(lint_files(library_files(), today)[0])


def run_list(directory: Path, runbooks: tuple[Runbook, ...]) -> RunList:
    """What there is now. `directory`: where runbooks keep their runs."""
    if not has_runs(directory):
        return RunList(runbooks)
    try:
        with closing(RunStore(directory, read_only=True)) as store:
            if not store.is_made:
                return RunList(runbooks)
            ids = store.run_ids()
            runs = tuple(store.read(run_id) for run_id in ids[:MOST_RUNS])
            head, path = str(store.audit_head()), store.audit_path
    except RunbookError as error:
        return RunList(runbooks, problem=str(error))
    audit = _audit(directory, head, _state_of(path))
    return RunList(runbooks, runs, max(len(ids) - MOST_RUNS, 0), "", audit.words, audit.broken, courses=audit.courses)


def runs_at(listed: RunList, at_us: int) -> RunList:
    """The runs as they stood at a moment, us UTC, from the audit log. Where it does not tell, steps that were changed later
    are planned then, and the run is one of `untold`.
    """
    begun = [run for run in listed.runs if run.started_us <= at_us]
    later = [run for run in begun if run.changed_us > at_us]
    told = {run.run_id: run_at(run, listed.courses[run.run_id], at_us) for run in later if run.run_id in listed.courses}
    untold = {run.run_id: _as_planned(run, at_us) for run in later if run.run_id not in told}
    runs = tuple((told | untold).get(run.run_id, run) for run in begun)
    return replace(listed, runs=runs, at_us=at_us, untold=tuple(untold))


def _as_planned(run: StoredRun, at_us: int) -> StoredRun:
    steps = [
        step if step.changed_us <= at_us else replace(step, state=StepState.PLANNED, output={}, findings=[])
        for step in run.steps
    ]
    return replace(run, state=RunState.RUNNING, conclusion=None, steps=steps)


@dataclass(frozen=True)
class _Audit:
    """How whole the log is, in words, and what it tells of runs where it is."""

    words: str
    broken: bool = False
    courses: Mapping[str, Course] = field(default_factory=dict)


def _state_of(path: Path) -> tuple[int, int]:
    try:
        stat = path.stat()
    except OSError:
        return (0, 0)
    return stat.st_size, stat.st_mtime_ns


@lru_cache(maxsize=8)
def _audit(directory: Path, head: str, state: tuple[int, int]) -> _Audit:
    """Read again only where the stored `head` or the `state` of the file is another."""
    del head, state  # they name what was checked
    try:
        with closing(RunStore(directory, read_only=True)) as store:
            whole, path = store.verified_audit(), store.audit_path
        if whole is None:
            return _Audit("no audit log yet")
        words = f"audit log: {counted(whole.count, 'line')}, unbroken, head {whole.count}:{whole.hash[:12]}"
        return _Audit(words, courses=courses(path))
    except EvidenceBroken as error:
        return _Audit(f"AUDIT LOG BROKEN: {error}".replace(f"{directory}/", ""), broken=True)


def run_words(run: StoredRun) -> str:
    """How a run stands, and what it found of its alert."""
    found = {
        None: "nothing found out yet",
        Conclusion.CONFIRMED: "the alert is CONFIRMED",
        Conclusion.NOT_CONFIRMED: "the alert is not confirmed",
        Conclusion.UNDECIDED: "could not be decided",
    }[run.conclusion]
    asked = question_of(run)
    state: str = run.state.value
    if run.state is RunState.WAITING:
        state = f"waits for a person at {asked.step_id}" if asked else "waits to be resumed or aborted"
    return f"{state}; {found}"


def next_words(run: StoredRun, book: Runbook | None) -> str:
    """What a standing run waits for: the question with what is expected of the answer, or the step at which it goes on."""
    if run.state not in STANDING:
        return ""
    at = next_step(run)
    if at is None:
        return "every step has run; it goes on to its end"
    step = located(book, run, at.step_id)
    if step is None:
        return f"goes on at {at.step_id}, but the runbook has changed since: abort it, and start another"
    if at.state is StepState.WAITING:
        return f"{step.step.with_.get('ask', '')} ({'; '.join(expectation(p) for p in step.step.expect)})"
    doubt = "again, since its process died in it" if at.state is StepState.IN_DOUBT else ""
    return " ".join(filter(None, [f"goes on at {at.step_id}: {step.heading}", doubt, step.step.warn]))


def located(book: Runbook | None, run: StoredRun | None, step_id: str) -> LocatedStep | None:
    """A step as its runbook has it now; None where the run was made of another version of it."""
    if book is None or (run is not None and run.version != book.head.version):
        return None
    at = book.step_index(step_id)
    return None if at is None else book.steps[at]


def expectation(predicate: Predicate) -> str:
    """`leaks is empty`, `smallest_margin_tokens >= 0`, as one reads it."""
    if predicate.of is not None:
        return f"{predicate.op} of {predicate.field}: {expectation(predicate.of)}"
    field = predicate.field or "it"
    if "to" not in predicate.model_fields_set:
        return f"{field} is {predicate.op}"
    near = f" ±{predicate.pct:g} %" if predicate.pct is not None else ""
    return f"{field} {predicate.op} {predicate.to}{near}"


def outcome(step: StoredStep) -> str:
    """What came of a step, in a line: what a person answered, its findings, else its state."""
    answer = step.output.get("answer")
    said = [f"answered {answer}"] if isinstance(answer, str) else []
    return "; ".join([*said, *step.findings]) or STEP_MARKS[step.state][1]
