"""Lines of an engine's log by pattern: what such a line looks like, and the rows that it is.

Invariant: a line that begins as a pattern does and does not fit it is never taken for chatter: it is told as skipped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from engine.adapters.notes import Notes
from engine.adapters.observed import Observed, Said

Match = re.Match[str]
Build = Callable[[Match, int | None], Iterator[Said]]


@dataclass(frozen=True)
class Pattern:
    """`start`: how such a message begins, empty where only the whole shape tells. `build` None: of no use to a ledger."""

    name: str
    start: str
    regex: re.Pattern[str]
    build: Build | None = None


def pattern(name: str, start: str, rest: str, build: Build | None = None) -> Pattern:
    """A pattern of a whole message: `start` literally, then `rest` as an expression."""
    return Pattern(name, start, re.compile(re.escape(start) + rest, re.DOTALL), build)


def read_message(
    message: str, t_us: int | None, where: str, patterns: Sequence[Pattern], notes: Notes
) -> Iterator[Said] | None:
    """The rows of a message; None where it begins like no pattern."""
    near = None
    for one in patterns:
        if message.startswith(one.start):
            match = one.regex.fullmatch(message)
            if match is not None:
                notes.take(one.name)
                return one.build(match, t_us) if one.build is not None else iter(())
            near = one if one.start else near
    if near is None:
        return None
    notes.skip(where, f"begins like {near.name} and has another shape")
    return iter(())


def rows(table: str, op: str, columns: Callable[[Match], dict[str, Any]], *, rid: str = "", room: str = "") -> Build:
    """Builds one row of `columns`; `rid` and `room` name the groups that hold them."""

    def build(match: Match, t_us: int | None) -> Iterator[Said]:
        groups = match.groupdict()
        number = groups.get(room)
        fits = number is not None and len(number) <= 19 and int(number) < 1 << 63
        yield Observed(t_us, table, op, columns(match), groups.get(rid), int(number) if number and fits else None)

    return build
