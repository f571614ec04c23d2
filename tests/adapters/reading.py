"""Readers over lines written in a test, and the captures."""

from __future__ import annotations

from pathlib import Path
from zoneinfo import ZoneInfo

from engine.adapters.keyed import Keyed
from engine.adapters.notes import Notes
from engine.adapters.observed import Identity, Observed
from engine.adapters.sglang_log import read_sglang_log
from engine.adapters.vllm_log import read_vllm_log

HERE = Path(__file__).parent
CAPTURES = HERE / "captures"
REPOSITORY = HERE.parents[1]
KEYED = Keyed(b"k" * 32)
UTC = ZoneInfo("UTC")
AT = "2026-09-14 12:00:05"
AT_US = 1_789_387_205_000_000


def sglang(*messages: str, prefix: str = f"[{AT} TP0] ", notes: Notes | None = None) -> list[Observed | Identity]:
    lines = [(number, prefix + message) for number, message in enumerate(messages, 1)]
    return list(read_sglang_log(lines, "server.log", UTC, KEYED, notes if notes is not None else Notes()))


def vllm(*messages: str, notes: Notes | None = None, year: int | None = 2026) -> list[Observed | Identity]:
    prefix = "(EngineCore pid=7) INFO 09-14 12:00:05 [core.py:1] "
    lines = [(number, prefix + message) for number, message in enumerate(messages, 1)]
    return list(read_vllm_log(lines, "server.log", UTC, year, notes if notes is not None else Notes()))


def said(row: Observed | Identity) -> tuple:
    """What a row says, without what it leaves open."""
    columns = {name: value for name, value in row.columns.items() if value is not None}
    if isinstance(row, Identity):
        return ("identity", columns)
    return (row.table, row.op, row.rid, row.room, columns)
