"""Prompts without tokens: their digests are those of a plain reading token by token."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.ledger.fingerprint import splitmix64
from engine.simulation.prompts import SyntheticPrompt, _mixed

SEGMENTS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 40)), max_size=6)
PAGE = st.integers(1, 17)


def tokens(segments) -> list[tuple[int, int]]:
    """Every token as (seed, place in its segment): what equality of content means."""
    return [(seed, place) for seed, length in segments for place in range(length)]


@given(SEGMENTS, SEGMENTS, PAGE)
def test_digests_are_equal_exactly_where_all_tokens_so_far_are(one, other, page_tokens):
    left, right = SyntheticPrompt(one), SyntheticPrompt(other)
    a, b = left.page_digests(page_tokens), right.page_digests(page_tokens)
    for page in range(min(len(a), len(b))):
        end = (page + 1) * page_tokens
        assert (a[page] == b[page]) == (tokens(one)[:end] == tokens(other)[:end])
    assert (left == right) == (tokens(one) == tokens(other))


@given(SEGMENTS, PAGE)
def test_one_digest_per_full_page_and_no_two_alike(segments, page_tokens):
    prompt = SyntheticPrompt(segments)
    digests = prompt.page_digests(page_tokens)
    assert len(prompt) == len(tokens(segments))
    assert (digests.dtype, digests.shape) == (np.int64, (len(prompt) // page_tokens,))
    assert (digests >= 0).all() and len(set(digests.tolist())) == len(digests)


@given(SEGMENTS, SEGMENTS, PAGE)
def test_what_follows_changes_nothing_before(one, more, page_tokens):
    prompt = SyntheticPrompt(one)
    digests = prompt.page_digests(page_tokens)
    assert prompt.extended(*more) == SyntheticPrompt([*one, *more])
    assert (prompt.extended(*more).page_digests(page_tokens)[: len(digests)] == digests).all()


@given(SEGMENTS, PAGE)
def test_the_digest_of_a_prefix_is_that_of_the_page_it_ends(segments, page_tokens):
    prompt = SyntheticPrompt(segments)
    ends = range(page_tokens, len(prompt) + 1, page_tokens)
    assert [prompt.prefix_digest(end, page_tokens) for end in ends] == prompt.page_digests(page_tokens).tolist()
    for bad in (0, -1, len(prompt) + 1):
        with pytest.raises(ValueError, match=f"{bad} tokens of a prompt of {len(prompt)}"):
            prompt.prefix_digest(bad, page_tokens)


@given(st.integers(0, (1 << 64) - 1))
def test_the_scalar_mix_is_the_vector_one(number):
    assert _mixed(number) == int(splitmix64(np.array([number], np.uint64))[0])


def test_pages_of_another_size_are_other_content():
    prompt = SyntheticPrompt([(1, 64)])
    assert not set(prompt.page_digests(16)) & set(prompt.page_digests(32))


def test_digests_stay_what_they_are():
    """A ledger's digests are compared across runs: a change here is a change of content."""
    prompt = SyntheticPrompt([(1, 20), (2, 30)])
    assert prompt.page_digests(16).tolist() == [7027498734005787317, 7916919775826731309, 5368389226148268017]


def test_a_negative_length_is_refused():
    with pytest.raises(ValueError, match="negative length"):
        SyntheticPrompt([(1, 5), (2, -1)])


def test_prompts_are_equal_and_hashed_by_their_tokens():
    assert {SyntheticPrompt([(1, 5), (2, 0)]), SyntheticPrompt(((1, 5),))} == {SyntheticPrompt([(1, 5)])}
    assert SyntheticPrompt([(1, 5)]) != (1, 5)


def test_a_million_tokens_take_no_two_milliseconds():
    prompt = SyntheticPrompt([(1, 4_096), (2, (1 << 20) - 4_096)])
    best = min(spent(lambda: prompt.page_digests(16)) for _ in range(20))
    assert best < 2e-3


def spent(work) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun
