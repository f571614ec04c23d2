"""Costs in virtual time: exact sums, whole microseconds, and nothing that grows cheaper."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from engine.simulation.cost import CostModel, _floor_sum

COUNTS = st.integers(0, 1 << 20)
MODELS = st.builds(
    lambda base, token, pairs, sequence, context: CostModel.model_validate(
        {
            "prefill": {"base": f"{base}us", "per_token_us": token, "per_million_pairs_us": pairs},
            "decode": {"base": f"{base}us", "per_sequence_us": sequence, "per_1k_context_us": context},
        }
    ),
    st.integers(1, 20_000), st.floats(0, 1_000), st.floats(0, 1_000), st.floats(0, 1_000), st.floats(0, 1_000),
)  # fmt: skip


def costs(**sections: dict) -> CostModel:
    return CostModel.model_validate(sections)


@given(st.integers(0, 200), st.integers(1, 10_000), st.integers(0, 10_000), st.integers(0, 10_000))
def test_the_sum_of_floors(n, divisor, step, first):
    assert _floor_sum(n, divisor, step, first) == sum((first + step * k) // divisor for k in range(n))


@given(MODELS, st.integers(1, 256), COUNTS, st.integers(0, 300))
def test_a_run_costs_what_its_passes_cost(model, batch, context, n):
    assert model.decode_run_us(batch, context, n) == sum(model.decode_us(batch, context + k * batch) for k in range(n))


@given(MODELS, st.integers(1, 256), COUNTS, st.integers(0, 10**6), st.integers(0, 10**6))
def test_a_run_may_be_cut_anywhere(model, batch, context, n, m):
    whole = model.decode_run_us(batch, context, n + m)
    assert whole == model.decode_run_us(batch, context, n) + model.decode_run_us(batch, context + n * batch, m)


@given(MODELS, st.integers(1, 256), COUNTS, st.integers(-5, 10**9))
def test_passes_within_a_budget_are_the_most_that_fit(model, batch, context, budget):
    n = model.decode_passes_within(batch, context, budget)
    assert n >= 0
    assert [min(model.decode_passes_within(batch, context, budget, most), most) for most in (0, n, n + 1)] == [0, n, n]
    assert model.decode_run_us(batch, context, n) <= max(budget, 0)
    assert model.decode_run_us(batch, context, n + 1) > budget


@given(MODELS, COUNTS, COUNTS, st.integers(0, 100), st.integers(0, 100))
def test_more_work_never_costs_less(model, tokens, context, more, further):
    assert model.prefill_us(tokens + more, context + further) >= model.prefill_us(tokens, context) > 0
    assert model.decode_us(1 + more, context + further) >= model.decode_us(1, context) > 0


@given(st.integers(0, 1 << 40), st.integers(0, 1 << 20), st.integers(0, 1_000), st.integers(0, 1 << 32))
def test_a_transfer_takes_its_bytes_and_at_most_the_jitter_more(size, more, jitter, seed):
    model = costs(transfer={"latency": "30us", "bandwidth": "40G", "jitter": f"{jitter}us"})
    plain = 30 + -(-size // 40_000)
    drawn = model.transfer_us(size, random.Random(seed))
    assert plain <= drawn <= plain + jitter
    assert drawn == model.transfer_us(size, random.Random(seed))
    assert model.transfer_us(size + more, random.Random(seed)) >= drawn


def test_figures_by_hand():
    model = costs(
        prefill={"base": "4ms", "per_token_us": 9.5, "per_million_pairs_us": 2},
        decode={"base": "12ms", "per_sequence_us": 60, "per_1k_context_us": 4},
        transfer={"latency": "30us", "bandwidth": "40G"},
        message={"latency": "80us"},
    )
    assert model.prefill_us(1_000) == 4_000 + 9_500 + 1  # half a million pairs
    assert model.prefill_us(1_000, 100_000) == 4_000 + 9_500 + 201
    assert model.decode_us(32, 64_000) == 12_000 + 1_920 + 256
    assert model.transfer_us(1 << 20, random.Random(0)) == 30 + 27
    assert model.message_us(random.Random(0)) == 80


def test_jitter_is_uniform_and_asks_for_one_number_only_where_there_is_any():
    model, source = costs(message={"latency": "100us", "jitter": "9us"}), random.Random(5)
    drawn = [model.message_us(source) - 100 for _ in range(20_000)]
    assert set(drawn) == set(range(10))
    assert all(abs(drawn.count(one) - 2_000) < 250 for one in range(10))
    before = source.getstate()
    costs().message_us(source)
    assert source.getstate() == before


def test_a_pass_takes_time():
    with pytest.raises(ValidationError):
        costs(decode={"base": 0})
    with pytest.raises(ValidationError):
        costs(prefill={"per_token_us": -1.0})


def test_it_is_frozen_and_equal_where_its_figures_are():
    model = costs()
    model.decode_us(1, 1)
    assert model == costs()
    with pytest.raises(ValidationError):
        model.message = model.message
