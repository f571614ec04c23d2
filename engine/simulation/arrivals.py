"""What traffic draws: when requests come, how long things are, and which of several is chosen.

Invariant: every draw is a pure function of (key, index): of no generator's state, no block size and no other draw.
A process yields times (int64, microseconds UTC) in blocks that never go back, from `begin` until before `end`; a
shorter span gives the beginning of a longer one's times.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Generic, Literal, Protocol, TypeVar

import numpy as np
import xxhash
from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from engine.ledger.fingerprint import splitmix64
from engine.simulation.scenario_source import (
    Micros,
    Misfit,
    Model,
    NonEmpty,
    PositiveMicros,
    PositiveRate,
    PositiveSize,
    Share,
    Weight,
    expected,
    misfits,
    write_micros,
)

BLOCK = 4096
MOST_IN_BURST = 1_000_000_000
HOUR_US = 3_600_000_000
DAY_US = 24 * HOUR_US
LARGEST = float(1 << 53)
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_ULP = 1 / (1 << 53)
Quantity = TypeVar("Quantity", bound=int)


def key_of(seed: int, *names: str) -> int:
    """A 64-bit key that differs wherever seed or names do."""
    return xxhash.xxh3_64_intdigest("\x1f".join((str(seed), *names)).encode())


def words(key: int, index: np.ndarray) -> np.ndarray:
    """Random uint64, one per `index` (uint64 [n]): SplitMix64's stream from `key`, at those places."""
    with np.errstate(over="ignore"):
        return np.asarray(splitmix64(index * _GOLDEN + np.uint64(key)))


def uniforms(key: int, index: np.ndarray) -> np.ndarray:
    """Random float64 in [0, 1), one per `index` (uint64 [n])."""
    return (words(key, index) >> np.uint64(11)) * _ULP


def choose(weights: Sequence[float] | np.ndarray, key: int, index: np.ndarray) -> np.ndarray:
    """Which of `weights` is chosen, int64 [n], one per `index`."""
    bounds = np.cumsum(np.asarray(weights, np.float64))
    last = np.flatnonzero(weights)[-1]  # where rounding reaches the sum of all
    return np.asarray(np.minimum(np.searchsorted(bounds, uniforms(key, index) * bounds[-1], side="right"), last))


# ---- how long things are


class Fixed(Model, Generic[Quantity]):
    """Always `value`."""

    kind: Literal["fixed"]
    weight: Weight = 1.0
    value: Quantity

    def draw(self, key: int, index: np.ndarray) -> np.ndarray:
        """int64 [n], one per `index`."""
        return np.full(len(index), self.value, np.int64)


class Range(Model, Generic[Quantity]):
    """Uniform over min .. max, both included."""

    kind: Literal["uniform"]
    weight: Weight = 1.0
    min: Quantity
    max: Quantity

    @model_validator(mode="after")
    def _ordered(self) -> Range[Quantity]:
        return _ordered(self)

    def draw(self, key: int, index: np.ndarray) -> np.ndarray:
        """int64 [n], one per `index`."""
        return np.add((uniforms(key, index) * (self.max - self.min + 1)).astype(np.int64), self.min)


class Lognormal(Model, Generic[Quantity]):
    """Half of the draws below `median`; `sigma` is the spread of the logarithm; clipped to min .. max."""

    kind: Literal["lognormal"]
    weight: Weight = 1.0
    median: Quantity
    sigma: Weight
    min: Quantity | None = None
    max: Quantity | None = None

    @model_validator(mode="after")
    def _ordered(self) -> Lognormal[Quantity]:
        return _ordered(self)

    def draw(self, key: int, index: np.ndarray) -> np.ndarray:
        """int64 [n], one per `index`."""
        radius = np.sqrt(-2.0 * np.log1p(-uniforms(key, index)))
        normal = radius * np.cos(2.0 * np.pi * uniforms(key ^ 1, index))
        with np.errstate(over="ignore"):
            drawn = np.minimum(self.median * np.exp(self.sigma * normal), LARGEST)
        return np.asarray(np.clip(np.rint(drawn).astype(np.int64), self.min, self.max))


