"""Requests as a worker keeps them, and the states they pass through.

Invariant: a request moves only along `TRANSITIONS`; `REJECTED` is a terminal state of its own, never an abort or a
finish in disguise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from http import HTTPStatus
from typing import Any, NamedTuple

import numpy as np


class RequestStatus(Enum):
    """Where a request is on one worker."""

    RECEIVED = auto()
    WAITING = auto()  # admitted; waits for pages (decode) or for its grant (prefill)
    TRANSFERRING = auto()  # decode: pages granted; prefill: computed, writes outstanding
    RUNNING = auto()
    RETRACTED = auto()  # gave its pages up for others; runs again when there are some
    HELD = auto()  # ended, but its pages wait for a remote writer to drain
    FINISHED = auto()
    ABORTED = auto()
    REJECTED = auto()


_S = RequestStatus
TRANSITIONS: dict[RequestStatus, frozenset[RequestStatus]] = {
    _S.RECEIVED: frozenset({_S.WAITING, _S.REJECTED, _S.ABORTED}),
    _S.WAITING: frozenset({_S.RUNNING, _S.TRANSFERRING, _S.REJECTED, _S.ABORTED}),
    _S.TRANSFERRING: frozenset({_S.RUNNING, _S.HELD, _S.FINISHED, _S.ABORTED, _S.REJECTED}),
    _S.RUNNING: frozenset({_S.TRANSFERRING, _S.RETRACTED, _S.FINISHED, _S.ABORTED}),
    _S.RETRACTED: frozenset({_S.RUNNING, _S.ABORTED}),
    _S.HELD: frozenset({_S.ABORTED}),
    _S.FINISHED: frozenset(),
    _S.ABORTED: frozenset(),
    _S.REJECTED: frozenset(),
}


class IllegalTransition(Exception):
    """A state change that `TRANSITIONS` does not know: a fault of the control plane itself."""


@dataclass(frozen=True)
class RequestError:
    """A typed error as the client sees it."""

    status: int
    code: str
    message: str

    @property
    def type(self) -> str:
        """OpenAI's error type."""
        return "invalid_request_error" if self.status < HTTPStatus.INTERNAL_SERVER_ERROR else "server_error"

    def packed(self) -> list[int | str]:
        """As it travels between workers."""
        return [int(self.status), self.code, self.message]

    @classmethod
    def unpacked(cls, packed: list[Any] | None) -> RequestError | None:
        """The inverse of `packed`; None for None."""
        return cls(*packed) if packed is not None else None

    def body(self) -> dict[str, dict[str, str]]:
        """OpenAI's error body."""
        return {"error": {"message": self.message, "type": self.type, "code": self.code}}


class GenerateRequest(NamedTuple):
    """What the door hands to a worker."""

    rid: str
    tenant: str
    room: int
    tokens: Sequence[int]
    max_tokens: int
    bootstrap: str = ""  # prefill's wire address
    purpose: str = "customer"
    organisation: str | None = None
    user: str | None = None
    adapter: str | None = None
    media: str | None = None
    weights: str = "induction-llama"
    kv_format: str = "float32"


@dataclass
class PageTable:
    """A request's pages of a pool beside `kv`: `pages` int32 [n] under `tags` int64 [n], from place `first` of its table
    on. The first `bound` of them are attended to; by `promised` more it may still grow."""

    pool: str
    first: int
    pages: np.ndarray
    tags: np.ndarray
    bound: int = 0
    promised: int = 0


@dataclass
class Request:
    """One request on one worker. `pages` int32 and `tags` int64 are its block table."""

    req: int
    given: GenerateRequest
    stamp: int
    status: RequestStatus = RequestStatus.RECEIVED
    pages: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))
    tags: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    output_tokens: int = 0  # that left for the client
    last_token: int = 0  # the input of the next decode pass
    last_token_us: int | None = None
    error: RequestError | None = None
    cached_tokens: int = 0  # of its prompt, that prefill found in its cache
    final_pages: int = 0  # of its table on decode when its answer is whole
    cached_pages: int = 0  # at the head of its table on decode, that decode's own cache keeps
    freed: int = 0  # of its own pages, from the first on, that a fault has already freed
    hold_deadline_us: int | None = None  # of its pages, where they are held
    told: bool = False  # whether the client has heard of its end
    others: dict[str, PageTable] = field(default_factory=dict)  # pool -> its pages there, of pools beside `kv`

    def __post_init__(self) -> None:
        self.prompt_tokens = len(self.given.tokens)

    @property
    def claimed_pages(self) -> np.ndarray:
        """Its table (int32 [n]) but for what a fault has freed of it."""
        first, cached = self.cached_pages + self.freed, self.pages[: self.cached_pages]
        return np.concatenate([cached, self.pages[first:]]) if self.freed else self.pages

    def move(self, status: RequestStatus) -> None:
        """Change state. Raises IllegalTransition."""
        if status not in TRANSITIONS[self.status]:
            raise IllegalTransition(f"{self.given.rid}: {self.status.name} -> {status.name}")
        self.status = status
