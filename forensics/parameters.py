"""Parameters of a query: what was asked, as values to bind.

Invariant: a value is bound, never spliced; what cannot be read as its parameter's type is refused with an example.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from forensics.catalogue import Parameter, Query
from forensics.window import BadWindow, instant

Value = str | int | float | datetime | timedelta | None
_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?")
_EXAMPLES = {
    "text": "prefill-0", "integer": "12", "number": "0.5", "instant": "2026-08-27T12:00:00Z", "duration": "1h30m",
}  # fmt: skip


class BadParameter(ValueError):
    """A parameter that the query does not have, lacks, or cannot read."""


def bound(query: Query, given: Mapping[str, str], tz: ZoneInfo, now: datetime) -> dict[str, Value]:
    """A value for every parameter of `query`. Raises BadParameter; BadWindow for a time that cannot be read."""
    unknown = sorted(set(given) - set(query.parameters))
    if unknown:
        known = ", ".join(query.parameters) or "none"
        raise BadParameter(f"{query.name} has no parameter {', '.join(unknown)}; it has: {known}")
    values: dict[str, Value] = {}
    for name, parameter in query.parameters.items():
        if name in given:
            values[name] = _read(query, parameter, given[name], tz, now)
        elif parameter.required:
            example = _EXAMPLES[parameter.kind]
            raise BadParameter(f"{query.name} needs {name} ({parameter.meaning}); add -p {name}={example}")
        else:
            default = parameter.default
            values[name] = _read(query, parameter, str(default), tz, now) if default is not None else None
    return values


def shown(values: Mapping[str, Value]) -> dict[str, str | int | float | None]:
    """Bound values as they stand in a result's envelope."""
    return {name: _shown(value) for name, value in values.items()}


def _shown(value: Value) -> str | int | float | None:
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC).isoformat()
    return f"{value.total_seconds():g}s" if isinstance(value, timedelta) else value


def _read(query: Query, parameter: Parameter, text: str, tz: ZoneInfo, now: datetime) -> Value:
    try:
        if parameter.kind == "integer":
            return int(text.replace("_", ""))
        if parameter.kind == "number":
            return float(text)
        if parameter.kind == "instant":
            # Naive: the database knows no zones; all its times are UTC.
            return datetime.fromtimestamp(instant(text, tz, now) / 1e6, UTC).replace(tzinfo=None)
        if parameter.kind == "duration":
            return _duration(text)
    except BadWindow:
        raise
    except (ValueError, OverflowError) as error:
        example = _EXAMPLES[parameter.kind]
        raise BadParameter(
            f"{query.name}: {parameter.name}={text!r} is no {parameter.kind}; write it as {example}"
        ) from error
    return text


def _duration(text: str) -> timedelta:
    match = _DURATION.fullmatch(text)
    if match is None or not text:
        raise ValueError(text)
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
