"""What a stretch of time says in five numbers and a mean, of one pool's gauges or of prefill times.

Invariant: of all values of the stretch, never of what a chart was thinned to; percentiles lie between two values in
proportion, as in the library's queries.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

PERCENTILES = {"p5": 0.05, "p50": 0.5, "p95": 0.95, "most": 1.0}
GAUGED = "held"


@dataclass(frozen=True)
class Stats:
    """`n` values, in their own unit. `total`: their sum where that means something, else None."""

    n: int
    p5: float
    p50: float
    p95: float
    mean: float
    most: float | None = None
    total: float | None = None

    def words(self, unit: str) -> str:
        """`n 41  p5 0  p50 12  p95 31  mean 13.4  most 33 pages`; of nothing, that."""
        if not self.n:
            return "n 0"
        parts = [f"{name} {_short(getattr(self, name))}" for name in ("p5", "p50", "p95", "mean", "most")
                 if getattr(self, name) is not None]  # fmt: skip
        total = "" if self.total is None else f"  sum {_short(self.total)} {unit}"
        return f"n {self.n:,}  {'  '.join(parts)} {unit}{total}"


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def gauge_stats(gauges: pa.Table) -> pa.Table:
    """`worker pool n p5 p50 p95 most mean` of the pages held by every pool that has gauges."""
    known = gauges.filter(pc.is_valid(gauges[GAUGED]))
    workers, pools = (known[name].combine_chunks().dictionary_encode() for name in ("worker", "pool"))
    every = max(len(pools.dictionary), 1)
    codes = np.asarray(workers.indices).astype(np.int64) * every + np.asarray(pools.indices)
    held = np.asarray(known[GAUGED], np.float64)
    order = np.lexsort((held, codes))
    found, starts, n = np.unique(codes[order], return_index=True, return_counts=True)
    ranked = held[order]
    sums = np.add.reduceat(ranked, starts) if len(ranked) else np.zeros(0)
    figures = {name: _quantile(ranked, starts, n, q) for name, q in PERCENTILES.items()} | {"mean": sums / n}
    return pa.table(
        {
            "worker": workers.dictionary.take(pa.array(found // every)), "pool": pools.dictionary.take(pa.array(found % every)),
            "n": pa.array(n, pa.int64()), **{name: pa.array(column, pa.float64()) for name, column in figures.items()},
        }
    )  # fmt: skip


def _quantile(ranked: np.ndarray, starts: np.ndarray, n: np.ndarray, q: float) -> np.ndarray:
    """Of each group of `n` values that stand sorted from `starts` on."""
    place = (n - 1) * q
    below = np.floor(place).astype(np.int64)
    above = np.minimum(below + 1, n - 1)
    low, high = ranked[starts + below], ranked[starts + above]
    return np.asarray(low + (high - low) * (place - below))
