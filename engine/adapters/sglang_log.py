"""The log of a SGLang server, line by line: its own lines, ReqTimeStats, and request logs that go to the same place.

Invariant: every line is counted once: taken, skipped with a reason, or unread (chatter, or the rest of a longer message).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from zoneinfo import ZoneInfo

from engine.adapters.keyed import Keyed
from engine.adapters.log_patterns import read_message
from engine.adapters.notes import Notes
from engine.adapters.observed import Said
from engine.adapters.request_time_stats import PREFIX as STATS
from engine.adapters.request_time_stats import read_stats
from engine.adapters.sglang_lines import PATTERNS
from engine.adapters.sglang_requests import TEXT_STARTS, read_json_line, read_text_line
from engine.adapters.times import from_text

LINE = re.compile(
    r"\[(?P<ts>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{3})?)(?P<rank>(?: (?:DP|PP|ATTN_CP|MOE_DP|TP|EP)\d+)*)\] (?P<msg>.*)"
)


def read_sglang_log(
    lines: Iterable[tuple[int, str]], where: str, zone: ZoneInfo, keyed: Keyed, notes: Notes
) -> Iterator[Said]:
    """Rows of a log; its times are local to `zone`."""
    for number, line in lines:
        match = LINE.fullmatch(line)
        place = f"{where}:{number}"
        if match is None:
            if line.startswith("{"):
                yield from read_json_line(line, place, zone, keyed, notes)
            elif line.strip():
                notes.unread["lines without SGLang's prefix"] += 1
            continue
        t_us, message = from_text(match["ts"], zone), match["msg"]
        if t_us is None:
            notes.skip(place, "line with an impossible time")
        elif message.startswith("{"):
            yield from read_json_line(message, place, zone, keyed, notes)
        elif message.startswith(STATS):
            yield from read_stats(message, t_us, place, notes)
        elif message.startswith(TEXT_STARTS):
            yield from read_text_line(message, t_us, place, keyed, notes)
        else:
            said = read_message(message, t_us, place, PATTERNS, notes)
            if said is None:
                notes.unread["other lines of SGLang"] += 1
            else:
                yield from said
