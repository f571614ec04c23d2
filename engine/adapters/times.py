"""Times as engines print them, in microseconds UTC.

Invariant: a time that a source does not fully give is None, never a guess.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

_IN_NAME = re.compile(r"@(?P<stamp>\d{4}-\d\d-\d\dT\d\d[:-]?\d\d[:-]?\d\d(?:Z|[+-]\d\d:?\d\d)?)")
_EARLIEST, _LATEST = 946_684_800.0, 4_102_444_800.0  # 2000 and 2100: a number outside is no Unix time in seconds


def from_unix(seconds: object) -> int | None:
    """Microseconds from Unix seconds; None where it is no such number."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not _EARLIEST < seconds < _LATEST:
        return None
    return round(seconds * 1_000_000)


def from_text(text: object, zone: ZoneInfo) -> int | None:
    """Microseconds from ISO 8601 or `YYYY-MM-DD HH:MM:SS[.mmm]`; `zone` is for a time without an offset."""
    if not isinstance(text, str):
        return None
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=zone)
        return microseconds(moment)
    except (ValueError, OverflowError):
        return None


def without_year(month_day: str, clock: str, year: int, zone: ZoneInfo) -> int | None:
    """Microseconds from `MM-DD` and `HH:MM:SS` of a year."""
    return from_text(f"{year:04d}-{month_day} {clock}", zone)


def in_file_name(name: str) -> int | None:
    """The time in a name such as `metrics@2026-09-14T12:00:00Z.txt`; without an offset it is UTC."""
    match = _IN_NAME.search(name)
    if match is None:
        return None
    day, _, clock = match["stamp"].partition("T")
    plain = re.match(r"(\d\d)[:-]?(\d\d)[:-]?(\d\d)(.*)", clock)
    return from_text(f"{day}T{plain[1]}:{plain[2]}:{plain[3]}{plain[4]}", ZoneInfo("UTC")) if plain else None


def microseconds(moment: datetime) -> int:
    """Microseconds UTC of a moment with a zone."""
    since = moment.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
