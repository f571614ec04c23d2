"""Times and durations in words. Times are microseconds UTC; every text names its zone where it stands alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from console.core.printable import NOTHING

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _at(us: int) -> datetime:
    return _EPOCH + timedelta(microseconds=us)


def clock_ms(us: int | None) -> str:
    """14:13:20.117, to be used under a heading that says UTC."""
    return NOTHING if us is None else _at(us).strftime("%H:%M:%S.%f")[:-3]


def clock(us: int | None) -> str:
    """14:13:20Z."""
    return NOTHING if us is None else _at(us).strftime("%H:%M:%SZ")


def moment(us: int | None) -> str:
    """2026-09-21 14:13:20.117Z."""
    return NOTHING if us is None else _at(us).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + "Z"


def age(us: int) -> str:
    """How old something is, in whole seconds below a minute."""
    return f"{max(us, 0) // 1_000_000} s" if us < 60_000_000 else duration(us)


_UNITS = ((86400, "d", 3600, "h", 1), (3600, "h", 60, "m", 2), (60, "m", 1, "s", 2))


def duration(us: int | None) -> str:
    """A length of time in its two leading units at most: 1.2 ms, 320 ms, 3.2 s, 4m 10s, 2h 05m, 13d 4h."""
    if us is None:
        return NOTHING
    if us < 1_000_000:
        return f"{us / 1000:.1f} ms" if us < 10_000 else f"{us // 1000} ms"
    seconds = us // 1_000_000
    for size, unit, part, part_unit, digits in _UNITS:
        if seconds >= size:
            return f"{seconds // size}{unit} {seconds % size // part:0{digits}}{part_unit}"
    return f"{us / 1_000_000:.1f} s"
