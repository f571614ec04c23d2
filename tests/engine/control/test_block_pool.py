import numpy as np
import pytest
from control_bench import PAGE
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.block_pool import NULL_BLOCK, BlockPool, NotOwned
from engine.clock import ManualClock
from engine.ledger.recorder import Recorder


@pytest.fixture
def pool_of(tmp_path):
    made = []

    def build(pages):
        name = f"decode-{len(made)}"
        recorder = Recorder(
            tmp_path / "ledger", name, ordinal=len(made), now_us=ManualClock().now_us, digest_key=b"k", threaded=False
        )
        made.append(recorder)
        return BlockPool("kv", pages, PAGE, recorder)

    yield build
    for recorder in made:
        recorder.close(seal=False)


MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("reserve"), st.integers(1, 6)),
        st.tuples(st.just("append"), st.just(1)),
        st.tuples(st.sampled_from(["hold", "free", "steal"]), st.integers(0, 50)),
    ),
    max_size=40,
)


@settings(max_examples=60, deadline=None)
@given(pages=st.integers(2, 14), moves=MOVES)
def test_every_page_is_in_exactly_one_place(tmp_path_factory, pages, moves):
    recorder = Recorder(
        tmp_path_factory.mktemp("law"),
        "decode-0",
        ordinal=2,
        now_us=ManualClock().now_us,
        digest_key=b"k",
        threaded=False,
    )
    pool = BlockPool("kv", pages, PAGE, recorder)
    owned: list[tuple[int, np.ndarray, bool]] = []  # tag, pages, held
    for move, amount in moves:
        if move in ("reserve", "append"):
            free = pool.free_pages
            try:
                if move == "reserve":
                    given_pages, tag = pool.reserve(1, amount)
                else:
                    page, tag = pool.append(1, 0)
                    given_pages = np.array([page], np.int32)
            except MemoryError:
                assert amount > free == pool.free_pages
                continue
            owned.append((tag, given_pages, False))
        elif owned:
            index = amount % len(owned)
            tag, its_pages, _ = owned[index]
            if move == "hold":
                pool.hold(1, tag, its_pages, "abort")
                owned[index] = (tag, its_pages, True)
            elif move == "free":
                pool.free(1, tag, its_pages, "finish")
                owned.pop(index)
            else:
                with pytest.raises(NotOwned):
                    pool.free(1, tag + 1, its_pages, "finish")
        held = [page for _, its_pages, is_held in owned if is_held for page in its_pages]
        used = [page for _, its_pages, is_held in owned if not is_held for page in its_pages]
        everywhere = [*held, *used]
        assert len(set(everywhere)) == len(everywhere)
        assert NULL_BLOCK not in everywhere
        audit = pool.audit()
        assert audit.wrong == ()
        assert audit.counts == {
            "free": pages - 1 - len(everywhere), "used": len(used), "held": len(held), "quarantined": 0,
        }  # fmt: skip
    recorder.close(seal=False)


def test_tags_are_never_given_twice(pool_of):
    pool = pool_of(5)
    tags = set()
    for _ in range(20):
        pages, tag = pool.reserve(1, 2)
        assert tag not in tags
        tags.add(tag)
        pool.free(1, tag, pages, "finish")


def test_the_next_request_gets_freed_pages_in_table_order(pool_of):
    pool = pool_of(20)
    first, tag = pool.reserve(1, 7)
    pool.free(1, tag, first, "finish")
    second, _ = pool.reserve(2, 7)
    assert second.tolist() == first.tolist() == [1, 2, 3, 4, 5, 6, 7]


def test_a_page_cannot_be_freed_twice(pool_of):
    pool = pool_of(5)
    pages, tag = pool.reserve(1, 2)
    pool.free(1, tag, pages, "finish")
    with pytest.raises(NotOwned, match="not owned under tag"):
        pool.free(1, tag, pages, "finish")
    assert pool.free_pages == 4
    assert pool.audit().wrong == ()


def test_freeing_under_a_stale_tag_frees_nothing(pool_of):
    pool = pool_of(5)
    pages, old = pool.reserve(1, 2)
    pool.free(1, old, pages, "finish")
    again, _ = pool.reserve(2, 2)
    with pytest.raises(NotOwned):
        pool.free(1, old, again, "finish")
    assert pool.counts()["used"] == 2


def test_too_few_pages_take_none(pool_of):
    pool = pool_of(5)
    with pytest.raises(MemoryError, match="5 pages wanted, 4 free"):
        pool.reserve(1, 5)
    assert pool.free_pages == 4


def test_audit_finds_a_page_that_is_free_and_owned(pool_of):
    pool = pool_of(5)
    pages, _ = pool.reserve(1, 2)
    pool._free.append(int(pages[0]))
    assert pool.audit().wrong == (int(pages[0]),)


@pytest.mark.parametrize(("tokens", "pages"), [(1, 1), (PAGE, 1), (PAGE + 1, 2), (3 * PAGE, 3)])
def test_pages_for_tokens(pool_of, tokens, pages):
    assert pool_of(5).pages_for(tokens) == pages
