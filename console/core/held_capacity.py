"""Held capacity: what holds a pool's pages, how much room is left, and when it would be full.

    steady state = holds per second x seconds each lasts x pages of each

Invariant: what is measured comes from gauges, what is explained from the library's queries, and a forecast is never
shown without the numbers it is made of. A deadline is when a timer lets pages go; it proves nothing about writes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from console.core.bins import bin_means
from console.core.pool_names import pool_name, pool_named
from console.core.printable import printable
from console.core.stretch_stats import Stats
from console.core.times import duration
from forensics.rows import Row, rows_of

REASONS = ("held", "quarantined", "in_transfer")
"""What keeps pages from being used; a gauge counts each."""
HORIZON_S = 3600.0
_STEPS = 120
_LAST = ("worker", "pool", "t", "bin_us", "held", "free")
SHORT_US, LONG_US = 60_000_000, 900_000_000
"""Over how long the rate of holds is taken: the last minute, and the last quarter of an hour."""
_P90 = 1.2816


@dataclass(frozen=True)
class Rates:
    """Of one pool: holds per second over the last minute and quarter of an hour, seconds each lasts, pages of each."""

    short_per_s: float
    long_per_s: float
    hold_s: float
    pages_each: float


@dataclass(frozen=True)
class WhatIf:
    """Factors and values tried out; None = as measured."""

    rate_factor: float = 1.0
    hold_s: float | None = None
    pages_each: float | None = None

    def of(self, rates: Rates) -> Rates:
        """The rates as tried."""
        return Rates(
            rates.short_per_s * self.rate_factor, rates.long_per_s * self.rate_factor,
            rates.hold_s if self.hold_s is None else self.hold_s, rates.pages_each if self.pages_each is None else self.pages_each,
        )  # fmt: skip


@dataclass(frozen=True)
class Forecast:
    """From the end of the record on. `seconds` [n]; pages held at the lower and the higher rate [n], and their p10 and
    p90. `steady`: where each ends, in pages. `full_in_s`: soonest and latest; None = not within the hour.
    """

    seconds: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    steady: tuple[float, float]
    full_in_s: tuple[float | None, float | None]
    room: int

    @property
    def never_fills(self) -> bool:
        """Whether even the higher rate ends below what there is room for."""
        return max(self.steady) <= self.room

    @property
    def words(self) -> str:
        """`full in 3m 02s to 5m 10s`, `never full`."""
        soonest, latest = self.full_in_s
        if soonest is None:
            return "never full" if self.never_fills else "not full within the hour"
        late = "later than an hour" if latest is None else duration(round(latest * 1e6))
        return f"full in {duration(round(soonest * 1e6))} to {late}"


@dataclass(frozen=True)
class HeldFigure:
    """One pool. `course`: rows of `held_series` over the record, or over a range of it, as tuples when they are asked for.
    Of the record's last stretch, [last_us, ends_us): pages `held`, and what is forecast from then on. `limit`: its pages.
    `stats`: of the pages held over the course, by gauge.
    """

    worker: str
    pool: str
    course: pa.Table = field(repr=False, compare=False)
    limit: int | None
    held: float | None
    last_us: int
    ends_us: int
    rates: Rates
    forecast: Forecast
    holders: tuple[Row, ...]
    stats: Stats | None = None

    @property
    def name(self) -> str:
        """Its pool in views and addresses: of all lives of the worker."""
        return pool_name(self.worker, self.pool)

    @cached_property
    def starts_us(self) -> tuple[int, ...]:
        """When each stretch of the course begins."""
        return tuple(self.course["t"].cast(pa.int64()).to_pylist())

    @cached_property
    def bin_us(self) -> int:
        """How long each is."""
        return int(self.course["bin_us"][0].as_py()) if len(self.course) else 0

    @cached_property
    def stacked(self) -> dict[str, tuple[float, ...]]:
        """Mean pages of each, by reason."""
        return {reason: tuple(value or 0.0 for value in self.course[reason].to_pylist()) for reason in REASONS}

    @cached_property
    def free(self) -> tuple[int, ...]:
        """The least free pages in each."""
        return tuple(int(value or 0) for value in self.course["free"].to_pylist())

    @property
    def share(self) -> float | None:
        """Part of the pool that was held last; None where it is not known."""
        return self.held / self.limit if self.limit and self.held is not None else None

    @property
    def reaches_end(self) -> bool:
        """Whether its course goes on to the end of the record, where the forecast begins."""
        return bool(self.starts_us) and self.starts_us[-1] + self.bin_us > self.last_us

    @property
    def formula(self) -> str:
        """`6.4/s × 480 s × 19.7 pages = 60,518`, at the rate of the last minute."""
        r = self.rates
        steady = r.short_per_s * r.hold_s * r.pages_each
        return f"{r.short_per_s:.3g}/s × {r.hold_s:.3g} s × {r.pages_each:.3g} pages = {steady:,.0f}"


def figure_looked_at(figures: Sequence[HeldFigure], name: str | None) -> tuple[HeldFigure | None, str]:
    """The pool that a view names, else the fullest (None = no pool has gauges); and what is wrong with the name, in words."""
    named = pool_named(name, [(f.worker, None, f.pool) for f in figures])
    if name is None or named is not None or not figures:
        return next(iter(figures), None) if named is None else figures[named], ""
    there = ", ".join(printable(f.name) for f in figures)
    return figures[0], f"no pool {printable(name)} has gauges; these have: {there}"


def held_series(gauges: pa.Table, first_us: int, bin_us: int) -> pa.Table:
    """Gauges by worker, pool and stretch of `bin_us` from `first_us` on: mean of each reason, least free."""
    return bin_means(gauges, first_us, bin_us, means=REASONS, least=("free",))


def hold_rates(pages: pa.Table, explained: pa.Table, last_us: int) -> dict[tuple[str, str], Rates]:
    """Of every pool that held anything. `explained`: the rows of the query `held-capacity`."""
    holds = pages.filter(pc.equal(pages["op"], "hold")).select(["worker", "pool", "epoch", "tag", "t"])
    since = holds.group_by(["worker", "pool", "epoch", "tag"]).aggregate([("t", "min")])
    recent: dict[tuple[str, str], list[int]] = {}
    for row in rows_of(since):
        recent.setdefault((row["worker"], row["pool"]), []).append(row["t_min"])
    weighed: dict[tuple[str, str], list[tuple[float, float, float]]] = {}
    for row in rows_of(explained):
        if row["hold_s"] is not None:
            weighed.setdefault((row["worker"], row["pool"]), []).append(
                (row["holds_per_s"], row["hold_s"], row["pages_each"])
            )
    found = {}
    for key, values in weighed.items():
        weights, lasted, each = (np.array(column) for column in zip(*values, strict=True))
        times = np.array(recent.get(key, []), np.int64)
        short, long = (float(np.sum(times > last_us - over)) / (over / 1e6) for over in (SHORT_US, LONG_US))
        weights = np.maximum(weights, 1e-9)
        found[key] = Rates(
            short, long, float(np.average(lasted, weights=weights)), float(np.average(each, weights=weights))
        )
    return found


def held_figure(
    series: pa.Table,
    rates: Rates,
    holders: tuple[Row, ...],
    limit: int | None,
    last_us: int,
    tried: WhatIf | None = None,
) -> HeldFigure:
    """One pool's figure from its rows of `held_series` and of the query `holders`."""
    last = {name: series[name][-1].as_py() for name in _LAST} if len(series) else None
    held = last["held"] or 0.0 if last else 0.0
    room = held + (last["free"] or 0) if last else 0.0
    begins, length = (last["t"], last["bin_us"]) if last else (0, 0)
    wanted = (tried or WhatIf()).of(rates)
    return HeldFigure(
        worker=last["worker"] if last else "", pool=last["pool"] if last else "",
        course=series, limit=limit, held=held if last else None, last_us=begins,
        ends_us=begins + length, rates=wanted, forecast=forecast(held, holders, wanted, round(room), last_us), holders=holders,
    )  # fmt: skip


