"""Time windows as people write them: RFC 3339, a local time with --tz, a date, or an age such as -15m.

Invariant: a window that cannot be read, or ends before it begins, is refused with an example.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from forensics.foreign_reads import Window

_AGE = re.compile(r"(?:now)?-(\d+)(s|m|h|d)")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


class BadWindow(ValueError):
    """A window that cannot be read."""


def zone(name: str) -> ZoneInfo:
    """A time zone by its IANA name. Raises BadWindow."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise BadWindow(f"unknown time zone {name!r}; use an IANA name such as UTC or Europe/Berlin") from error


def instant(text: str, tz: ZoneInfo, now: datetime) -> int:
    """Microseconds UTC of a time as written. Raises BadWindow."""
    if text == "now":
        return _microseconds(now)
    age = _AGE.fullmatch(text)
    if age:
        return _microseconds(now - timedelta(**{_UNITS[age[2]]: int(age[1])}))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        words = f"cannot read the time {text!r}; write 2026-08-27, 2026-08-27T12:00:00Z, now or -15m"
        raise BadWindow(words) from error
    moment = moment if moment.tzinfo else moment.replace(tzinfo=tz)
    return _microseconds(moment)


def _microseconds(moment: datetime) -> int:
    """Exact, as seconds in a float are not."""
    return (moment - _EPOCH) // timedelta(microseconds=1)


def window(start: str | None, end: str | None, tz: ZoneInfo, now: datetime) -> Window | None:
    """The window of --from and --to; None where neither is given. Raises BadWindow."""
    if start is None and end is None:
        return None
    lo = instant(start, tz, now) if start else None
    hi = instant(end, tz, now) if end else None
    if lo is not None and hi is not None and lo >= hi:
        raise BadWindow(f"the window ends ({end}) before it begins ({start})")
    return Window(lo, hi)
