"""What a runbook is: front matter, parameters and steps, as validated models.

Invariant: unknown keys are errors, every step names its expectation, its timeout and what happens when the
expectation fails, and steps stand in the order of their phases.
"""

from __future__ import annotations

import re
from datetime import date
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from runbooks.predicates import Predicate

SCHEMA = "kvwitness.runbook/1"
ID_PATTERN = r"RB-\d{2}"
STEP_PATTERN = r"[a-z][a-z0-9-]*"

_DURATION = re.compile(r"(?P<amount>\d+(?:\.\d+)?)(?P<unit>ms|s|m|h)")
_UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


class Phase(StrEnum):
    """The phases of a runbook, in order."""

    CONFIRM = "confirm"
    CONTAIN = "contain"
    PRESERVE = "preserve"
    SCOPE = "scope"
    FIX = "fix"
    VERIFY = "verify"
    RESTORE = "restore"
    NOTIFY = "notify"
    REVIEW = "review"


PHASE_ORDER: dict[Phase, int] = {phase: place for place, phase in enumerate(Phase)}


def parse_duration(value: Any) -> float:
    """Seconds of '500ms', '30s', '5m' or '1h'. Raises ValueError."""
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is None or float(match["amount"]) <= 0:
        raise ValueError("is no duration; write 500ms, 30s, 5m or 1h")
    return float(match["amount"]) * _UNIT_SECONDS[match["unit"]]


Seconds = Annotated[float, BeforeValidator(parse_duration)]


class ParamKind(StrEnum):
    """Kinds of parameter."""

    INTEGER = "integer"
    NUMBER = "number"
    TEXT = "text"
    FLAG = "flag"
    DURATION = "duration"
    WORKER_ID = "worker_id"
    TENANT = "tenant"
    DIGEST = "digest"


PARAM_TYPES: dict[ParamKind, type] = {
    ParamKind.INTEGER: int,
    ParamKind.NUMBER: float,
    ParamKind.FLAG: bool,
    ParamKind.DURATION: float,
    ParamKind.TEXT: str,
    ParamKind.WORKER_ID: str,
    ParamKind.TENANT: str,
    ParamKind.DIGEST: str,
}

_PARAM_PATTERNS: dict[ParamKind, str] = {
    ParamKind.TEXT: r"[^\x00-\x1f]{0,500}",
    ParamKind.WORKER_ID: r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}",
    ParamKind.TENANT: r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}",
    ParamKind.DIGEST: r"[0-9a-f]{64}",
}


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Param(_Strict):
    """A typed parameter. Without `default` it must be given; `default: null` means "may be left out"."""

    kind: ParamKind
    says: str = Field(min_length=1)
    default: Any = None

    @property
    def required(self) -> bool:
        """Whether a run must be given a value."""
        return "default" not in self.model_fields_set

    def convert(self, value: Any) -> Any:
        """A YAML value or command-line text as this kind. Raises ValueError saying what is expected."""
        if value is None and not self.required:
            return None
        if self.kind is ParamKind.DURATION:
            return parse_duration(value)
        if self.kind is ParamKind.FLAG:
            return _flag(value)
        if self.kind in (ParamKind.INTEGER, ParamKind.NUMBER):
            return _number(self.kind, value)
        if not isinstance(value, str) or not re.fullmatch(_PARAM_PATTERNS[self.kind], value):
            raise ValueError(f"'{value}' is no {self.kind.value}")
        return value


def _flag(value: Any) -> bool:
    if value in (True, "true"):
        return True
    if value in (False, "false"):
        return False
    raise ValueError(f"'{value}' is neither true nor false")


def _number(kind: ParamKind, value: Any) -> int | float:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError(f"'{value}' is no {kind.value}")
    try:
        return int(str(value)) if kind is ParamKind.INTEGER else float(value)
    except ValueError as error:
        raise ValueError(f"'{value}' is no {kind.value}") from error


class Roles(_Strict):
    """Who may start a run, and who may approve its changes."""

    initiator: str
    approver: str


class FrontMatter(_Strict):
    """The typed head of a runbook file."""

    schema_: Literal["kvwitness.runbook/1"] = Field(alias="schema")
    id: str = Field(pattern=f"^{ID_PATTERN}$")
    version: str = Field(pattern=r"^\d+\.\d+\.\d+$")
    title: str = Field(min_length=1)
    alerts: list[str] = Field(min_length=1)
    severity: int = Field(ge=1, le=4)
    owner: str = Field(min_length=1)
    last_exercised: date
    max_duration: Seconds
    params: dict[str, Param] = {}
    roles: Roles
    requires: list[Literal["engine", "ledger"]] = []


class Step(_Strict):
    """One step fence. `warn` is said aloud before the action runs; probe traffic needs it."""

    id: str = Field(pattern=f"^{STEP_PATTERN}$")
    phase: Phase
    uses: str
    with_: dict[str, Any] = Field(default={}, alias="with")
    warn: str = ""
    expect: list[Predicate] = Field(min_length=1)
    on_fail: str = Field(pattern=rf"^(abort|ask|goto:{STEP_PATTERN})$")
    timeout: Seconds

    @property
    def goto(self) -> str | None:
        """Step id that `on_fail` jumps to, if it jumps."""
        return self.on_fail.removeprefix("goto:") if self.on_fail.startswith("goto:") else None


class LocatedStep(_Strict):
    """A step with its heading, its prose, and the line of each of its keys."""

    step: Step
    heading: str
    prose: str
    line: int
    lines: dict[tuple[str | int, ...], int]

    def line_of(self, *path: str | int) -> int:
        """Line of a key of the step, or of its nearest ancestor that stands in the file."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, self.line)


class Runbook(_Strict):
    """A whole runbook file. `digest` is the SHA-256 of its bytes, in hex."""

    path: Path
    digest: str
    head: FrontMatter
    head_lines: dict[tuple[str | int, ...], int]
    sections: dict[str, str]
    steps: list[LocatedStep]

    def step_index(self, step_id: str) -> int | None:
        """Place of the step with this id, or None."""
        for index, located in enumerate(self.steps):
            if located.step.id == step_id:
                return index
        return None
