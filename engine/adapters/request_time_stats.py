"""`ReqTimeStats` lines of SGLang (--enable-request-time-stats-logging): one finished request on one role.

Invariant: the line joins rid, room and length on each role; `transfer_total` is what prefill's own sender counted, in
MiB with two decimals, over all buffers, so that its bytes are known to 5,243 bytes up or down.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from engine.adapters.json_values import digits
from engine.adapters.notes import Notes
from engine.adapters.observed import Identity, Observed, Said
from engine.adapters.times import from_unix

PREFIX = "ReqTimeStats("
MEBIBYTE, SECOND_US = 1 << 20, 1_000_000
_LINE = re.compile(
    r"ReqTimeStats\(rid=(?P<rid>\S+?)(?:, bootstrap_room=(?P<room>\d+))?, input_len=(?P<input>\d+), "
    r"cached_input_len=(?P<cached>\d+), output_len=(?P<output>\d+), attempts=(?P<attempts>\d+), "
    r"type=(?P<role>unified|prefill|decode|unknown)\): (?P<tail>.*)"
)
_KNOWN = frozenset(
    {
        "bootstrap_duration", "bootstrap_queue_duration", "bootstrap_done_time", "queue_duration", "forward_duration",
        "entry_time", "transfer_speed", "transfer_total", "alloc_wait_duration", "prealloc_queue_duration",
        "transfer_duration",
    }
)  # fmt: skip


def read_stats(message: str, t_us: int | None, where: str, notes: Notes) -> Iterator[Said]:
    """Rows of one line; `message` begins with PREFIX."""
    match = _LINE.fullmatch(message)
    if match is None:
        notes.skip(where, "ReqTimeStats line of an unknown shape")
        return
    notes.take("ReqTimeStats")
    tail = dict(part.partition("=")[::2] for part in match["tail"].split(", ") if "=" in part)
    notes.know("ReqTimeStats", set(tail), _KNOWN)
    role, rid, room = match["role"], match["rid"], digits(match["room"])
    if role in ("prefill", "decode", "unified"):
        yield Identity({"role": role})
    lengths = {"prompt_tokens": digits(match["input"]), "cached_tokens": digits(match["cached"])}
    entered = from_unix(_number(tail.get("entry_time")))
    if entered is not None and t_us is not None and entered > t_us:
        if entered < t_us + SECOND_US:  # the line's own time is cut to the second
            t_us = entered
        else:
            notes.assume(
                "requests entered after their lines were written: was the zone of the lines' times given right (--tz)?"
            )
    yield Observed(entered if entered is not None else t_us, "requests", "receive", lengths, rid, room)
    total = _number(tail.get("transfer_total", "").removesuffix(" MB"))
    if role == "prefill" and total is not None:
        # Zero means that the engine measured no transfer, which is not the same as no bytes.
        moved: dict[str, Any] = {"dir": "push", "bytes": round(total * MEBIBYTE) if total > 0 else None}
        yield Observed(t_us, "transfers", "done", moved, rid, room)
    output = None if role == "prefill" else digits(match["output"])  # what prefill samples goes to nobody from here
    yield Observed(t_us, "requests", "finish", {**lengths, "output_tokens": output}, rid, room)


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None
