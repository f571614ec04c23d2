"""Faults as named switches, each one class: what it needs, what it changes, and what is then physically true.

Invariant: with every switch off the engine is correct; a switch changes one decision and nothing else. Where the
defence against it is on, the decision is not even offered, or its outcome is caught.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np


def _always() -> float:
    return 0.0


@dataclass
class Fault:
    """One switch. `probability` is that of each occasion; `draw` gives numbers in [0, 1)."""

    name: ClassVar[str]
    mechanism: ClassVar[str]
    precondition: ClassVar[str]
    injection: ClassVar[str]
    ground_truth: ClassVar[str]

    on: bool = False
    probability: float = 1.0
    draw: Callable[[], float] = _always
    struck: int = 0

    def strikes(self) -> bool:
        """Whether the fault happens on this occasion."""
        if self.on and self.draw() < self.probability:
            self.struck += 1
            return True
        return False


@dataclass
class ShortHandoff(Fault):
    """Prefill rejects an over-pool prompt by swapping it for one placeholder token, and hands that over."""

    name = "short-handoff"
    mechanism = "M1"
    precondition = "a prompt larger than the prefill pool, over a gate that lets it in (SGLang #30233)"
    injection = "prefill swaps the prompt for one placeholder token, sends its one page and reports success"
    ground_truth = "decode reads its other pages as their previous owners left them"
    placeholder: tuple[int, ...] = (0,)


@dataclass
class FailOpen(Fault):
    """A batch of a handoff fails, and the failure is lost on the way to the scheduler."""

    name = "fail-open"
    mechanism = "M2"
    precondition = "a write of some pages fails"
    injection = "prefill breaks one batch of the handoff and reports success all the same"
    ground_truth = "exactly the pages of the failed batch are stale"

    def batch_of(self, count: int) -> int:
        """Which of `count` batches breaks."""
        return min(int(self.draw() * count), count - 1)


@dataclass
class LateWrite(Fault):
    """Decode frees the pages of an aborted handoff at once; prefill does not cancel the writes it still has.

    `armed` handoffs to come are gated before their first byte, so that a test decides when they land."""

    name = "late-write"
    mechanism = "M3"
    precondition = "a handoff is aborted while writes of it are outstanding"
    injection = "decode frees the granted pages at once, prefill goes on writing"
    ground_truth = "the next owner reads the donor's bytes from the moment they land"
    delay_us: int = 0  # for which the writes that are left are held up once the abort is heard
    armed: int = 0
    gated: dict[int, str] = field(default_factory=dict)  # xfer -> rid

    def take(self, xfer: int, rid: str) -> bool:
        """Whether this handoff's writes are to be gated, for this fault or another."""
        if self.armed <= 0:
            return False
        self.armed -= 1
        self.gated[xfer] = rid
        return True


@dataclass
class EarlyAck(Fault):
    """Prefill acknowledges an abort while its writes are outstanding."""

    name = "early-ack"
    mechanism = "M4"
    precondition = "a handoff is aborted while writes of it are outstanding"
    injection = "prefill says 'outstanding 0' at once and goes on writing"
    ground_truth = "decode frees pages that are still written: a late write"
    delay_us: int = 0  # as of late-write


@dataclass
class LostAck(Fault):
    """The acknowledgement of an abort never reaches decode."""

    name = "lost-ack"
    mechanism = "M4"
    precondition = "a handoff is aborted, and decode releases held pages at their deadline"
    injection = "prefill never answers an abort, and does not cancel its writes"
    ground_truth = "a late write where the deadline came first; else capacity is held"
    delay_us: int = 0  # as of late-write


@dataclass
class SourceReuse(Fault):
    """Prefill frees its pages as soon as their writes are handed over."""

    name = "source-reuse"
    mechanism = "M5"
    precondition = "another request computes on the freed pages while they are still being read"
    injection = "prefill frees source pages when it submits their writes"
    ground_truth = "what arrives is what lay in the source page when it was read"


@dataclass
class EarlyPost(Fault):
    """Prefill hands the last chunk over before it is computed."""

    name = "early-post"
    mechanism = "M6"
    precondition = "a write starts before the pass ends that fills its pages"
    injection = "prefill submits the writes when it launches the last pass"
    ground_truth = "pages read before the pass ended carry what lay there before"


@dataclass
class EarlyFree(Fault):
    """Decode frees prompt pages of a request that goes on reading them."""

    name = "early-free"
    mechanism = "M7"
    precondition = "a request decodes, and another takes the freed pages"
    injection = "decode frees the first `pages` pages of a running request, once"
    ground_truth = "the request reads what the pages' next owner writes"
    pages: int = 1
    hit: set[int] = field(default_factory=set)


@dataclass
class DoubleFree(Fault):
    """A request's pages go back to the free list twice."""

    name = "double-free"
    mechanism = "M8"
    precondition = "two later requests are alive at the same time"
    injection = "decode puts the first `pages` pages of an ended request into the free list twice"
    ground_truth = "two owners write and read one physical page"
    pages: int = 1


