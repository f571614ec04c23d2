"""What passes, transfers and messages cost in virtual time, in whole microseconds.

Invariant: a run of passes costs exactly the sum of its passes, so that cutting a run anywhere changes no time. All
arithmetic on passes is in whole picoseconds, rounded down once per pass; only jitter comes from a random source.
"""

from __future__ import annotations

from functools import cached_property
from math import sqrt
from typing import Protocol

from engine.simulation.scenario_source import Micros, Model, PositiveMicros, PositiveSize, Weight

PS_PER_US = 1_000_000


class Uniform(Protocol):
    """A source of numbers uniform in [0, 1): `random.Random` or a numpy generator."""

    def random(self) -> float:
        """The next number."""


class PrefillCost(Model):
    """Of one prefill pass. `per_million_pairs_us` prices attention: pairs of a new token and one that it sees."""

    base: PositiveMicros = 4_000
    per_token_us: Weight = 20.0
    per_million_pairs_us: Weight = 0.0


class DecodeCost(Model):
    """Of one decode pass; `per_1k_context_us` per 1,000 tokens of context, summed over the batch."""

    base: PositiveMicros = 8_000
    per_sequence_us: Weight = 50.0
    per_1k_context_us: Weight = 20.0


class TransferCost(Model):
    """Of one batch of a handoff: `bandwidth` in bytes/s, and up to `jitter` more, uniform."""

    latency: Micros = 30
    bandwidth: PositiveSize = 40_000_000_000
    jitter: Micros = 0


class MessageCost(Model):
    """Of one message between workers, and up to `jitter` more, uniform."""

    latency: Micros = 100
    jitter: Micros = 0


class CostModel(Model):
    """The `costs` section. Token and batch counts are whole and not negative."""

    prefill: PrefillCost = PrefillCost()
    decode: DecodeCost = DecodeCost()
    transfer: TransferCost = TransferCost()
    message: MessageCost = MessageCost()

    @cached_property
    def _prefill_ps(self) -> tuple[int, int, int]:
        cost = self.prefill
        per_million_pairs = round(cost.per_million_pairs_us * PS_PER_US)
        return cost.base * PS_PER_US, round(cost.per_token_us * PS_PER_US), per_million_pairs

    @cached_property
    def _decode_ps(self) -> tuple[int, int, int]:
        cost = self.decode
        per_token = round(cost.per_1k_context_us * PS_PER_US / 1_000)
        return cost.base * PS_PER_US, round(cost.per_sequence_us * PS_PER_US), per_token

    def prefill_us(self, uncached_tokens: int, context: int = 0) -> int:
        """A pass over `uncached_tokens` new tokens, the first of which sees `context` tokens before it."""
        base, per_token, per_million_pairs = self._prefill_ps
        pairs = uncached_tokens * context + uncached_tokens * (uncached_tokens + 1) // 2
        return (base + per_token * uncached_tokens + per_million_pairs * pairs // 1_000_000) // PS_PER_US

    def decode_us(self, batch: int, context_tokens: int) -> int:
        """A pass of `batch` sequences with `context_tokens` of context in sum."""
        base, per_sequence, per_token = self._decode_ps
        return (base + per_sequence * batch + per_token * context_tokens) // PS_PER_US

    def decode_run_us(self, batch: int, context_tokens: int, n: int) -> int:
        """`n` passes from `context_tokens` on, each sequence growing by one token a pass."""
        base, per_sequence, per_token = self._decode_ps
        first = base + per_sequence * batch + per_token * context_tokens
        return _floor_sum(n, PS_PER_US, per_token * batch, first)

    def decode_passes_within(self, batch: int, context_tokens: int, budget_us: int, most: int | None = None) -> int:
        """The most passes whose run takes `budget_us` or less; `most`, where more are not asked for."""
        if most is not None and self.decode_run_us(batch, context_tokens, most) <= budget_us:
            return most
        base, per_sequence, per_token = self._decode_ps
        first = (base + per_sequence * batch + per_token * context_tokens) / PS_PER_US
        growth = per_token * batch / PS_PER_US
        # Root of growth/2 n^2 + first n = budget, in the form that holds for growth 0; rounding down once per pass
        # only makes room for more, and what the root itself was rounded up by is taken back.
        root = 2 * max(budget_us, 0) / (first + sqrt(first * first + 2 * growth * max(budget_us, 0)))
        passes, step = int(root), 1
        while passes and self.decode_run_us(batch, context_tokens, passes) > budget_us:
            passes -= 1
        while self.decode_run_us(batch, context_tokens, passes + step) <= budget_us:
            passes, step = passes + step, step * 2
        while step > 1:
            step //= 2
            if self.decode_run_us(batch, context_tokens, passes + step) <= budget_us:
                passes += step
        return passes

    def transfer_us(self, bytes_: int, rng: Uniform) -> int:
        """From hand-over of `bytes_` bytes until the last has landed."""
        cost = self.transfer
        return cost.latency - (-bytes_ * 1_000_000 // cost.bandwidth) + _jitter(cost.jitter, rng)

    def message_us(self, rng: Uniform) -> int:
        """From sent to received."""
        return self.message.latency + _jitter(self.message.jitter, rng)


def _jitter(most: int, rng: Uniform) -> int:
    """Of 0 .. most; asks the source for nothing where there is no choice."""
    return int(rng.random() * (most + 1)) if most else 0


def _floor_sum(n: int, divisor: int, step: int, first: int) -> int:
    """Sum over k < n of (first + step * k) // divisor, in O(log divisor) turns of Euclid's algorithm."""
    total = 0
    while n > 0:
        total += n * (n - 1) // 2 * (step // divisor) + n * (first // divisor)
        step, first = step % divisor, first % divisor
        reached = step * n + first
        n, first = divmod(reached, divisor)
        divisor, step = step, divisor
    return total
