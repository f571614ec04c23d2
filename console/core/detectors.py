"""The detectors as a table: what each looks at, how often it looked, what it saw.

Invariant: a detector that is off is shown as off, never as one that saw nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from console.core.sheet import Sheet
from forensics.rows import rows_of

WORDS: dict[str, str] = {
    "D1": "pool gate", "D2": "transfer count", "D3": "checksum", "D4": "page tag", "D5": "kv canary", "D6": "prompt canary",
    "D7": "too fast",
    "D8": "free audit", "D9": "held share", "K": "cache key", "U": "identity", "G": "geometry", "O": "order",
}  # fmt: skip
IN_RECORD = frozenset({"D1", "D2", "D3", "D7", "D8", "D9", "K", "U", "G", "O"})
"""Detectors that the library lets look at every record afterwards, whether or not an engine had them on."""


@dataclass(frozen=True)
class Detector:
    """`looked`: comparisons that an engine counted, None where no engine has it on; `hits`: of engines and of the record."""

    code: str
    words: str
    looked: int | None
    skipped: int
    hits: int
    last_us: int | None

    @property
    def state(self) -> str:
        """`saw something`, `quiet`, `skipped`, `record only` (no engine had it on), `off` (nobody looked)."""
        if self.hits:
            return "saw something"
        if self.looked:
            return "quiet"
        if self.skipped:
            return "skipped"
        return "record only" if self.code in IN_RECORD else "off"


def detector_rows(checks: pa.Table, detections: pa.Table) -> pa.Table:
    """One row per detector: `code looked skipped hits last`. `detections`: the rows of that query."""
    looked: dict[str, list[int]] = {}
    for row in rows_of(checks.group_by(["detector", "op"]).aggregate([("n", "sum"), ("seq", "count")])):
        counts = looked.setdefault(row["detector"], [0, 0])
        counts[row["op"] == "skipped"] += row["n_sum"] or row["seq_count"]
    hits = {
        row["detector"]: row
        for row in rows_of(detections.group_by("detector").aggregate([("detector", "count"), ("t", "max")]))
    }
    codes = [*WORDS, *sorted((set(looked) | set(hits)) - set(WORDS) - {None})]
    return pa.table(
        {
            "code": codes,
            "looked": pa.array([looked[c][0] if c in looked else None for c in codes], pa.int64()),
            "skipped": pa.array([looked[c][1] if c in looked else 0 for c in codes], pa.int64()),
            "hits": pa.array([hits[c]["detector_count"] if c in hits else 0 for c in codes], pa.int64()),
            "last": pa.array([hits[c]["t_max"] if c in hits else None for c in codes], pa.timestamp("us", tz="UTC")),
        }
    )


def detectors(rows: pa.Table) -> tuple[Detector, ...]:
    """The table of `detector_rows`, those that saw something first."""
    found = [
        Detector(r["code"], WORDS.get(r["code"], "not known here"), r["looked"], r["skipped"], r["hits"], r["last"])
        for r in rows_of(rows)
    ]
    return tuple(sorted(found, key=lambda d: not d.hits))


def detectors_sheet(rows: pa.Table) -> Sheet:
    """The detectors as a table, from the rows of `detector_rows`."""
    known = detectors(rows)
    columns: dict[str, list[Any]] = {
        "detector": [d.code for d in known], "what": [d.words for d in known], "saw": [d.state for d in known],
        "looked": [d.looked for d in known], "skipped": [d.skipped for d in known], "hits": [d.hits for d in known],
        "last": pa.array([d.last_us for d in known], pa.timestamp("us", tz="UTC")),
    }  # fmt: skip
    return Sheet("detectors", pa.table(columns))
