"""Prefill times by uncached length against a baseline: what was too fast for its tokens.

Invariant: a length with few requests is said to be so; speed alone accuses nobody.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from console.core.printable import printable
from console.core.stretch_stats import Stats
from forensics.rows import rows_of

FEW = 20
"""Below so many requests a 5th percentile is little more than the fastest of them."""


@dataclass(frozen=True)
class Length:
    """Requests with [bucket_tokens, 2 x bucket_tokens) tokens that were not cached. Times in ms.

    `band_ms`: p10 and p90 of the baseline. `starts_us`, `p5`, `p50`, `p95`, `counts` [n]: over time, only stretches that
    have requests. `stats`: of all of them, ms.
    """

    bucket_tokens: int
    requests: int
    floor_ms: float
    baseline_p5_ms: float | None
    p5_ms: float
    p50_ms: float
    below_floor: int
    suspicious: bool
    fastest: tuple[str, ...]
    band_ms: tuple[float, float] | None = None
    starts_us: tuple[int, ...] = ()
    p5: tuple[float, ...] = ()
    p50: tuple[float, ...] = ()
    p95: tuple[float, ...] = ()
    counts: tuple[int, ...] = ()
    stats: Stats | None = None

    @property
    def few(self) -> bool:
        """Whether there are too few requests for its percentiles to mean much."""
        return self.requests < FEW

    @property
    def change(self) -> float | None:
        """p5 against the baseline's: -0.88 is 88 % faster."""
        return self.p5_ms / self.baseline_p5_ms - 1 if self.baseline_p5_ms else None

    @property
    def label(self) -> str:
        """`8–16k`."""
        return length_label(self.bucket_tokens)


def length_label(bucket_tokens: int) -> str:
    """`8–16k`, of a length by its least tokens."""
    low, high = bucket_tokens, 2 * bucket_tokens
    if high < 1024:
        return f"{low}–{high}"
    return f"{low}–{high // 1024}k" if low < 1024 else f"{low // 1024}–{high // 1024}k"


@dataclass(frozen=True)
class LatencyFigure:
    """All lengths, shortest first."""

    lengths: tuple[Length, ...]

    def only(self, bucket: str | None) -> LatencyFigure:
        """The length that begins with so many tokens alone; None = all of them."""
        return LatencyFigure(tuple(n for n in self.lengths if bucket is None or str(n.bucket_tokens) == bucket))

    @property
    def worst(self) -> Length | None:
        """The length to look at first: suspicious, then the largest fall of p5, then the most requests."""
        return min(self.lengths, key=lambda n: (not n.suspicious, n.change or 0.0, -n.requests), default=None)


def bucket_fault(figure: LatencyFigure, bucket: str | None) -> str:
    """What is wrong with the length that a view names by its least tokens, in words; else empty."""
    there = [str(length.bucket_tokens) for length in figure.lengths]
    if bucket is None or bucket in there or not there:
        return ""
    return f"no request has a length that begins with {printable(bucket)} tokens; these are there: {', '.join(there)}"


def _band(row: Mapping[str, Any]) -> tuple[float, float] | None:
    low, high = row["baseline_p10_ms"], row["baseline_p90_ms"]
    return None if low is None or high is None else (low, high)


def latency_figure(compared: pa.Table, over_time: pa.Table) -> LatencyFigure:
    """From the rows of the queries `fast-prefill` and `prefill-times`."""
    series: dict[int, list[dict[str, float]]] = {}
    for row in rows_of(over_time):
        series.setdefault(row["bucket_tokens"], []).append(row)
    lengths = []
    for row in rows_of(compared):
        times = series.get(row["bucket_tokens"], [])
        lengths.append(
            Length(
                bucket_tokens=row["bucket_tokens"], requests=row["requests"],
                floor_ms=row["floor_ms"], baseline_p5_ms=row["baseline_p5_ms"],
                p5_ms=row["p5_ms"], p50_ms=row["p50_ms"], below_floor=row["below_floor"], suspicious=row["suspicious"] == "yes",
                fastest=tuple(row["fastest"] or ()), band_ms=_band(row),
                starts_us=tuple(int(t["t"]) for t in times), p5=tuple(t["p5_ms"] for t in times),
                p50=tuple(t["p50_ms"] for t in times), p95=tuple(t["p95_ms"] for t in times),
                counts=tuple(int(t["requests"]) for t in times),
                stats=Stats(row["requests"], row["p5_ms"], row["p50_ms"], row["p95_ms"], row["mean_ms"], total=row["sum_ms"]),
            )
        )  # fmt: skip
    return LatencyFigure(tuple(lengths))
