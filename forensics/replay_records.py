"""The rows that the replay walks: events, reads, lives, requests, and the numbers that stand for their nulls.

Invariant: a null becomes the number that makes every clause of the specification that uses it false
(docs/verdicts.md, "Order"), so no comparison elsewhere asks for nulls.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

NEVER_BEFORE = 1 << 62
"""Stands for a null that is compared as `null < b` or `b > null`."""
NEVER_AFTER = -(1 << 62)
"""Stands for a null that is compared as `b < null` or `null > b`."""
NONE = -1
"""No such id: no mover, no stream, no source cell, no growth event; as an owner: lost."""

NULL_OF_EVENT = {
    "t_lo": NEVER_AFTER, "t_hi": NEVER_BEFORE, "post_seq": NEVER_AFTER, "done_seq": NEVER_BEFORE,
    "src_since": NEVER_BEFORE, "src_until": NEVER_AFTER,
}  # fmt: skip
NULL_OF_READ = {
    "first_t": NEVER_AFTER, "last_t_end": NEVER_AFTER, "last_since": NEVER_AFTER, "end_t": NEVER_BEFORE,
    "pos_last": NEVER_BEFORE, "req_lo": NEVER_BEFORE, "req_hi": NEVER_AFTER,
}  # fmt: skip
WRITTEN = ("write", "growth", "rewrite")


class Taking(IntEnum):
    """What a share or hit says of giver and taker, and of the key it went by; the gravest of several counts."""

    SAME = 1
    TENANT = 2
    TENANT_BY_COMPLETE_KEY = 3
    TENANT_BY_INCOMPLETE_KEY = 4
    MEANING = 5
    BOTH = 6


TAKINGS = {
    ("tenant", "unknown"): Taking.TENANT, ("tenant", "complete"): Taking.TENANT_BY_COMPLETE_KEY,
    ("tenant", "incomplete"): Taking.TENANT_BY_INCOMPLETE_KEY,
}  # fmt: skip
TAKINGS |= {
    (word, key): taking
    for word, taking in (("same", Taking.SAME), ("meaning", Taking.MEANING), ("both", Taking.BOTH))
    for key in ("unknown", "complete", "incomplete")
}


class Event(NamedTuple):
    """One content event on one cell, somewhere in (lo, hi] of its worker's seq."""

    event: int
    cell: int
    kind: str
    lo: int
    hi: int
    t_lo: int
    t_hi: int
    owner: int
    tag: int
    mover: int
    post_seq: int
    done_seq: int
    stream: int
    src_cell: int
    src_lo: int
    src_hi: int
    src_tag: int
    src_since: int
    src_until: int
    digest: int
    pos: int
    authority: int
    collided: int
    acked: int
    reason: str
    flaw: str


class Read(NamedTuple):
    """One request's reading of one cell: from seq `s0` to the run that ends at `s1_max`."""

    read: int
    cell: int
    rq: int
    owner: int
    tag: int
    s0: int
    s1: int
    s1_max: int
    last_since: int
    first_t: int
    last_t_end: int
    end_t: int
    growth: int
    reserve_seq: int
    end_seq: int
    pos: int
    pos_last: int
    req_lo: int
    req_hi: int


class Passes(NamedTuple):
    """The steps runs one request took part in, in seq order, column by column."""

    seq: list[int]
    since_seq: list[int]
    step: list[int]
    n: list[int]
    t: list[int]
    end_t: list[int]


class Life(NamedTuple):
    """One life of a page under a tag."""

    owner: int
    reserve_seq: int
    end_seq: int
    granted: bool
    failed: bool
    held: bool
    unreturned: bool
    misdirected: bool
    collided: bool
    ended: str


class Request(NamedTuple):
    """A request on one worker; `rid` is never None."""

    rq: int
    worker: str
    epoch: int
    req: int
    role: str
    rid: str
    owner: int
    attempt: int | None
    tenant: str | None
    ended: bool
    last_token: int | None
    output_tokens: int | None
    complete: bool
    end_certain: bool


EVENT_INTS = [name for name in Event._fields if name not in ("event", "kind", "reason", "flaw")]
READ_INTS = [name for name in Read._fields if name != "read"]
