"""The figures of InductionLlama: byte codes and strengths, shared by the checkpoint's weights and its oracle.

Bytes are words of the Nordstrom-Robinson code (256 words of length 16 at distance >= 6; Nordstrom and Robinson 1967,
here as the Gray image of the octacode, Forney, Sloane and Trott 1993). Invariant: two different words correlate by at
most 1/4, so a byte that holds three quarters of an attention's weight wins. Token 0 is padding: its word is zero, so
it matches nothing and says nothing; filler outside the word gives it the energy of any other token.
"""

from __future__ import annotations

import itertools

import numpy as np

from engine.tokenizer import PAD, VOCABULARY

CODE, DEPTH = 16, 4  # length of a byte's word; predecessors that layer 1 compares
HEADS, HEAD_DIM, DIM = DEPTH, 128, 128
ROPE_BASE = 1e10
FAST_PAIRS, LOOK_BACK = 24, 60.0  # layer 0: RoPE pairs that tell neighbours apart, and how sharply
MATCH = 3000.0  # layer 1: attention score of a full match of the current byte; a quarter for each byte further back


def byte_codes() -> np.ndarray:
    """float32 [256, 16], entries +-1/4: the word of each byte; row 0 (padding) is zero."""
    generator = np.array(
        [[1, 0, 0, 0, 3, 1, 2, 1], [0, 1, 0, 0, 1, 2, 3, 1], [0, 0, 1, 0, 3, 3, 3, 2], [0, 0, 0, 1, 2, 3, 1, 1]]
    )
    words = np.array([np.dot(message, generator) % 4 for message in itertools.product(range(4), repeat=4)])
    gray = np.array([[0, 0], [0, 1], [1, 1], [1, 0]])
    codes: np.ndarray = ((1 - 2 * gray[words].reshape(VOCABULARY, CODE)) / 4).astype(np.float32)
    codes[PAD] = 0
    return codes


def rope_frequencies() -> np.ndarray:
    """float64 [HEAD_DIM / 2]: radians per position of each RoPE pair."""
    return ROPE_BASE ** (-np.arange(0, HEAD_DIM, 2, dtype=np.float64) / HEAD_DIM)
