"""Which time is looked at, as people write it.

    now-15m   -6h                       from then until now, and on
    2026-09-21T14:00:00Z..now-1h        from one to the other; either may be left out
    I-98584c01±2m                       around an incident, from before its first to after its last
    2026-09-21T14:13:20Z±30s            around a moment

Invariant: the text is kept as it was written; a range that ends in `now` follows the record, every other stands still.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from forensics.window import BadWindow, instant

_UTC = ZoneInfo("UTC")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_AGE = re.compile(r"(?:now)?-\d+[smhd]")
_LENGTH = re.compile(r"(\d+)(ms|s|m|h|d)")
_INCIDENT = re.compile(r"I-[0-9a-f]+", re.IGNORECASE)
_SIZES = {"ms": 1_000, "s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000}
DEFAULT_MARGIN = "2m"


class BadRange(ValueError):
    """A range that cannot be read, or does not exist: what is wrong, and how it is written."""


@dataclass(frozen=True)
class Span:
    """Times in [start_us, end_us), microseconds UTC; None = as far as the record goes."""

    start_us: int | None = None
    end_us: int | None = None

    def covers(self, t_us: int) -> bool:
        """Whether a moment lies in it."""
        return (self.start_us is None or t_us >= self.start_us) and (self.end_us is None or t_us < self.end_us)


Spans = Callable[[str], Span | None]
"""From the first to the last of an incident by its id; None = there is no such incident."""


@dataclass(frozen=True)
class TimeRange:
    """A range as written: `start` and `end`, or `around` with its margin; all empty = the whole record.

    Raises BadRange.
    """

    start: str = ""
    end: str = ""
    around: str = ""

    def __post_init__(self) -> None:
        if self.around:
            if self.start or self.end:
                raise BadRange(f"{self.around!r} stands alone: a range is around something, or has two ends")
            centre, margin = _parted(self.around)
            length_us(margin)
            if not _INCIDENT.fullmatch(centre):
                _absolute(centre)
            return
        for end in (self.start, self.end):
            if end and end != "now" and not _AGE.fullmatch(end):
                _absolute(end)

    @property
    def text(self) -> str:
        """As `parse_range` reads it."""
        if self.around or not self.end:
            return self.around or self.start
        return f"{self.start}..{self.end}"

    @property
    def follows(self) -> bool:
        """Whether it moves on with the record."""
        return not self.around and self.end in ("", "now")

    @property
    def is_relative(self) -> bool:
        """Whether an end of it is counted from `now`."""
        return any(_is_relative(end) for end in (self.start, self.end))

    @property
    def is_fixed(self) -> bool:
        """Whether it means the same times whenever it is read, and whatever the record holds."""
        if self.around:
            return not _INCIDENT.fullmatch(_parted(self.around)[0])
        return bool(self.end) and not self.is_relative

    def resolve(self, now_us: int, spans: Spans) -> Span:
        """The times it means now. Raises BadRange for an incident that is not there, or an end before its start."""
        if self.around:
            centre, margin = _parted(self.around)
            by = length_us(margin)
            span = spans(centre) if _INCIDENT.fullmatch(centre) else Span(_absolute(centre), _absolute(centre))
            if span is None or span.start_us is None or span.end_us is None:
                raise BadRange(f"there is no incident {centre} with known times; :incidents lists those that are there")
            return Span(span.start_us - by, span.end_us + by + 1)
        start = _instant(self.start, now_us) if self.start else None
        end = _instant(self.end, now_us) if self.end else None
        if start is not None and start >= (now_us if end is None else end):
            raise BadRange(f"the range {self.text!r} ends before it begins")
        return Span(start, end)

    def frozen(self, now_us: int, spans: Spans) -> TimeRange:
        """The same times, so that they stay the same for whoever opens them later."""
        if self.is_fixed:
            return self
        span = self.resolve(now_us, spans)
        start = "" if span.start_us is None else rfc3339(span.start_us)
        return TimeRange(start, rfc3339(now_us if span.end_us is None else span.end_us))

    def following(self, now_us: int, spans: Spans) -> TimeRange:
        """A range of the same length that follows the record."""
        if self.follows:
            return self
        span = self.resolve(now_us, spans)
        if span.start_us is None or span.end_us is None:
            return TimeRange()
        return TimeRange(f"-{max((span.end_us - span.start_us) // 1_000_000, 1)}s")


ALL = TimeRange()


def parse_range(text: str) -> TimeRange:
    """A range as written in one piece; `all` or nothing is the whole record. Raises BadRange."""
    text = text.strip().replace("+-", "±")
    if text in ("", "all"):
        return ALL
    if "±" in text or _INCIDENT.fullmatch(text):
        return TimeRange(around=text)
    start, dots, end = text.partition("..")
    if dots and not start and not end:
        raise BadRange("a range has a beginning or an end; write now-15m, or 2026-09-21T14:00Z..2026-09-21T15:00Z")
    return TimeRange(start, end)


def rfc3339(us: int) -> str:
    """2026-09-21T14:13:20Z, with microseconds where there are any."""
    text = (_EPOCH + timedelta(microseconds=us)).isoformat()
    return text.removesuffix("+00:00") + "Z"


def moment_us(text: str) -> int:
    """Microseconds UTC of a time in RFC 3339. Raises BadRange."""
    return _absolute(text)


def _is_relative(end: str) -> bool:
    return end == "now" or bool(_AGE.fullmatch(end))


def _parted(around: str) -> tuple[str, str]:
    centre, mark, margin = around.partition("±")
    return centre, margin if mark else DEFAULT_MARGIN


def length_us(text: str) -> int:
    """Microseconds of a length such as 30s, 2m or 1h. Raises BadRange."""
    match = _LENGTH.fullmatch(text)
    if match is None:
        raise BadRange(f"{text!r} is no length of time; write 30s, 2m or 1h")
    return int(match[1]) * _SIZES[match[2]]


def _absolute(text: str) -> int:
    if _is_relative(text):
        raise BadRange(f"{text!r} moves on with the clock; write a time such as 2026-09-21T14:13:20Z")
    return _instant(text, 0)


def _instant(text: str, now_us: int) -> int:
    try:
        return instant(text, _UTC, _EPOCH + timedelta(microseconds=now_us))
    except (BadWindow, OverflowError) as error:
        raise BadRange(f"cannot read {text!r}; write now-15m, -6h, 2026-09-21T14:13:20Z or I-98584c01±2m") from error