def forecast(held: float, holders: tuple[Row, ...], rates: Rates, room: int, last_us: int) -> Forecast:
    """Known releases, and new holds at two rates. `held`: pages held at the end of the record, `last_us`."""
    seconds = np.linspace(0.0, HORIZON_S, _STEPS + 1)
    kept = np.full(len(seconds), held)
    for holder in holders:
        if holder["deadline"] is not None and holder["deadline"] > last_us:
            kept[seconds >= (holder["deadline"] - last_us) / 1e6] -= holder["pages"]
    kept = np.maximum(kept, 0.0)
    slow, fast = sorted((rates.short_per_s, rates.long_per_s))
    low, high = (_new(rate, rates, seconds, sign) + kept for rate, sign in ((slow, -1), (fast, 1)))
    steady = slow * rates.hold_s * rates.pages_each, fast * rates.hold_s * rates.pages_each
    full = _first_above(seconds, high, room), _first_above(seconds, low, room)
    return Forecast(tuple(seconds.tolist()), tuple(low.tolist()), tuple(high.tolist()), steady, full, room)


def _new(rate: float, rates: Rates, seconds: np.ndarray, sign: int) -> np.ndarray:
    """Pages of holds that begin from now on, with the edge of the middle four fifths of a Poisson arrival."""
    arrived = rate * np.minimum(seconds, rates.hold_s)
    return np.asarray(np.maximum(arrived + sign * _P90 * np.sqrt(arrived), 0.0) * rates.pages_each)


def _first_above(seconds: np.ndarray, pages: np.ndarray, room: int) -> float | None:
    above = np.flatnonzero(pages > room)
    if not len(above):
        return None
    at = int(above[0])
    if at == 0:
        return 0.0
    rise = pages[at] - pages[at - 1]
    part = (room - pages[at - 1]) / rise if rise > 0 and math.isfinite(rise) else 1.0
    return float(seconds[at - 1] + part * (seconds[at] - seconds[at - 1]))