class Choice(Model, Generic[Quantity]):
    """One of `values`, with `weights` (None: all equal)."""

    kind: Literal["choice"]
    weight: Weight = 1.0
    values: Annotated[tuple[Quantity, ...], NonEmpty]
    weights: tuple[Weight, ...] | None = None

    @model_validator(mode="after")
    def _paired(self) -> Choice[Quantity]:
        if self.weights is None:
            return self
        if len(self.weights) != len(self.values):
            what = f"{len(self.values)}, one for each of values"
            raise misfits([Misfit(("weights",), f"{len(self.weights)} weights", what)])
        if not any(self.weights):
            raise misfits([Misfit(("weights",), "no weight above 0", "at least one")])
        return self

    def draw(self, key: int, index: np.ndarray) -> np.ndarray:
        """int64 [n], one per `index`."""
        weights = self.weights or (1.0,) * len(self.values)
        return np.array(self.values, np.int64).take(choose(weights, key, index))


RangedT = TypeVar("RangedT", Range[Any], Lognormal[Any])


def _ordered(spread: RangedT) -> RangedT:
    if spread.min is not None and spread.max is not None and spread.max < spread.min:
        raise misfits([Misfit(("max",), str(spread.max), f"at least min, {spread.min}")])
    return spread


def _as_parts(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return value
    if isinstance(value, int | str):
        return [{"kind": "fixed", "value": value}]
    if isinstance(value, dict):
        return [value]
    raise expected("a value, a distribution or a list of distributions")


class Part(Protocol):
    """One distribution of a mixture."""

    @property
    def weight(self) -> float:
        """How often it is drawn from, against the others."""

    def draw(self, key: int, index: np.ndarray) -> np.ndarray:
        """int64 [n], one per `index`."""


PartsT = TypeVar("PartsT", bound=Sequence[Part])
LengthPart = Fixed[PositiveSize] | Range[PositiveSize] | Lognormal[PositiveSize] | Choice[PositiveSize]
DelayPart = Fixed[Micros] | Range[Micros] | Lognormal[Micros] | Choice[Micros]


def _weighted(parts: PartsT) -> PartsT:
    if not any(part.weight for part in parts):
        raise expected("a distribution with a weight above 0")
    return parts


Lengths = Annotated[
    tuple[Annotated[LengthPart, Field(discriminator="kind")], ...],
    BeforeValidator(_as_parts),
    AfterValidator(_weighted),
]
"""Of tokens or turns: a mixture of distributions, each with its `weight`."""

Delays = Annotated[
    tuple[Annotated[DelayPart, Field(discriminator="kind")], ...],
    BeforeValidator(_as_parts),
    AfterValidator(_weighted),
]
"""Of time: a mixture of distributions, each with its `weight`."""


def draw(parts: Sequence[Part], key: int, index: np.ndarray) -> np.ndarray:
    """One draw of a mixture per `index` (uint64 [n]): int64 [n]."""
    if len(parts) == 1:
        return parts[0].draw(key, index)
    drawn = np.empty(len(index), np.int64)
    chosen = choose([part.weight for part in parts], key ^ 2, index)
    for number, part in enumerate(parts):
        mine = np.flatnonzero(chosen == number)
        drawn[mine] = part.draw(key, index[mine])
    return drawn


# ---- when requests come


class Window(Model):
    """From `start` until before `end` (None: to the end), counted from the scenario's start; keys `from` and `to`."""

    start: Micros = Field(default=0, alias="from")
    end: Micros | None = Field(default=None, alias="to")

    @model_validator(mode="after")
    def _opens(self) -> Window:
        if self.end is not None and self.end <= self.start:
            wanted = f"a time after {write_micros(self.start)}, where the window opens"
            raise misfits([Misfit(("to",), write_micros(self.end), wanted)])
        return self

    def __contains__(self, offset_us: int) -> bool:
        return self.start <= offset_us and (self.end is None or offset_us < self.end)


class Poisson(Model):
    """Independent arrivals."""

    kind: Literal["poisson"]
    rate_per_s: PositiveRate

    def times(self, key: int, begin: int, end: int, block: int = BLOCK) -> Iterator[np.ndarray]:
        """See the module."""
        return _poisson(self.rate_per_s, key, begin, end, block)


class Diurnal(Model):
    """Independent arrivals, `rate_per_s` on the average of a day and `amplitude` (a share of it) more at the peak."""

    kind: Literal["diurnal"]
    rate_per_s: PositiveRate
    amplitude: Share
    peak_hour: Annotated[float, Field(strict=True, ge=0, lt=24)] = 14.0  # UTC

    def times(self, key: int, begin: int, end: int, block: int = BLOCK) -> Iterator[np.ndarray]:
        """See the module."""
        first = 0
        for candidates in _poisson(self.rate_per_s * (1 + self.amplitude), key, begin, end, block):
            index = np.arange(first, first + len(candidates), dtype=np.uint64)
            first += len(candidates)
            turn = (candidates % DAY_US / HOUR_US - self.peak_hour) / 24
            wanted = (1 + self.amplitude * np.cos(2 * np.pi * turn)) / (1 + self.amplitude)
            yield candidates[uniforms(key ^ 1, index) < wanted]


class Constant(Model):
    """Evenly spaced arrivals, the first as the window opens."""

    kind: Literal["constant"]
    rate_per_s: PositiveRate

    def times(self, key: int, begin: int, end: int, block: int = BLOCK) -> Iterator[np.ndarray]:
        """See the module."""
        for index in _counted(None, block):
            times = begin + np.floor(index * (1e6 / self.rate_per_s)).astype(np.int64)
            yield times[times < end]
            if times[-1] >= end:
                return


class Burst(Model):
    """`count` arrivals evenly over `over`, once as the window opens, or again `every` so often."""

    kind: Literal["burst"]
    count: Annotated[PositiveSize, Field(le=MOST_IN_BURST)]
    over: Micros = 0
    every: PositiveMicros | None = None

    @model_validator(mode="after")
    def _apart(self) -> Burst:
        if self.every is not None and self.over > self.every:
            raise misfits([Misfit(("over",), write_micros(self.over), f"at most every, {write_micros(self.every)}")])
        return self

    def times(self, key: int, begin: int, end: int, block: int = BLOCK) -> Iterator[np.ndarray]:
        """See the module."""
        for index in _counted(self.count if self.every is None else None, block):
            burst, place = np.divmod(index, self.count)
            step, rest = divmod(self.over, self.count)
            times = begin + burst * (self.every or 0) + place * step + place * rest // self.count
            yield times[times < end]
            if times[-1] >= end:
                return


class Times(Model):
    """Arrivals at given times, counted from where the window opens."""

    kind: Literal["times"]
    at: Annotated[tuple[Micros, ...], NonEmpty]

    @model_validator(mode="after")
    def _ascending(self) -> Times:
        back = [
            Misfit(("at", place), write_micros(later), f"no time before {write_micros(earlier)}, the one above it")
            for place, (earlier, later) in enumerate(zip(self.at, self.at[1:], strict=False), 1)
            if later < earlier
        ]
        if back:
            raise misfits(back)
        return self

    def times(self, key: int, begin: int, end: int, block: int = BLOCK) -> Iterator[np.ndarray]:
        """See the module."""
        times = begin + np.array(self.at, np.int64)
        times = times[times < end]
        for first in range(0, len(times), block):
            yield times[first : first + block]


Process = Annotated[Poisson | Diurnal | Constant | Burst | Times, Field(discriminator="kind")]


def _counted(count: int | None, block: int) -> Iterator[np.ndarray]:
    first = 0
    while count is None or first < count:
        last = first + block if count is None else min(first + block, count)
        yield np.arange(first, last)
        first = last


def _poisson(rate_per_s: float, key: int, begin: int, end: int, block: int) -> Iterator[np.ndarray]:
    """Gaps are rounded to whole ticks, whose sums do not depend on how they are cut into blocks."""
    ticks_per_us = 1_000 if rate_per_s >= 1 else 1
    mean, passed = 1e6 * ticks_per_us / rate_per_s, 0
    for index in _counted(None, block):
        gaps = np.rint(-np.log1p(-uniforms(key, index.astype(np.uint64))) * mean)
        sums = passed + np.cumsum(gaps.astype(np.int64))
        passed = int(sums[-1])
        times = begin + sums // ticks_per_us
        yield times[times < end]
        if times[-1] >= end:
            return
