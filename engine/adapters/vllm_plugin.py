"""The entry point `vllm.general_plugins`: vLLM calls `register` in each of its processes.

Invariant: with KVW_LEDGER unset this does nothing; and whatever goes wrong here is said and never raised.
"""

from __future__ import annotations

import functools
import logging
import os
import pkgutil
from collections.abc import Callable
from typing import Any

from engine.adapters.attaching import Attached, attach
from engine.adapters.hooks import BEFORE
from engine.adapters.meter import Meter
from engine.adapters.vllm_hooks import HOOKS
from engine.adapters.vllm_recorder import VllmRecorder
from engine.adapters.vllm_settings import VllmSettings

log = logging.getLogger("vllm.kv_witness")
"""Below the one logger that vLLM sets up: elsewhere its processes show no words but warnings."""


def register() -> None:
    """Attach the recorder to this process of vLLM."""
    try:
        settings = VllmSettings.from_environment(os.environ)
        if settings is None:
            return
        done = start(VllmRecorder(settings))
        log.info(
            "KV Witness: %d hooks in place, %d not; ledger %s",
            len(done.hooks),
            len(done.missing),
            settings.place.ledger,
        )
    except Exception:
        log.exception("KV Witness: nothing is recorded")


def start(recorder: VllmRecorder, resolve: Callable[[str], Any] = pkgutil.resolve_name) -> Attached:
    """Put the recorder's hooks round the functions that `resolve` finds."""
    done = attach(HOOKS, recorder, resolve, functools.partial(place, recorder.meter, resolve))
    recorder.attached(done.missing)
    return done


def place(meter: Meter, resolve: Callable[[str], Any], target: str, handler: Callable[..., Any], kind: str) -> None:
    """Put `handler` before or after a method; what the handler takes is metered."""
    owner_name, _, name = target.rpartition(".")
    owner, original = resolve(owner_name), resolve(target)
    now = meter.now_ns

    @functools.wraps(original)
    def before(*args: Any, **kwargs: Any) -> Any:
        begun = now()
        handler(*args, **kwargs)
        meter.add(now() - begun)
        return original(*args, **kwargs)

    @functools.wraps(original)
    def after(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        begun = now()
        handler(result, *args, **kwargs)
        meter.add(now() - begun)
        return result

    setattr(owner, name, before if kind == BEFORE else after)