@dataclass
class Leak(Fault):
    """A terminal path forgets its pages."""

    name = "leak"
    mechanism = "M9"
    precondition = "a running request is aborted"
    injection = "decode drops the free of its pages"
    ground_truth = "pages of a dead owner that are neither free nor held; nobody reads them"


@dataclass
class SlowDrain(Fault):
    """Acknowledgements of aborts come late: capacity is held, bounded and on purpose."""

    name = "slow-drain"
    mechanism = "M10"
    precondition = "aborts while writes are outstanding"
    injection = "prefill answers an abort only after `delay_us`"
    ground_truth = "held pages = abort rate x hold time x pages; no contamination"
    delay_us: int = 10_000_000


@dataclass
class RoomCollision(Fault):
    """The door gives two requests one room."""

    name = "room-collision"
    mechanism = "M11"
    precondition = "two requests in one room are alive at the same time, at workers that do not check"
    injection = "the gateway gives a request the room of the one before it"
    ground_truth = "one request's KV lands in the other's pages"


@dataclass
class IncompleteKey(Fault):
    """A prefix cache key lacks an identity field."""

    name = "incomplete-key"
    mechanism = "M12"
    precondition = "equal tokens from requests that differ in the missing field"
    injection = "the key is made without `field`: tenant, adapter, media, weights or kv_format"
    ground_truth = "a request reads KV computed for another tenant, adapter, image, weights or format"
    field: str = "tenant"


@dataclass
class ShiftedPages(Fault):
    """Destination addresses are computed with an index that is off by one page."""

    name = "shifted-pages"
    mechanism = "M13"
    precondition = "the two sides disagree about where a page lies"
    injection = "prefill writes each page of a batch to the page behind its destination"
    ground_truth = "the page after each granted one is overwritten; the first granted one is not written"


@dataclass
class PartialState(Fault):
    """Of a request's components, one is handed over in part."""

    name = "partial-state"
    mechanism = "M14"
    precondition = "a request's state has several components"
    injection = "prefill sends fewer pages of `component` than of the others and reports success"
    ground_truth = "the component's other pages are as their previous owners left them"
    component: str = "index"

    def kept(self, pages: int) -> int:
        """How many of a component's pages are sent."""
        return pages // 2


@dataclass
class SharedScope(Fault):
    """The prefix cache is shared across tenants where policy forbids it."""

    name = "shared-scope"
    mechanism = "P0"
    precondition = "two tenants send a common prefix"
    injection = "cache keys are made without tenant scope, as configured: nothing is corrupted"
    ground_truth = "one tenant's hit on another's insert, observable by timing"


CLASSES: tuple[type[Fault], ...] = (
    ShortHandoff, FailOpen, LateWrite, EarlyAck, LostAck, SourceReuse, EarlyPost, EarlyFree, DoubleFree, Leak,
    SlowDrain, RoomCollision, IncompleteKey, ShiftedPages, PartialState, SharedScope,
)  # fmt: skip


@dataclass
class Faults:
    """Every switch of one worker."""

    short_handoff: ShortHandoff = field(default_factory=ShortHandoff)
    fail_open: FailOpen = field(default_factory=FailOpen)
    late_write: LateWrite = field(default_factory=LateWrite)
    early_ack: EarlyAck = field(default_factory=EarlyAck)
    lost_ack: LostAck = field(default_factory=LostAck)
    source_reuse: SourceReuse = field(default_factory=SourceReuse)
    early_post: EarlyPost = field(default_factory=EarlyPost)
    early_free: EarlyFree = field(default_factory=EarlyFree)
    double_free: DoubleFree = field(default_factory=DoubleFree)
    leak: Leak = field(default_factory=Leak)
    slow_drain: SlowDrain = field(default_factory=SlowDrain)
    room_collision: RoomCollision = field(default_factory=RoomCollision)
    incomplete_key: IncompleteKey = field(default_factory=IncompleteKey)
    shifted_pages: ShiftedPages = field(default_factory=ShiftedPages)
    partial_state: PartialState = field(default_factory=PartialState)
    shared_scope: SharedScope = field(default_factory=SharedScope)

    def __iter__(self) -> Iterator[Fault]:
        return iter(vars(self).values())

    def switch(self, name: str, on: bool) -> None:
        """Turn a fault on or off. Raises ValueError naming the known ones."""
        self.named(name).on = on

    def named(self, name: str) -> Fault:
        """The switch of a name. Raises ValueError naming the known ones."""
        known = self.by_name()
        if name not in known:
            raise ValueError(f"unknown fault {name!r}; known: {', '.join(known)}")
        return known[name]

    def by_name(self) -> dict[str, Fault]:
        """Name -> switch."""
        return {fault.name: fault for fault in self}

    def active(self) -> list[str]:
        """Names of the faults that are on."""
        return [fault.name for fault in self if fault.on]

    def seed(self, source: random.Random) -> None:
        """Let every fault draw from one source."""
        for fault in self:
            fault.draw = source.random


def shifted(pages: np.ndarray, limit: int) -> np.ndarray:
    """Each page's neighbour (int32 [n]) in a pool of `limit` pages; the last page stays."""
    return np.asarray(np.minimum(pages + 1, limit - 1), np.int32)
