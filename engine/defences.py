"""The defences that stop the known faults, each off, log or enforce.

Invariant: a failed check leaves a `checks` row whatever its mode (but for off), and in enforce mode a typed error
for that request alone.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from engine.integrity import CheckMode
from engine.ledger.recorder import Recorder
from engine.request import RequestError

ADMISSION_GATE, COVERED_COUNT, PAGE_TAG = "admission-gate", "covered-count", "page-tag"
EXCEEDS_POOL, EXCEEDS_CONTEXT = "prompt_exceeds_pool", "prompt_exceeds_context"
DETECTORS = {ADMISSION_GATE: "D1", COVERED_COUNT: "D2", PAGE_TAG: "D4"}


@dataclass(frozen=True)
class Defences:
    """Mode of each defence."""

    admission_gate: CheckMode = CheckMode.ENFORCE
    covered_count: CheckMode = CheckMode.ENFORCE
    page_tag: CheckMode = CheckMode.ENFORCE

    @classmethod
    def parse(cls, settings: dict[str, str]) -> Defences:
        """From names as the command line has them. Raises ValueError naming what is not known."""
        for name, mode in settings.items():
            if name not in DETECTORS:
                raise ValueError(f"unknown defence {name!r}; known: {', '.join(DETECTORS)}")
            if mode not in list(CheckMode):
                raise ValueError(f"defence {name}: unknown mode {mode!r}; known: {', '.join(CheckMode)}")
        return cls(**{name.replace("-", "_"): CheckMode(mode) for name, mode in settings.items()})

    def modes(self) -> dict[str, str]:
        """Name -> mode."""
        return {name: getattr(self, name.replace("-", "_")).value for name in DETECTORS}


class Checks:
    """Runs checks on one worker: ledger rows, counters and what follows."""

    def __init__(self, defences: Defences, recorder: Recorder) -> None:
        self.defences = defences
        self.failures: Counter[str] = Counter()
        self._recorder = recorder

    def mode(self, name: str) -> CheckMode:
        """Mode of a defence."""
        return CheckMode(self.defences.modes()[name])

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
