"""What a pass finds in the headers of the pages it read: its own, or whatever else got there, whenever it did."""

import threading

import numpy as np
import pytest
from data_bench import DEADLINE, copied, unique_text
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import torch_executor
from engine.executor import TagMismatch
from engine.integrity import check_tags, stamp_headers
from engine.kv_cache import KVCachePool, PageGeometry
from engine.transport import SharedMemoryTransport

PAGES = list(range(1, 16))


@pytest.fixture
def victim(worker):
    """A decode worker with a request of 200 tokens in pages 1 to 13 under tag 2; pages 14 and 15 are for its growth."""
    each = worker("decode-0", pages=64)
    prompt, _ = copied(unique_text(np.random.default_rng(3), 180), 200)
    each.first = each.prefill("victim", prompt, PAGES[:13], 2).token
    return each


@pytest.fixture
def mover(worker):
    each = worker("prefill-0", pages=64)
    each.prefill("other", copied(unique_text(np.random.default_rng(4), 180), 200)[0], PAGES[:13], 9)
    return each


def found(worker, position=200, token=65, pages=PAGES, tag=2, check=True):
    return worker.decode(worker.work("victim", token, position, pages, tag), check=check)[0].mismatches


def test_a_request_that_grows_finds_only_its_own(victim):
    assert len(victim.generate("victim", victim.first, 200, PAGES, 2, 40)) == 40


def test_chunked_prefill_finds_only_its_own(worker):
    each = worker()
    assert each.prefill("a", list(range(1, 101)), PAGES[:7], 5, chunk=9).mismatches == ()


def test_a_stale_page_is_found(victim):
    victim.prefill("later", list(range(1, 17)), [4], 77)
    assert found(victim) == (TagMismatch(page=4, index=3, expected=2, found=77),)


def test_a_page_swapped_for_somebody_elses_is_found(victim):
    victim.prefill("later", list(range(1, 33)), [30, 31], 77)
    swapped = [*PAGES[:5], 31, *PAGES[6:]]
    assert found(victim, pages=swapped) == (TagMismatch(31, 5, 2, 77),)


def test_a_page_of_an_earlier_life_is_found(victim):
    tags = [2] * 13
    tags[7] = 3  # the block table was made for a later reserve of page 8
    assert found(victim, pages=PAGES[:13], tag=tags) == (TagMismatch(8, 7, 3, 2),)


def test_a_page_that_nobody_wrote_is_found(victim):
    assert found(victim, pages=[*PAGES[:9], 50, *PAGES[10:]]) == (TagMismatch(50, 9, 2, 0),)


def test_a_page_with_fewer_tokens_than_are_read_is_found(worker, victim, mover):
    """A one-token stub under the right tag: the tag alone would not tell."""
    mover.send(victim, [1], [6], 2, 1).wait()
    assert found(victim) == (TagMismatch(6, 5, 2, 2),)


def test_without_the_check_nothing_is_told(victim):
    victim.prefill("later", list(range(1, 17)), [4], 77)
    assert found(victim, check=False) == ()


def test_only_the_request_concerned_fails(victim):
    victim.prefill("other", list(range(1, 40)), [20, 21, 22], 8)
    victim.prefill("later", list(range(1, 17)), [4], 77)
    results = victim.decode(victim.work("other", 65, 39, [20, 21, 22], 8), victim.work("victim", 65, 200, PAGES, 2))
    assert [len(result.mismatches) for result in results] == [0, 1]


def test_a_write_between_passes_is_found(victim, mover):
    assert found(victim) == ()
    mover.send(victim, [1, 2], [3, 9], 55, 32).wait()
    assert found(victim, 201) == (TagMismatch(3, 2, 2, 55), TagMismatch(9, 8, 2, 55))


def test_a_write_over_the_page_being_filled_stays_found(victim, mover):
    """The reader's next slot goes into the very page: it must not make the page its own again."""
    assert found(victim) == ()
    mover.send(victim, [1], [13], 55, 16).wait()
    assert [found(victim, position) for position in (201, 202)] == [(TagMismatch(13, 12, 2, 55),)] * 2


def test_a_write_between_gather_and_check_is_found(victim, mover):
    landed = []

    def land():
        landed.append(mover.send(victim, [1], [7], 55, 16).wait())

    victim.executor.after_gather = land
    assert found(victim) == (TagMismatch(7, 6, 2, 55),)
    assert len(landed) == 1


@pytest.mark.parametrize("layer", [0, 1])
def test_a_write_within_the_pass_is_found(victim, mover, monkeypatch, layer):
    """It lands right before one layer's gather: earlier layers read the old bytes, later ones the new."""
    passes = []

    def attend(*arguments, real=torch_executor.decode_attention):
        if len(passes) == layer:
            mover.send(victim, [1], [7], 55, 16).wait()
        passes.append(None)
        return real(*arguments)

    monkeypatch.setattr(torch_executor, "decode_attention", attend)
    assert found(victim) == (TagMismatch(7, 6, 2, 55),)
    assert len(passes) == 2


def test_a_write_under_way_while_the_page_changes_hands_is_found(victim, mover, monkeypatch):
    """Header of the old grant first, then the new owner tags the page, then the old bytes land over its own."""
    tagged, go_on, landed, finish = (threading.Event() for _ in range(4))

    def tag(headers, page, value, *rest, real=SharedMemoryTransport._tag, calls=[]):  # noqa: B006
        calls.append(None)
        if len(calls) == 2:
            landed.set()
            assert finish.wait(DEADLINE)
        real(headers, page, value, *rest)
        if len(calls) == 1:
            tagged.set()
            assert go_on.wait(DEADLINE)

    monkeypatch.setattr(SharedMemoryTransport, "_tag", staticmethod(tag))
    victim.generate("victim", victim.first, 200, PAGES, 2, 8)
    handed = mover.send(victim, [1], [14], 55, 16)
    assert tagged.wait(DEADLINE)
    before = victim.pool.payload[14].copy()

    def attend(*arguments, real=torch_executor.decode_attention):
        go_on.set()
        assert landed.wait(DEADLINE)
        return real(*arguments)

    monkeypatch.setattr(torch_executor, "decode_attention", attend)
    mismatches = found(victim, 208)  # the first slot of page 14
    assert victim.pool.headers["tag"][14] == 2, "the header by itself looks as it should"
    assert not np.array_equal(victim.pool.payload[14], before), "the old bytes were there to be read"
    finish.set()
    handed.wait()
    assert mismatches == (TagMismatch(14, 13, 2, 2),)
    assert found(victim, 209) == (TagMismatch(14, 13, 2, 55),), "and afterwards its tag is in place"


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.lists(
        st.tuples(st.integers(1, 3), st.permutations(range(4)), st.integers(0, 15), st.integers(1, 16)), max_size=12
    )
)
def test_a_header_never_claims_more_than_was_written(tmp_path_factory, writes):
    """Against a model slot by slot: a page that passes for n tokens under a tag had all of them written under it."""
    pool = KVCachePool(tmp_path_factory.mktemp("pool") / "p", 4, PageGeometry(1, 4, 1, 2), create=True)
    slots = np.zeros((4, 4), np.int64)
    for tag, table, start, count in writes:
        pages, stop = np.array(table), min(start + count, 16)
        stamp_headers(pool, pages, np.full(4, tag), start, stop)
        for position in range(start, stop):
            slots[pages[position // 4], position % 4] = tag
    for tag in (1, 2, 3):
        for page in range(4):
            for count in range(1, 5):
                if not check_tags(pool, np.array([page]), np.array([tag]), count):
                    assert (slots[page, :count] == tag).all()
