"""The log of a vLLM server, line by line.

Invariant: its lines carry no year; without one that is known from elsewhere they cannot be placed in time and are
skipped, and said to be.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from zoneinfo import ZoneInfo

from engine.adapters.log_patterns import read_message
from engine.adapters.notes import Notes
from engine.adapters.observed import Said
from engine.adapters.times import without_year
from engine.adapters.vllm_lines import patterns

LINE = re.compile(
    r"(?:\((?P<proc>\w+) pid=(?P<pid>\d+)\) )?(?P<lvl>DEBUG|INFO|WARNING|ERROR|CRITICAL) (?P<mmdd>\d\d-\d\d) "
    r"(?P<time>\d\d:\d\d:\d\d) \[(?P<file>[^\]:]+):(?P<line>\d+)\] (?P<msg>.*)"
)


def read_vllm_log(
    lines: Iterable[tuple[int, str]], where: str, zone: ZoneInfo, year: int | None, notes: Notes
) -> Iterator[Said]:
    """Rows of a log; its times are local to `zone`, in `year`."""
    known = patterns(notes)
    for number, line in lines:
        match = LINE.fullmatch(line)
        if match is None:
            if line.strip():
                notes.unread["lines without vLLM's prefix"] += 1
            continue
        place = f"{where}:{number}"
        if year is None:
            notes.skip(place, "vLLM's lines carry no year: give one (--year)")
            continue
        t_us = without_year(match["mmdd"], match["time"], year, zone)
        if t_us is None:
            notes.skip(place, "line with an impossible time")
            continue
        said = read_message(match["msg"], t_us, place, known, notes)
        if said is None:
            notes.unread["other lines of vLLM"] += 1
        else:
            yield from said
