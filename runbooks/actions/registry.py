"""What a registered action is, and the context it runs in.

Invariant: a step can only call an action from the catalogue; an action declares its effect and its input and output
models, and reads time, randomness and the engine from its context alone.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from runbooks.deadline import Deadline
from runbooks.engine_client import EngineClient


class Effect(StrEnum):
    """What an action does to the system it touches."""

    OBSERVE = "observe"
    CHANGE = "change"
    DESTRUCTIVE = "destructive"


class ActionModel(BaseModel):
    """Base of action inputs and outputs: strict and immutable. Outputs hold no prompt, answer or key."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


@dataclass(frozen=True)
class ActionContext:
    """What an action may use. `run_id` names the run in request ids; `say` writes words to stderr."""

    run_id: str
    engine: EngineClient | None
    ledger: Path | None
    deadline: Deadline
    random: random.Random
    say: Callable[[str], None]


@dataclass(frozen=True)
class Action:
    """A named piece of Python that steps may call.

    `sends_traffic`: requests of its own reach the model, so the step must warn of it. `needs_person`: the action is a
    question to a person; the executor waits instead of calling `apply`.
    """

    name: str
    effect: Effect
    inputs: type[ActionModel]
    outputs: type[ActionModel]
    apply: Callable[[Any, ActionContext], ActionModel]
    sends_traffic: bool = False
    needs_person: bool = False
