"""Attaching hooks to an engine: which fit this version, which do not and why, and a guard round each.

Invariant: an engine is never harmed. A hook that does not fit is not attached and is told; one that fails is counted,
its rows are told as missed, and the engine's own call goes on with its own arguments and result.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from engine.adapters.sglang_hooks import BEFORE, Hook

log = logging.getLogger("kv_witness")
MOST_WARNINGS = 3
"""Failures of one hook that are logged; all are counted."""


class Recording(Protocol):
    """What takes the calls."""

    def failed(self, hook: Hook, why: str) -> None:
        """A handler raised: its rows are missed."""


@dataclass(frozen=True)
class Attached:
    """What became of the hooks: those that are in place, and of the others why they are not."""

    hooks: tuple[Hook, ...]
    missing: Mapping[Hook, str]


def attach(
    hooks: Iterable[Hook],
    handlers: Recording,
    resolve: Callable[[str], Any],
    register: Callable[[str, Callable[..., Any], str], None],
) -> Attached:
    """Register a guarded handler for every hook that fits. `resolve(target)` gives the engine's function."""
    placed: list[Hook] = []
    missing: dict[Hook, str] = {}
    for hook in hooks:
        why = unfit(hook, resolve)
        if why is None:
            try:
                register(hook.target, guarded(hook, handlers, signature_of(resolve(hook.target))), hook.kind)
                placed.append(hook)
                continue
            except Exception as error:
                why = f"could not be registered: {error!r}"
        missing[hook] = why
        log.warning("KV Witness: no hook at %s: %s", hook.target, why)
    return Attached(tuple(placed), missing)


def unfit(hook: Hook, resolve: Callable[[str], Any]) -> str | None:
    """Why a hook does not fit this version; None where it does."""
    try:
        taken = set(signature_of(resolve(hook.target)).parameters)
    except Exception as error:  # importing an engine's module can raise anything
        return f"not in this version ({type(error).__name__}: {error})"
    lacking = [name for name in hook.needs if name not in taken]
    return f"takes no {', '.join(lacking)} in this version" if lacking else None


def signature_of(function: Any) -> inspect.Signature:
    """The parameters of a function, also where it is wrapped."""
    return inspect.signature(function)


def guarded(hook: Hook, handlers: Recording, signature: inspect.Signature) -> Callable[..., Any]:
    """The handler as the registry calls it: BEFORE gets the arguments, AFTER the result before them. Returns None."""
    handle = getattr(handlers, hook.handler)
    warnings = [MOST_WARNINGS]

    def call(*args: Any, **kwargs: Any) -> None:
        try:
            result, given = (None, args) if hook.kind == BEFORE else (args[0], args[1:])
            bound = signature.bind(*given, **kwargs)
            bound.apply_defaults()
            said = {name: bound.arguments[name] for name in hook.needs}
            handle(**{("owner" if name == "self" else name): value for name, value in said.items()}, result=result)
        except Exception as error:
            if warnings[0]:
                warnings[0] -= 1
                log.warning("KV Witness: %s at %s failed: %r", hook.handler, hook.target, error)
            try:
                handlers.failed(hook, repr(error))
            except Exception:
                log.debug("KV Witness: a failure could not be recorded", exc_info=True)

    return call
