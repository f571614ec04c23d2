"""Time cut into stretches: how long they are, and what gauges say in each.

Invariant: a series has at most MAX_BINS stretches, however long the record is.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

MAX_BINS = 600
_NICE_S = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 43200, 86400)


def bin_seconds(first_us: int, last_us: int) -> int:
    """The shortest round length of which at most MAX_BINS cover the time."""
    wanted = max(last_us - first_us, 0) / 1e6 / (MAX_BINS - 1)
    return next((length for length in _NICE_S if length >= wanted), -(-int(wanted + 1) // 86400) * 86400)


def bin_means(gauges: pa.Table, first_us: int, bin_us: int, *, means: Sequence[str], least: Sequence[str]) -> pa.Table:
    """`worker pool t bin_us` and the columns named, one row per stretch, in order; `t` is where it begins, us."""
    places = pc.divide(pc.subtract(gauges["t"].cast(pa.int64()), first_us), bin_us)
    rows = pa.table(
        {
            "worker": gauges["worker"],
            "pool": gauges["pool"],
            "place": places,
            **{name: gauges[name] for name in (*means, *least)},
        }
    )
    binned = rows.group_by(["worker", "pool", "place"]).aggregate(
        [(name, "mean") for name in means] + [(name, "min") for name in least]
    )
    binned = binned.sort_by([("worker", "ascending"), ("pool", "ascending"), ("place", "ascending")])
    return pa.table(
        {
            "worker": binned["worker"], "pool": binned["pool"], "t": pc.add(pc.multiply(binned["place"], bin_us), first_us),
            "bin_us": pa.array([bin_us] * len(binned), pa.int64()),
            **{name: binned[f"{name}_mean"] for name in means}, **{name: binned[f"{name}_min"] for name in least},
        }
    )  # fmt: skip
