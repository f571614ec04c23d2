"""The defences that stop the known faults, each off, log or enforce.

Invariant: a failed check leaves a `checks` row whatever its mode (but for off), and in enforce mode a typed error
for that request alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from engine.integrity import CheckMode
from engine.ledger.recorder import Recorder
from engine.request import RequestError

ADMISSION_GATE, COVERED_COUNT, PAGE_TAG = "admission-gate", "covered-count", "page-tag"
DEFERRED_RELEASE, DRAIN_COUNT, SOURCE_HOLD = "deferred-release", "drain-count", "source-hold"
COMPUTE_ORDER, ROOM_UNIQUE, GEOMETRY = "compute-order", "room-unique", "geometry"
OWNER_FREE, OWNER_AUDIT, SCOPED_KEYS = "owner-free", "owner-audit", "scoped-keys"
EXCEEDS_POOL, EXCEEDS_CONTEXT = "prompt_exceeds_pool", "prompt_exceeds_context"
DETECTORS = {
    ADMISSION_GATE: "D1",  # prompt and output against every pool and the context, before any page is reserved
    COVERED_COUNT: "D2",  # tokens that landed against tokens reserved for, per component, before they are bound
    PAGE_TAG: "D4",  # the tag in each page's header against the block table's, before a token leaves
    OWNER_FREE: "D8",  # a page is freed once, by its owner, and not while it is bound
    OWNER_AUDIT: "D8",  # when idle and on demand: every page is free, used, cached, shared, held or quarantined
    DEFERRED_RELEASE: "D9",  # pages of an aborted handoff are held until its writer has drained
    SCOPED_KEYS: "K",  # every identity field is in a cache key
    ROOM_UNIQUE: "U",  # one live request per room, and grants answered for the request they name
    GEOMETRY: "G",  # page size and format agree at registration; every page goes where it was granted
    COMPUTE_ORDER: "O",  # pages are handed to the wire after the pass that fills them
    DRAIN_COUNT: "O",  # nobody says 'outstanding 0' while writes are outstanding
    SOURCE_HOLD: "O",  # source pages are kept until they were read
}


@dataclass(frozen=True)
class Defences:
    """Mode of each defence, by name; what is not named is enforced."""

    chosen: Mapping[str, CheckMode] = field(default_factory=dict)

    @classmethod
    def parse(cls, settings: Mapping[str, str]) -> Defences:
        """From names as the command line has them. Raises ValueError naming what is not known."""
        for name, mode in settings.items():
            if name not in DETECTORS:
                raise ValueError(f"unknown defence {name!r}; known: {', '.join(DETECTORS)}")
            if mode not in list(CheckMode):
                raise ValueError(f"defence {name}: unknown mode {mode!r}; known: {', '.join(CheckMode)}")
        return cls({name: CheckMode(mode) for name, mode in settings.items()})

    def mode(self, name: str) -> CheckMode:
        """Mode of one defence."""
        return self.chosen.get(name, CheckMode.ENFORCE)

    def modes(self) -> dict[str, str]:
        """Name -> mode."""
        return {name: self.mode(name).value for name in DETECTORS}


class Checks:
    """Runs checks on one worker: ledger rows, counters and what follows."""

    def __init__(self, defences: Defences, recorder: Recorder) -> None:
        self.defences = defences
        self.failures: Counter[str] = Counter()
        self._recorder = recorder

    def mode(self, name: str) -> CheckMode:
        """Mode of a defence."""
        return self.defences.mode(name)

    def failed(
        self, name: str, req: int | None, *, expected: int, found: int, action: str | None = None, **columns: object
    ) -> bool:
        """Record a failed check of a request (None: of the engine's own limits); True where it must be refused."""
        mode = self.mode(name)
        if mode is CheckMode.OFF:
            return False
        self.failures[DETECTORS[name]] += 1
        if action is None:
            action = "refuse" if mode is CheckMode.ENFORCE else "log"
        self._recorder.record(
            "checks",
            "mismatch",
            detector=DETECTORS[name],
            req=req,
            expected=expected,
            found=found,
            action=action,
            **columns,
        )
        return mode is CheckMode.ENFORCE

    def passed(self, name: str, req: int, count: int) -> None:
        """Record how many checks of one kind a request passed."""
        if count and self.mode(name) is not CheckMode.OFF:
            self._recorder.record("checks", "passed", detector=DETECTORS[name], req=req, n=count)


@dataclass(frozen=True)
class Refusal:
    """A request that does not fit: the limit, what was asked for (both in tokens), and the client's error."""

    limit: int
    found: int
    error: RequestError

    @property
    def over_pool(self) -> bool:
        """Whether the pool is too small; else it is the model's context."""
        return self.error.code == EXCEEDS_POOL


@dataclass(frozen=True)
class Limits:
    """What one role can take: tokens of prompt by its pool, tokens of context by its model."""

    role: str
    pool_tokens: int
    context_tokens: int

    @property
    def prompt_limit_tokens(self) -> int:
        """The longest prompt that can be served with one token of answer."""
        return min(self.pool_tokens, self.context_tokens - 1)

    def refusal(self, prompt_tokens: int, max_tokens: int) -> Refusal | None:
        """Why a request cannot be served, with the numbers; None where it can."""
        if prompt_tokens > self.pool_tokens:
            message = f"prompt of {prompt_tokens} tokens exceeds the {self.role} KV pool of {self.pool_tokens} tokens"
            return Refusal(self.pool_tokens, prompt_tokens, RequestError(400, EXCEEDS_POOL, message))
        wanted = prompt_tokens + max_tokens
        if wanted > self.context_tokens:
            message = (
                f"{prompt_tokens} prompt and {max_tokens} output tokens exceed the context of {self.context_tokens}"
            )
            return Refusal(self.context_tokens, wanted, RequestError(400, EXCEEDS_CONTEXT, message))
        return None
