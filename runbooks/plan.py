"""What a run would do: the runbook with its parameters and its target, and one digest over all of it.

Invariant: the digest covers the runbook's bytes, every parameter, the target, the ledger that it has to read and every
step as it would be called, and no key; two plans with one digest do the same.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runbooks.engine_client import EngineFile
from runbooks.errors import UsageError
from runbooks.model import LocatedStep, Runbook
from runbooks.references import Reference, resolve


@dataclass(frozen=True)
class Plan:
    """A runbook ready to run. `target` is the gateway's address, or '' where no engine is involved."""

    runbook: Runbook
    params: Mapping[str, Any]
    target: str
    digest: str


def make_plan(
    runbook: Runbook, given: Mapping[str, str], engine: EngineFile | None, ledger: Path | None = None
) -> Plan:
    """Convert the parameters and bind the target. Raises UsageError."""
    return _bound(runbook, _convert(runbook, given), engine, ledger)


def plan_again(
    runbook: Runbook, params: Mapping[str, Any], engine: EngineFile | None, ledger: Path | None = None
) -> Plan:
    """The plan of a run that was stored with `params`, as they were converted then. Raises UsageError."""
    return _bound(runbook, params, engine, ledger)


def _bound(runbook: Runbook, params: Mapping[str, Any], engine: EngineFile | None, ledger: Path | None) -> Plan:
    if "engine" in runbook.head.requires and engine is None:
        raise UsageError(f"{runbook.head.id} needs a running engine: give --engine RUN_DIR/engine.json")
    if "ledger" in runbook.head.requires and (ledger is None or not ledger.is_dir()):
        raise UsageError(f"{runbook.head.id} reads a ledger: give --ledger DIR (now: {ledger or 'none'})")
    target = engine.gateway if engine else ""
    addresses = [] if engine is None else [engine.gateway, *engine.prefill, *engine.decode]
    content: dict[str, Any] = {
        "runbook": runbook.digest,
        "params": dict(params),
        "targets": addresses,
        "steps": [[located.step.id, located.step.uses, planned_inputs(located, params)] for located in runbook.steps],
    }
    if ledger is not None and "ledger" in runbook.head.requires:
        content["ledger"] = str(ledger.resolve())
    digest = hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    return Plan(runbook, params, target, digest)


def planned_inputs(located: LocatedStep, params: Mapping[str, Any]) -> Any:
    """A step's inputs with parameters filled in; what earlier steps will give stays a reference."""

    def replace(reference: Reference) -> Any:
        return params.get(reference.param) if reference.param is not None else reference.text

    return resolve(located.step.with_, replace)


def _convert(runbook: Runbook, given: Mapping[str, str]) -> dict[str, Any]:
    params = runbook.head.params
    for name in given:
        if name not in params:
            raise UsageError(f"{runbook.head.id} has no parameter '{name}'; it has {', '.join(params) or 'none'}")
    converted = {}
    for name, param in params.items():
        if name not in given and param.required:
            raise UsageError(f"{runbook.head.id} needs --param {name}=...: {param.says}")
        try:
            converted[name] = param.convert(given.get(name, param.default))
        except ValueError as error:
            raise UsageError(f"--param {name}: {error}") from error
    return converted
