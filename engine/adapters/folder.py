"""A folder of what engines left behind: which file is of which kind, and whose it is.

Invariant: a file's kind follows from what is in it. Each subfolder is one worker; files that lie in the folder itself are
those of one worker that is named as the folder is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from pathlib import Path
from typing import Any

from engine.adapters.json_values import parsed
from engine.adapters.prometheus import SAMPLE
from engine.adapters.server_info import is_loads, is_server_info
from engine.adapters.sglang_log import LINE as SGLANG_LINE
from engine.adapters.sglang_requests import FINISHED, RECEIVED
from engine.adapters.vllm_log import LINE as VLLM_LINE

HEAD_BYTES, HEAD_LINES = 1 << 16, 200
MOST_VALUE_BYTES = 1 << 28
"""Longest file that is looked at as one JSON value."""


class Kind(Enum):
    """What a file is."""

    KV_CAPTURE = "KV event capture"
    KV_LINES = "KV event lines"
    CRASH_DUMP = "crash dump"
    EXPORTER = "exporter file"
    SGLANG_LOG = "SGLang log"
    VLLM_LOG = "vLLM log"
    SCRAPE = "Prometheus scrape"
    SERVER_INFO = "server info"
    LOADS = "loads"
    TRANSCRIPT = "transcript"


@dataclass(frozen=True)
class Source:
    """One file of one worker; `name` is its path in the folder."""

    path: Path
    name: str
    worker: str
    kind: Kind | None


def sources(folder: Path) -> Iterator[Source]:
    """Every file under `folder`, by name. A link is not followed out of it."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink():
            inner = path.relative_to(folder)
            worker = worker_name("-".join(inner.parts[:-1]) or folder.resolve().name)
            yield Source(path, inner.as_posix(), worker, kind_of(path))


def worker_name(text: str) -> str:
    """A name for the ledger's files."""
    bare = re.sub(r"[^A-Za-z0-9_.-]", "-", text).lstrip("_.-")[:64]
    return bare or "worker"


def lines_of(path: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines; bytes that are no UTF-8 are replaced, so that every line can be told."""
    with path.open(encoding="utf-8", errors="replace", newline="\n") as file:
        for number, line in enumerate(file, 1):
            yield number, line.rstrip("\r\n")


def kind_of(path: Path) -> Kind | None:
    """What a file is; None where it is nothing that can be read."""
    if path.suffix == ".pkl":
        return Kind.CRASH_DUMP
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
    if path.suffix == ".bin":
        return Kind.KV_CAPTURE
    first = head.split(b"\n", 1)[0].decode(errors="replace").rstrip("\r")
    is_value = head[:1] in (b"{", b"[") and SGLANG_LINE.fullmatch(first) is None
    if is_value and path.stat().st_size <= MOST_VALUE_BYTES and (whole := _json_kind(path)) is not None:
        return whole
    for _, line in islice(lines_of(path), HEAD_LINES):
        kind = _line_kind(line)
        if kind is not None:
            return kind
    return None


def _json_kind(path: Path) -> Kind | None:
    """Of a file that is one JSON value as a whole."""
    text = path.read_text(encoding="utf-8", errors="replace").strip()
    if text.startswith("["):
        return Kind.TRANSCRIPT if '"resp"' in text and text.endswith("]") else None
    return _record_kind(parsed(text) or {})


def _record_kind(record: dict[str, Any]) -> Kind | None:
    if is_server_info(record):
        return Kind.SERVER_INFO
    if is_loads(record):
        return Kind.LOADS
    if "request_parameters" in record:
        return Kind.EXPORTER
    if "payload" in record and "seq" in record:
        return Kind.KV_LINES
    return Kind.SGLANG_LOG if record.get("event") in (RECEIVED, FINISHED) else None


def _line_kind(line: str) -> Kind | None:
    if SGLANG_LINE.fullmatch(line):
        return Kind.SGLANG_LOG
    if VLLM_LINE.fullmatch(line):
        return Kind.VLLM_LOG
    if line.startswith(("# HELP ", "# TYPE ")) or (SAMPLE.fullmatch(line) and line.startswith(("sglang:", "vllm:"))):
        return Kind.SCRAPE
    return _record_kind(parsed(line) or {}) if line.startswith("{") else None
