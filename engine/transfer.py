"""The handoff of one request's KV: rooms, grants and what each side has said of them.

Invariant: a grant is drained when its mover has said `outstanding` 0 and by nothing else; the pages of an undrained
grant are never handed to anybody.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple

import numpy as np

from engine.block_pool import tag_runs
from engine.transport import BATCH_PAGES, WriteBatch


class KVPoll(Enum):
    """State of one handoff, as SGLang names them."""

    FAILED = auto()
    BOOTSTRAPPING = auto()
    WAITING_FOR_INPUT = auto()
    TRANSFERRING = auto()
    SUCCESS = auto()


POLL_TRANSITIONS: dict[KVPoll, frozenset[KVPoll]] = {
    KVPoll.BOOTSTRAPPING: frozenset({KVPoll.WAITING_FOR_INPUT, KVPoll.FAILED}),
    KVPoll.WAITING_FOR_INPUT: frozenset({KVPoll.TRANSFERRING, KVPoll.FAILED}),
    KVPoll.TRANSFERRING: frozenset({KVPoll.SUCCESS, KVPoll.FAILED}),
    KVPoll.SUCCESS: frozenset(),
    KVPoll.FAILED: frozenset(),
}


class PoolGrant(NamedTuple):
    """The part of a grant in one pool: `pages` (int32 [n]) of `pool_pages`, under `tag`."""

    pool: str
    tag: int
    pages: np.ndarray
    pool_pages: int = 0


class Grant(NamedTuple):
    """Decode's permission to write `pages` (int32 [n]) under `tag`; `xfer` names it in every later row and message."""

    xfer: int
    room: int
    rid: str
    tag: int
    pages: np.ndarray
    decode: str
    decode_address: str
    pool_pages: int = 0  # of decode's pool
    others: tuple[PoolGrant, ...] = ()  # of pools beside `kv`
    head_tokens: int = 0  # of the prompt, that decode has already: the first page is for what follows them


class KVSender:
    """Prefill's side of one handoff."""

    def __init__(self, grant: Grant) -> None:
        self.grant = grant
        self.poll = KVPoll.BOOTSTRAPPING
        self.aborted = False
        self.told_outstanding: int | None = None

    def move(self, poll: KVPoll) -> None:
        """Change state. Raises ValueError where `POLL_TRANSITIONS` does not know the change."""
        if poll not in POLL_TRANSITIONS[self.poll]:
            raise ValueError(f"room {self.grant.room}: {self.poll.name} -> {poll.name}")
        self.poll = poll

    def batches(
        self, pages: np.ndarray, tags: np.ndarray, tokens: int, page_tokens: int, batch_pages: int = BATCH_PAGES,
        to: PoolGrant | None = None, place: int = 0, chunk: int = 0,
    ) -> list[WriteBatch]:  # fmt: skip
        """Bounded batches of one source tag each that carry `tokens` tokens in `pages` (int32 [n], under `tags` int64
        [n], at `place` of the request's table) to the first pages of the grant, in `kv` or in the pool of `to`; what
        the grant has no page for stays behind. They are numbered from `chunk` on."""
        grant = self.grant
        to = to or PoolGrant("kv", grant.tag, grant.pages)
        pages, tags = pages[: len(to.pages)], tags[: len(to.pages)]
        valid = np.minimum(tokens - np.arange(len(pages)) * page_tokens, page_tokens).astype(np.int32)
        pieces = [
            (tag, first, min(first + batch_pages, stop))
            for tag, start, stop in tag_runs(tags)
            for first in range(start, stop, batch_pages)
        ]
        return [
            WriteBatch(
                grant.xfer, grant.room, number, pages[start:stop], grant.decode, to.pages[start:stop], to.tag,
                valid[start:stop], tag, place + start, to.pool,
            )
            for number, (tag, start, stop) in enumerate(pieces, chunk)
        ]  # fmt: skip


class KVReceiver:
    """Decode's side of one handoff."""

    def __init__(self, grant: Grant, prefill_address: str) -> None:
        self.grant, self.prefill_address = grant, prefill_address
        self.poll = KVPoll.WAITING_FOR_INPUT
        self.drained = False
