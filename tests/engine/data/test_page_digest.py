"""Page digests: standard XXH3-64 of the payload, in the header from the moment a page is complete."""

import numpy as np
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.integrity import digest_mismatches, page_digest

PROMPT = list(range(1, 41))  # two whole pages of 16 and a half one


def test_the_digest_is_xxh3_of_the_pages_bytes(worker):
    each = worker()
    each.prefill("a", PROMPT, [3, 4, 5], 1)
    page = each.pool.payload[3].tobytes()
    assert page_digest(each.pool, 3) == np.array(xxhash.xxh3_64_intdigest(page), np.uint64).astype(np.int64)


def test_prefill_seals_the_pages_that_it_completes(worker):
    each = worker()
    each.prefill("a", PROMPT, [3, 4, 5], 1, chunk=10)
    digests = each.pool.headers["digest"]
    assert digests[[3, 4]].tolist() == [page_digest(each.pool, 3), page_digest(each.pool, 4)]
    assert digests[5] == 0
    assert digest_mismatches(each.pool, np.array([3, 4, 5])) == ()


def test_a_page_that_is_written_again_loses_its_digest(worker):
    each = worker()
    each.prefill("a", PROMPT, [3, 4, 5], 1)
    each.prefill("b", [7], [3], 2)
    assert each.pool.headers["digest"][3] == 0


def test_a_page_with_a_strangers_bytes_fails_its_digest(worker):
    each = worker()
    each.prefill("a", PROMPT, [3, 4, 5], 1)
    each.pool.payload[4] = each.pool.payload[3]
    assert digest_mismatches(each.pool, np.array([3, 4, 5])) == (1,)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(byte=st.integers(0, 32767), bit=st.integers(0, 7))
def test_any_flipped_bit_is_noticed(flipped_pool, byte, bit):
    raw = flipped_pool.payload[3].reshape(-1).view(np.uint8)
    raw[byte] ^= 1 << bit
    try:
        assert digest_mismatches(flipped_pool, np.array([3, 4])) == (0,)
    finally:
        raw[byte] ^= 1 << bit
