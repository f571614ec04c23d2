"""Probe prompts have one right answer, and planted nonces are found in whatever comes back."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runbook_fakes import continuation

from engine.induction import byte_codes
from engine.oracle import Oracle
from runbooks.canary import (
    CUES,
    NONCE_LENGTH,
    PARTIAL_LENGTH,
    SMALLEST_PROMPT,
    Nonce,
    Place,
    echoed,
    find_nonces,
    question,
    stain,
)


@given(seed=st.integers(), length=st.integers(SMALLEST_PROMPT, 3000), place=st.sampled_from(Place))
def test_the_right_answer_is_the_nonce_asked_for(seed, length, place):
    prompt = question(random.Random(seed), "q", "t", length, place)
    assert len(prompt.text) == length and prompt.text.isascii()
    answer = continuation(prompt.text, NONCE_LENGTH)
    assert answer == prompt.expected.text
    # Exact: every four-character window on the way stands in the prompt once, before its one successor.
    path = CUES[place] + answer
    for at in range(NONCE_LENGTH):
        window = path[at : at + 4]
        assert prompt.text[:-1].count(window) == 1, window
    assert len({nonce.text for nonce in prompt.nonces}) == 3


@given(seed=st.integers(), length=st.integers(SMALLEST_PROMPT, 3000))
def test_a_stain_covers_its_whole_length_with_one_nonce(seed, length):
    prompt = stain(random.Random(seed), "s", "t", length)
    assert len(prompt.text) == length
    assert continuation(prompt.text, NONCE_LENGTH) == prompt.expected.text
    block = 3 * NONCE_LENGTH
    for at in range(0, length - block, 50):
        assert find_nonces(prompt.text[at : at + block], prompt.nonces)[0].length == NONCE_LENGTH


@pytest.mark.parametrize("place", list(Place))
def test_the_engines_own_oracle_agrees(place):
    prompt = question(random.Random(11), "q", "t", 400, place)
    tokens = list(prompt.text.encode())
    assert bytes(Oracle(byte_codes()).continuation(tokens, NONCE_LENGTH)).decode() == prompt.expected.text


def test_places_are_the_first_page_the_middle_and_the_last_page():
    prompt = question(random.Random(3), "q", "t", 1600, Place.MIDDLE)
    start, middle, last = (prompt.text.index(nonce.text) for nonce in prompt.nonces)
    assert start == 4
    assert 700 < middle < 900
    assert last + NONCE_LENGTH == 1600 - 4


def test_partial_matches_count_from_nine_characters_on():
    nonce = Nonce("n", "t", "0123456789abcdefghijklmnopqrstuv")
    assert find_nonces("x" + nonce.text[5 : 5 + PARTIAL_LENGTH] + "y", [nonce])[0].length == PARTIAL_LENGTH
    assert find_nonces("x" + nonce.text[5 : 4 + PARTIAL_LENGTH] + "y", [nonce]) == []
    assert find_nonces("", [nonce]) == []
    assert echoed(nonce.text[:7] + "?", nonce) == 7
    assert echoed("", nonce) == 0


def test_nonces_never_show_in_a_representation():
    prompt = question(random.Random(1), "q", "t", 300, Place.START)
    shown = repr(prompt) + repr(prompt.nonces)
    assert not [nonce for nonce in prompt.nonces if nonce.text in shown]


def test_too_short_a_prompt_is_refused():
    with pytest.raises(ValueError, match="needs 160 bytes"):
        question(random.Random(1), "q", "t", 159, Place.START)
