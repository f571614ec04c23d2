"""The filter language: `verdict:contaminated pages>=3 -tenant:t-acme "late write"`.

    field:value      is it, case aside; `*` stands for anything, `a,b` for either; of a list: one of its members is
    field>=n         also > < <=; n is a number, a time (RFC 3339, now-15m), or a word of an ordered field (severity)
    -term            not so
    word "two words" stands in any text column

Terms are joined by and. Invariant: what cannot be read is refused with its place; nothing is guessed.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection
from dataclasses import dataclass

ALIASES = {"sev": "severity", "resp": "rid", "response": "rid", "mechanism": "cause"}
ORDERED: dict[str, tuple[str, ...]] = {
    "severity": ("critical", "high", "medium", "low"),
    "verdict": ("contaminated", "unknown", "corrupt", "exposed", "clean"),
}
"""Fields whose words have an order, the gravest first: `severity<=high` is high or graver."""
SHORT_WORDS = {
    "severity": {"p1": "critical", "p2": "high", "p3": "medium", "p4": "low"},
    "state": {"acked": "ack", "silenced": "silent"},
}
_FIELD = re.compile(r"([A-Za-z_][\w.]*)(>=|<=|>|<|:)")
_VALUE = re.compile(r'"(?P<quoted>[^"]*)"|(?P<bare>[^\s"]+)')
_MOMENT = re.compile(r"now|(?:now)?-\d+[smhd]|\d{4}-\d\d-\d\d\S*")


class FilterError(ValueError):
    """A filter that cannot be read. `at` is the place of the fault, counted in characters from 0."""

    def __init__(self, at: int, what: str) -> None:
        super().__init__(f"{what} (at character {at + 1})")
        self.at, self.what = at, what


@dataclass(frozen=True)
class Term:
    """One condition. Without `field` it is free text; `values` are alternatives; `at` is its place in the text."""

    field: str | None
    op: str
    values: tuple[str, ...]
    negated: bool
    at: int
    text: str


@dataclass(frozen=True)
class Filter:
    """A filter as written and as read."""

    text: str = ""
    terms: tuple[Term, ...] = ()


def parse_filter(text: str, fields: Collection[str] | None = None) -> Filter:
    """Read a filter; with `fields`, a field that is none of them is refused. Raises FilterError."""
    terms: list[Term] = []
    at = 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        term, at = _term(text, at)
        _check(term, fields)
        terms.append(term)
    return Filter(text, tuple(terms))


def with_value(text: str, field: str, value: str) -> str:
    """A filter, and `field` is `value`: beside its other terms, in the place of those that ask the field for another value.
    Raises FilterError.
    """
    kept = [term.text for term in parse_filter(text).terms if term.field != field or term.negated]
    quoted = f'"{value}"' if not value.replace("-", "").replace("_", "").isalnum() else value
    added = f"{field}:{quoted}"
    parse_filter(added)
    return " ".join([*kept, added])


def _term(text: str, start: int) -> tuple[Term, int]:
    negated = text[start] == "-"
    at = start + negated
    named = _FIELD.match(text, at)
    field, op = (None, ":") if named is None else (ALIASES.get(named[1].lower(), named[1].lower()), named[2])
    at = at if named is None else named.end()
    value = _VALUE.match(text, at)
    if value is None:
        raise FilterError(min(at, len(text) - 1), _missing(text, at, field, op))
    if value.end() < len(text) and not text[value.end()].isspace():
        raise FilterError(value.end(), 'a quote begins or ends in the middle of a word; write field:"two words"')
    quoted = value["quoted"]
    values: tuple[str, ...] = (quoted,) if quoted is not None else (value["bare"],)
    if quoted is None and field is not None and op == ":":
        values = tuple(part for part in value["bare"].split(",") if part)
    if not values or not all(values):
        raise FilterError(at, "a value is empty; write field:value, or field:a,b for either")
    return Term(field, op, values, negated, start, text[start : value.end()]), value.end()


def _missing(text: str, at: int, field: str | None, op: str) -> str:
    if text[at : at + 1] == '"':
        return "the quote is not closed"
    if field is not None:
        return f"{field}{op} has no value; write {field}{op}{'3' if op != ':' else 'value'} without a blank"
    return "a minus stands alone; write -word or -field:value"


def _check(term: Term, fields: Collection[str] | None) -> None:
    if term.field is None:
        return
    if fields is not None and term.field not in fields:
        near = difflib.get_close_matches(term.field, fields, 1)
        hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(sorted(fields))}"
        raise FilterError(term.at + term.negated, f"there is no field {term.field}; {hint}")
    if term.op == ":":
        return
    value = term.values[0]
    known = ORDERED.get(term.field)
    if known is not None and word_of(term.field, value) not in known:
        raise FilterError(
            term.at, f"{term.field}{term.op} needs one of {', '.join(known)}, the gravest first; it got {value!r}"
        )
    if known is None and number_of(value) is None and not _MOMENT.fullmatch(value):
        raise FilterError(term.at, f"{term.field}{term.op} needs a number or a time; it got {value!r}")


def word_of(field: str, value: str) -> str:
    """A value as the field's own word: `P1` of a severity is `critical`."""
    return SHORT_WORDS.get(field, {}).get(value.lower(), value.lower())


def number_of(value: str) -> float | None:
    """The number that a value is; None = it is none."""
    try:
        return float(value.replace("_", "").replace(",", ""))
    except ValueError:
        return None
