"""Plans and runs as text and as JSON-ready data.

Invariant: what is shown comes from stored state alone, and stored state holds no prompt, answer or key.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.table import Table

from runbooks.actions.catalogue import ACTIONS
from runbooks.executor import Finished
from runbooks.going_on import question_of
from runbooks.model import Runbook
from runbooks.plan import Plan, planned_inputs
from runbooks.states import Conclusion, RunState, StepState
from runbooks.store import StoredRun

# A step's `confirmed` says that its expectation held, a run's that the alert is real: people get other words.
STEP_WORDS = {StepState.CONFIRMED: "holds", StepState.FAILED: "does not hold", StepState.IN_DOUBT: "in doubt"}

EXIT_CODES = {Conclusion.NOT_CONFIRMED: 0, Conclusion.CONFIRMED: 1, Conclusion.UNDECIDED: 2}


def exit_code(run: StoredRun) -> int:
    """0 not confirmed, 1 confirmed, 2 could not decide (also for a run that never concluded)."""
    return EXIT_CODES[run.conclusion] if run.conclusion else 2


def headline(run: StoredRun) -> str:
    """One sentence on how the run stands."""
    conclusion = (run.conclusion or Conclusion.UNDECIDED).value
    waiting = question_of(run)
    tail = {
        RunState.WAITING: f"waits for a person at step '{waiting.step_id}'"
        if waiting
        else "waits to be resumed or aborted",
        RunState.FINISHED: "finished" + ("; nothing was changed" if run.conclusion is Conclusion.NOT_CONFIRMED else ""),
        RunState.ABORTED: "aborted",
    }.get(run.state, run.state.value)
    return f"{run.runbook} {run.version}: {conclusion}; {tail}"


def run_data(finished: Finished) -> dict[str, Any]:
    """A run as JSON-ready data."""
    run = finished.run
    return {
        "run": run.run_id,
        "runbook": run.runbook,
        "version": run.version,
        "plan_digest": run.plan_digest,
        "target": run.target,
        "state": run.state.value,
        "conclusion": run.conclusion.value if run.conclusion else None,
        "started": _time(run.started_us),
        "ended": _time(run.changed_us),
        "steps": [
            {
                "id": step.step_id,
                "phase": step.phase,
                "uses": step.uses,
                "state": step.state.value,
                "findings": step.findings,
                "output": step.output,
            }
            for step in run.steps
        ],
        "audit_head": str(finished.head),
    }


def plan_data(plan: Plan) -> dict[str, Any]:
    """A plan as JSON-ready data."""
    head = plan.runbook.head
    return {
        "runbook": head.id,
        "version": head.version,
        "title": head.title,
        "runbook_digest": plan.runbook.digest,
        "plan_digest": plan.digest,
        "target": plan.target,
        "params": dict(plan.params),
        "steps": [
            {
                "id": located.step.id,
                "phase": located.step.phase.value,
                "heading": located.heading,
                "uses": located.step.uses,
                "effect": ACTIONS[located.step.uses].effect.value,
                "by": "person" if ACTIONS[located.step.uses].needs_person else "executor",
                "with": planned_inputs(located, plan.params),
                "warn": located.step.warn,
                "timeout_s": located.step.timeout,
                "on_fail": located.step.on_fail,
            }
            for located in plan.runbook.steps
        ],
    }


def print_run(finished: Finished, console: Console) -> None:
    """A run as a table, with its findings and its probes below."""
    run = finished.run
    console.print(headline(run), soft_wrap=True)
    table = Table(box=None, pad_edge=False)
    for column in ("step", "phase", "state", "finding"):
        table.add_column(column, overflow="fold")
    for step in run.steps:
        table.add_row(step.step_id, step.phase, STEP_WORDS.get(step.state, step.state.value), "\n".join(step.findings))
    console.print(table)
    _print_limits(run, console)
    _print_probes(run, console)
    console.print(f"run {run.run_id} · plan {run.plan_digest[:16]} · audit head {finished.head}", soft_wrap=True)


def _print_limits(run: StoredRun, console: Console) -> None:
    outputs = [step.output for step in run.steps if step.output.get("workers")]
    if not outputs:
        return
    table = Table(box=None, pad_edge=False)
    for column in ("role", "worker"):
        table.add_column(column)
    names = ("pool_tokens", "context_tokens", "page_tokens", "prompt_limit_tokens")
    for column in names:
        table.add_column(column.replace("_", " "), justify="right")
    for worker in outputs[0]["workers"]:
        table.add_row(worker["role"], worker["worker"], *(_number(worker[name]) for name in names))
    table.add_row("gateway", "", "", _number(outputs[0]["advertised_tokens"]), "", "")
    console.print()
    console.print(table)


def _print_probes(run: StoredRun, console: Console) -> None:
    probes = [probe for step in run.steps for probe in step.output.get("probes", [])]
    if not probes:
        return
    table = Table(box=None, pad_edge=False)
    for column in ("probe", "place", "tenant", "tokens", "status", "own nonce", "foreign nonces", "rid"):
        table.add_column(column, justify="right" if column in ("tokens", "own nonce") else "left", overflow="fold")
    for probe in probes:
        status = "no answer" if probe["status"] is None else str(probe["status"])
        table.add_row(
            probe["kind"],
            probe["place"],
            probe["tenant"],
            _number(probe["prompt_tokens"]),
            f"{status} {probe['code']}".rstrip(),
            f"{probe['echoed']}/{probe['expected']}",
            "; ".join(probe["foreign"]) or "none",
            probe["rid"],
        )
    console.print()
    console.print(table)


def print_plan(plan: Plan, console: Console) -> None:
    """A plan as a table, its warnings below."""
    data = plan_data(plan)
    title = f"{data['runbook']} {data['version']}: {data['title']} against {data['target'] or 'no engine'}"
    console.print(title, soft_wrap=True)
    table = Table(box=None, pad_edge=False)
    for column in ("step", "phase", "by", "action", "effect", "if it does not hold", "timeout"):
        table.add_column(column, overflow="fold")
    for step in data["steps"]:
        cells = (step["id"], step["phase"], step["by"], step["uses"], step["effect"], step["on_fail"])
        table.add_row(*cells, f"{step['timeout_s']:g} s")
    console.print(table)
    for step in data["steps"]:
        if step["warn"]:
            console.print(f"step {step['id']} warns: {step['warn']}", soft_wrap=True)
    params = ", ".join(f"{name}={value}" for name, value in data["params"].items())
    console.print(f"parameters {params or 'none'} · plan {data['plan_digest']}", soft_wrap=True)


def print_library(runbooks: list[Runbook], console: Console) -> None:
    """The library as a table."""
    table = Table(box=None, pad_edge=False)
    for column in ("id", "version", "severity", "title", "alerts", "last exercised"):
        table.add_column(column)
    for runbook in runbooks:
        head = runbook.head
        cells = (head.id, head.version, str(head.severity), head.title, ", ".join(head.alerts))
        table.add_row(*cells, head.last_exercised.isoformat())
    console.print(table)


def _number(value: int | None) -> str:
    return "not known" if value is None else f"{value:,}"


def _time(microseconds: int) -> str:
    return datetime.fromtimestamp(microseconds / 1e6, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
