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

from engine.adapters.hooks import BEFORE, Hook

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
    shift = 0 if hook.kind == BEFORE else 1
    named = [("owner" if name == "self" else name, *_place(signature, name)) for name in hook.needs]
    placed = [(ours, place + shift) for ours, _, place, _ in named]
    most = max((place for _, place in placed), default=0)

    def call(*args: Any, **kwargs: Any) -> None:
        try:
            if len(args) > most:  # all that is read stands in its place, as nearly always
                handle(result=args[0] if shift else None, **{ours: args[place] for ours, place in placed})
                return
            count = len(args) - shift
            said = {
                ours: args[place + shift] if place < count else kwargs.get(name, default)
                for ours, name, place, default in named
            }
            for ours, value in said.items():
                if value is inspect.Parameter.empty:
                    raise TypeError(f"called without {ours}")
            handle(**said, result=args[0] if shift else None)
        except Exception as error:
            if warnings[0]:
                warnings[0] -= 1
                log.warning("KV Witness: %s at %s failed: %r", hook.handler, hook.target, error)
            try:
                handlers.failed(hook, repr(error))
            except Exception:
                log.debug("KV Witness: a failure could not be recorded", exc_info=True)

    return call


def _place(signature: inspect.Signature, name: str) -> tuple[str, int, Any]:
    """(name, place among the positional arguments, default) of a parameter; a place beyond all where it has none."""
    parameter = signature.parameters[name]
    if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
        return name, 1 << 30, parameter.default
    return name, list(signature.parameters).index(name), parameter.default
