"""The course of a run, as the audit log tells it: what had become of it, and of each of its steps, by a moment.

Invariant: of the lines of a run those up to the moment alone are used, in their order.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from runbooks.errors import EvidenceBroken
from runbooks.states import Conclusion, RunState, StepState
from runbooks.store import StoredRun, StoredStep

Course = tuple[Mapping[str, Any], ...]
"""Lines of the log about one run, in their order."""


def courses(path: Path) -> dict[str, Course]:
    """The lines of an audit log by run. Raises EvidenceBroken where it cannot be read; `verify_audit` says whether it is whole."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    try:
        for line in path.read_bytes().splitlines():
            row = json.loads(line)
            found.setdefault(row["run"], []).append(row)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise EvidenceBroken(f"{path}: cannot be read ({error}); compare the file with a copy") from error
    return {run_id: tuple(rows) for run_id, rows in found.items()}


def run_at(run: StoredRun, course: Course, at_us: int) -> StoredRun:
    """A run as it stood at a moment, us since 1970; `course`: its lines, all of them."""
    began = [replace(s, state=StepState.PLANNED, changed_us=run.started_us, output={}, findings=[]) for s in run.steps]
    steps = {step.step_id: step for step in began}
    then = replace(run, state=RunState.PLANNED, conclusion=None, changed_us=run.started_us)
    for row in course:
        if row["t"] > at_us:
            break
        kind, _, state = row["event"].partition(".")
        if kind == "step":
            steps[row["step"]] = _moved(steps[row["step"]], StepState(state), row)
        elif kind == "run":
            said = row.get("conclusion")
            then = replace(
                then, state=RunState(state), conclusion=Conclusion(said) if said else then.conclusion, changed_us=row["t"]
            )  # fmt: skip
            if then.state is RunState.INTERRUPTED:
                steps |= {step.step_id: step for step in _in_doubt(steps.values(), row["t"])}
    return replace(then, steps=list(steps.values()))


def _moved(step: StoredStep, state: StepState, row: Mapping[str, Any]) -> StoredStep:
    output, findings = row.get("output", step.output), row.get("findings", step.findings)
    return replace(step, state=state, changed_us=row["t"], output=output, findings=findings)


def _in_doubt(steps: Iterable[StoredStep], t_us: int) -> list[StoredStep]:
    """What a run that died leaves in doubt; no line of its own says so."""
    begun = (StepState.INTENT, StepState.APPLIED)
    return [replace(step, state=StepState.IN_DOUBT, changed_us=t_us) for step in steps if step.state in begun]
