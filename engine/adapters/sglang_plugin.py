"""The entry point `sglang.srt.plugins`: SGLang calls `register` in each of its processes.

Invariant: with KVW_LEDGER unset this does nothing; and whatever goes wrong here is said and never raised.
"""

from __future__ import annotations

import logging
import os
import pkgutil
from collections.abc import Callable, Mapping
from typing import Any

from engine.adapters.attaching import Attached, attach
from engine.adapters.sglang_hooks import HOOKS
from engine.adapters.sglang_recorder import SglangRecorder
from engine.adapters.sglang_settings import Settings

log = logging.getLogger("kv_witness")
RANKS = ("dp_rank", "pp_rank", "pp_size", "tp_rank", "tp_size")


def register() -> None:
    """Attach the recorder to this process of SGLang."""
    try:
        settings = Settings.from_environment(os.environ)
        if settings is None:
            return
        registry = pkgutil.resolve_name("sglang.srt.plugins.hook_registry")
        kinds = registry.HookType

        def place(target: str, handler: Callable[..., Any], kind: str) -> None:
            registry.HookRegistry.register(target, handler, kinds[kind])

        done = start(settings, place)
        log.info(
            "KV Witness: %d hooks in place, %d not; ledger %s", len(done.hooks), len(done.missing), settings.ledger
        )
    except Exception:
        log.exception("KV Witness: nothing is recorded")


def start(settings: Settings, place: Callable[[str, Callable[..., Any], str], None]) -> Attached:
    """A recorder with its hooks placed."""
    recorder = SglangRecorder(settings, ranks_of)
    done = attach(HOOKS, recorder, pkgutil.resolve_name, place)
    recorder.attached(done.missing)
    return done


def ranks_of(scheduler: Any) -> Mapping[str, int | None]:
    """Ranks and sizes: the scheduler's own in 0.5.20, of the process behind that."""
    holder = getattr(scheduler, "ps", None)
    if holder is None:
        try:
            holder = pkgutil.resolve_name("sglang.srt.runtime_context.get_parallel")()
        except (ImportError, AttributeError):
            return {}
    return {name: getattr(holder, name, None) for name in RANKS}
