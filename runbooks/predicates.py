"""The closed set of checks that an `expect` list may hold, with three outcomes.

Invariant: evaluation never runs text from a runbook, and never turns a missing or unusable value into a pass:
a field that is absent, null, NaN or of the wrong kind is `undecided`.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Outcome(StrEnum):
    """What a check says: it held, it was refuted, or it could not be decided."""

    HELD = "held"
    REFUTED = "refuted"
    UNDECIDED = "undecided"


class Op(StrEnum):
    """The operators of `expect`."""

    EQUAL = "=="
    UNEQUAL = "!="
    LESS = "<"
    LESS_EQUAL = "<="
    GREATER = ">"
    GREATER_EQUAL = ">="
    IN = "in"
    BETWEEN = "between"
    MATCHES = "matches"
    EMPTY = "empty"
    ALL = "all"
    ANY = "any"
    WITHIN_PCT = "within_pct"


_ORDERED: dict[Op, Callable[[Any, Any], Any]] = {
    Op.LESS: operator.lt,
    Op.LESS_EQUAL: operator.le,
    Op.GREATER: operator.gt,
    Op.GREATER_EQUAL: operator.ge,
}
NESTED = frozenset({Op.ALL, Op.ANY})


class Predicate(BaseModel):
    """One check of a step's output: `field` (dotted path), `op`, and what the operator needs.

    `to` is the other side (a value, or a whole-value reference such as `$params.x`); `of` is the check that `all`
    and `any` apply to every item; `otherwise` says what a plain "no" means; `says` is the sentence printed then.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    field: str = ""
    op: Op
    to: Any = None
    of: Predicate | None = None
    pct: float | None = Field(default=None, gt=0)
    otherwise: Outcome = Outcome.REFUTED
    says: str = ""

    @model_validator(mode="after")
    def _check_operands(self) -> Predicate:
        if self.otherwise is Outcome.HELD:
            raise ValueError("otherwise: must be 'refuted' or 'undecided'")
        if (self.op in NESTED) != (self.of is not None):
            raise ValueError(f"op '{self.op}': 'of' belongs to all and any, and they need it")
        if (self.op is Op.WITHIN_PCT) != (self.pct is not None):
            raise ValueError(f"op '{self.op}': 'pct' belongs to within_pct, and it needs it")
        takes_none = self.op in NESTED or self.op is Op.EMPTY
        if takes_none == ("to" in self.model_fields_set):
            raise ValueError(f"op '{self.op}' {'takes no' if takes_none else 'needs a'} 'to'")
        _check_literal(self.op, self.to)
        return self


def _check_literal(op: Op, to: Any) -> None:
    """Refuse a literal that the operator can never use. References are checked when they are resolved."""
    if isinstance(to, str) and to.startswith("$"):
        return
    if op is Op.BETWEEN and not (isinstance(to, list) and len(to) == 2):
        raise ValueError("op 'between' needs 'to: [low, high]'")
    if op is Op.IN and not isinstance(to, list):
        raise ValueError("op 'in' needs 'to' to be a list")
    if op is Op.MATCHES:
        try:
            re.compile(to)
        except (re.error, TypeError) as error:
            raise ValueError(f"op 'matches': the pattern cannot be used ({error})") from error


@dataclass(frozen=True)
class Checked:
    """One evaluated predicate: its outcome and one sentence that says why."""

    outcome: Outcome
    detail: str


def lookup(data: Any, path: str) -> Any:
    """Value at a dotted `path` in nested mappings; None where any part is missing. An empty path is `data`."""
    for part in path.split(".") if path else ():
        if not isinstance(data, Mapping) or part not in data:
            return None
        data = data[part]
    return data


def evaluate(predicate: Predicate, data: Any) -> Checked:
    """Check `predicate` (its references already resolved) against `data`."""
    value = lookup(data, predicate.field)
    name = predicate.field or "item"
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return Checked(Outcome.UNDECIDED, f"{name} is not known")
    if predicate.op in NESTED:
        return _evaluate_items(predicate, value, name)
    holds = _holds(predicate, value)
    if holds is None:
        return Checked(Outcome.UNDECIDED, f"{name} = {_shown(value)} cannot be checked with {predicate.op}")
    return Checked(Outcome.HELD if holds else predicate.otherwise, _sentence(predicate, name, value, holds))


def _evaluate_items(predicate: Predicate, value: Any, name: str) -> Checked:
    if not isinstance(value, Sequence) or isinstance(value, str) or predicate.of is None:
        return Checked(Outcome.UNDECIDED, f"{name} is no list")
    outcomes = [evaluate(predicate.of, item).outcome for item in value]
    decisive, rest = (Outcome.REFUTED, Outcome.HELD) if predicate.op is Op.ALL else (Outcome.HELD, Outcome.REFUTED)
    result = decisive if decisive in outcomes else rest
    if result is rest and Outcome.UNDECIDED in outcomes:
        result = Outcome.UNDECIDED
    count = outcomes.count(Outcome.HELD)
    if result is Outcome.REFUTED:
        result = predicate.otherwise
    detail = f"{name}: {count} of {len(outcomes)} hold, expected {predicate.op}"
    return Checked(result, f"{predicate.says} ({detail})" if predicate.says and result != Outcome.HELD else detail)


def _holds(predicate: Predicate, value: Any) -> bool | None:
    """True, False, or None where the two sides cannot be compared."""
    to, op = predicate.to, predicate.op
    if op is Op.EMPTY:
        return len(value) == 0 if isinstance(value, (str, Sequence, Mapping)) else None
    if op is Op.EQUAL:
        return bool(value == to) if _same_kind(value, to) else None
    if op is Op.UNEQUAL:
        return bool(value != to) if _same_kind(value, to) else None
    if op is Op.IN:
        return value in to if isinstance(to, list) else None
    if op is Op.MATCHES:
        return re.fullmatch(to, value) is not None if isinstance(value, str) and isinstance(to, str) else None
    return _holds_numeric(predicate, value)


def _holds_numeric(predicate: Predicate, value: Any) -> bool | None:
    sides = predicate.to if predicate.op is Op.BETWEEN else [predicate.to]
    if not isinstance(sides, list) or not all(_is_number(side) for side in [value, *sides]):
        return None
    if predicate.op is Op.BETWEEN:
        return bool(sides[0] <= value <= sides[1])
    if predicate.op is Op.WITHIN_PCT:
        return bool(abs(value - sides[0]) <= abs(sides[0]) * (predicate.pct or 0.0) / 100.0)
    return bool(_ORDERED[predicate.op](value, sides[0]))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and not math.isnan(value)


def _same_kind(left: Any, right: Any) -> bool:
    if _is_number(left) and _is_number(right):
        return True
    return type(left) is type(right)


def _sentence(predicate: Predicate, name: str, value: Any, holds: bool) -> str:
    if predicate.op is Op.EMPTY:
        return f"{predicate.says or name}: {_shown(value)}"
    if predicate.op is Op.WITHIN_PCT:
        expected = f"within {predicate.pct} % of {_shown(predicate.to)}"
    else:
        expected = f"{predicate.op} {_shown(predicate.to)}"
    detail = f"{name} = {_shown(value)}, expected {expected}"
    return f"{predicate.says} ({detail})" if predicate.says and not holds else detail


def _shown(value: Any) -> str:
    """A value for a sentence: long lists and texts are cut, and say so."""
    if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        return "; ".join(value[:4]) + (f"; and {len(value) - 4} more" if len(value) > 4 else "")
    text = "nothing" if value in ([], {}, "") else str(value)
    return text if len(text) <= 300 else text[:300] + " [cut]"
