"""What a source says, in the ledger's words: the form in which every reader and recorder hands over.

Invariant: nothing is filled in here. What a source does not say is absent, and a request stands under the names that
the source gave it (rid, room), never under a number of ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Observed:
    """One row to be: `table` and `op` of the ledger, its time (microseconds UTC, None where the source gives none).

    `rid` names the request; `room` its handoff, where the source says it.
    """

    t_us: int | None
    table: str
    op: str
    columns: Mapping[str, Any] = field(default_factory=dict)
    rid: str | None = None
    room: int | None = None


@dataclass(frozen=True)
class Unseen:
    """Rows of `table` that must have been and were not seen, at a place in time; `rows` of them, at least one."""

    t_us: int | None
    table: str
    rows: int = 1


@dataclass(frozen=True)
class Identity:
    """What a source says of the worker itself: columns of its `start` row, such as role, engine, version, model."""

    columns: Mapping[str, Any]


Said = Observed | Unseen | Identity
