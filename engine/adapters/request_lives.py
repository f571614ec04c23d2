"""What several sources say of one request on one worker, joined: one receive, its rejects, one end.

Invariant: nothing is averaged or preferred by source. Of a request's beginning the earliest time stands, of its end the
latest; of a field the first source that says it. What a request was logged to have at its end stands on its end row, so
that a length that differs there is not lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from engine.adapters.notes import Notes
from engine.adapters.observed import Observed

RESOLUTION_US = 1_000_000
"""Log lines are cut to the second: what is no further behind an end may belong to the same life."""
ENDS = ("finish", "abort")


@dataclass
class _Life:
    rid: str
    began: list[Observed] = field(default_factory=list)
    between: list[Observed] = field(default_factory=list)
    ended: list[Observed] = field(default_factory=list)

    @property
    def end_us(self) -> int | None:
        times = [one.t_us for one in self.ended if one.t_us is not None]
        return max(times) if times else None


def join_lives(observed: Iterable[Observed], notes: Notes) -> Iterator[Observed]:
    """Rows of `requests`, each life's receive before what else is said of it; `observed` in order of time."""
    lives: list[_Life] = []
    open_lives: dict[str, _Life] = {}
    for one in observed:
        if one.rid is None:
            notes.skipped["request without a rid"] += 1
            continue
        life = open_lives.get(one.rid)
        if life is None or (one.op == "receive" and _is_over(life, one)):
            life = open_lives[one.rid] = _Life(one.rid)
            lives.append(life)
        (life.began if one.op == "receive" else life.ended if one.op in ENDS else life.between).append(one)
    for life in lives:
        yield from _rows(life, notes)


def _is_over(life: _Life, one: Observed) -> bool:
    end = life.end_us
    return end is not None and one.t_us is not None and one.t_us > end + RESOLUTION_US


def _rows(life: _Life, notes: Notes) -> Iterator[Observed]:
    every = [*life.began, *life.between, *life.ended]
    room = next((one.room for one in every if one.room is not None), None)
    if not life.began:
        notes.assume(
            "of some requests no line says when they were received: their `receive` stands where they are first met"
        )
    times = [one.t_us for one in life.began or every if one.t_us is not None]
    began = min(times) if times else None
    yield Observed(began, "requests", "receive", _first(life.began), life.rid, room)
    for one in life.between:
        yield Observed(_not_before(one.t_us, began), "requests", one.op, one.columns, life.rid, room)
    if life.ended:
        yield _end(life, began, room)


def _end(life: _Life, began: int | None, room: int | None) -> Observed:
    columns = _first(life.ended)
    failed = [one for one in life.ended if one.op == "abort"]
    op = "finish" if columns.get("status") == "200" or not failed else "abort"
    return Observed(_not_before(life.end_us, began), "requests", op, columns, life.rid, room)


def _first(said: Iterable[Observed]) -> dict[str, Any]:
    """Of each field the first value that is one."""
    found: dict[str, Any] = {}
    for one in said:
        for name, value in one.columns.items():
            if found.get(name) is None:
                found[name] = value
    return found


def _not_before(t_us: int | None, began: int | None) -> int | None:
    return t_us if t_us is None or began is None else max(t_us, began)
