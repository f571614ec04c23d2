from itertools import pairwise

import numpy as np
import pytest
from cache_bench import PAGE
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.block_pool import NULL_BLOCK, BlockPool, NotOwned, PageState, tag_runs
from engine.clock import ManualClock
from engine.ledger.reader import read_ledger
from engine.ledger.recorder import Recorder
from engine.ledger.refs import expand_pages


def recorder_in(directory, name="decode-0", ordinal=2):
    return Recorder(directory, name, ordinal=ordinal, now_us=ManualClock().now_us, digest_key=b"k", threaded=False)


@pytest.fixture
def pool_of(tmp_path):
    made = []

    def build(pages):
        made.append(recorder_in(tmp_path / "ledger", f"decode-{len(made)}", len(made)))
        return BlockPool("kv", pages, PAGE, made[-1])

    yield build
    for recorder in made:
        recorder.close(seal=False)


@pytest.fixture
def rows_of(tmp_path):
    """Reads the pages rows of one op back, lists in full."""

    def read(pool, *ops):
        pool._recorder.flush()
        rows = expand_pages(read_ledger(tmp_path / "ledger").tables["pages"]).to_pylist()
        return [row for row in rows if row["op"] in ops]

    return read


def tags_of(tag, pages):
    return np.full(len(pages), tag, np.int64)


def cached(pool, req, count):
    """Pages of a request that a cache keeps, and their tags."""
    pages, tag = pool.reserve(req, count)
    pool.cache(req, pages, tags_of(tag, pages))
    return pages, tags_of(tag, pages)


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
    recorder = recorder_in(tmp_path_factory.mktemp("law"))
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
            "free": pages - 1 - len(everywhere), "used": len(used), "cached": 0, "shared": 0, "held": len(held),
            "quarantined": 0,
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


def test_pages_given_back_come_in_any_number_of_parts(pool_of):
    pool = pool_of(9)
    pages, tag = pool.reserve(1, 8)
    pool.free(1, tag, pages[5:], "finish")
    pool.free(1, tag, pages[:5], "finish")
    assert pool.reserve(2, 8)[0].tolist() == pages.tolist()


def test_a_page_named_twice_in_one_free_frees_nothing(pool_of):
    pool = pool_of(5)
    pages, tag = pool.reserve(1, 2)
    for twice in ([0, 0], [0, 1, 0], [0, 1] * 4):
        with pytest.raises(NotOwned, match="named twice"):
            pool.free(1, tag, pages[twice], "finish")
    assert pool.counts()["used"] == 2
    assert pool.audit().wrong == ()


def test_a_cached_page_keeps_tag_and_owner_and_ends_by_eviction(pool_of, rows_of):
    pool = pool_of(9)
    pages, tags = cached(pool, 3, 4)
    tag = int(tags[0])
    assert (pool.owner_tag(int(pages[0])), pool.owner_of(int(pages[0]))) == (tag, 3)
    assert pool.state_of(int(pages[0])) is PageState.CACHED
    with pytest.raises(NotOwned, match="is cached"):
        pool.free(3, tag, pages, "finish")
    with pytest.raises(NotOwned, match="is cached"):
        pool.hold(3, tag, pages, "abort")
    assert pool.counts()["cached"] == 4
    pool.free(None, tag, pages[2:], "evict")
    assert pool.counts() == {"free": 6, "used": 0, "cached": 2, "shared": 0, "held": 0, "quarantined": 0}
    assert pool.owner_of(int(pages[2])) is None
    [free] = rows_of(pool, "free")
    assert (free["req"], free["tag"], free["cause"], free["pages"]) == (None, tag, "evict", pages[2:].tolist())
    assert [row["op"] for row in rows_of(pool, "reserve", "append")] == ["reserve"], "no new reserve for the cache"


@pytest.mark.parametrize("change", ["other owner", "other tag", "held", "twice"])
def test_only_a_requests_own_pages_pass_to_a_cache(pool_of, change):
    pool = pool_of(9)
    pages, tag = pool.reserve(1, 3)
    if change == "held":
        pool.hold(1, tag, pages[1:], "abort")
    given_pages = pages[[0, 1, 1]] if change == "twice" else pages
    with pytest.raises(NotOwned):
        pool.cache(
            2 if change == "other owner" else 1, given_pages, tags_of(tag + (change == "other tag"), given_pages)
        )
    assert pool.counts()["cached"] == 0
    assert pool.audit().wrong == ()


def test_locks_are_counted_and_told_one_row_per_tag(pool_of, rows_of):
    pool = pool_of(12)
    (first, its_tags), (second, their_tags) = cached(pool, 1, 2), cached(pool, 2, 3)
    pages, tags = np.concatenate([first, second]), np.concatenate([its_tags, their_tags])
    pool.share(7, pages, tags)
    pool.share(8, second, their_tags, pos=2)
    assert pool.counts()["shared"] == 5
    assert pool.facts(int(second[0])).lockers == (7, 8)
    with pytest.raises(NotOwned, match="is shared"):
        pool.free(None, int(their_tags[0]), second, "evict")
    pool.unshare(7, pages, tags)
    assert (pool.counts()["cached"], pool.counts()["shared"]) == (2, 3)
    pool.unshare(8, second, their_tags, pos=2)
    assert pool.counts()["shared"] == 0
    assert pool.audit().wrong == ()
    found = [(row["req"], row["tag"], row["pages"], row["pos"]) for row in rows_of(pool, "share")]
    assert found == [
        (7, its_tags[0], first.tolist(), 0),
        (7, their_tags[0], second.tolist(), 2),
        (8, their_tags[0], second.tolist(), 2),
    ]
    assert [(row["req"], row["tag"]) for row in rows_of(pool, "unshare")] == [(row[0], row[1]) for row in found]


def test_a_lock_of_own_pages_protects_them_and_has_no_row(pool_of, rows_of):
    pool = pool_of(5)
    pages, tags = cached(pool, 1, 2)
    pool.share(1, pages, tags)
    with pytest.raises(NotOwned):
        pool.free(None, int(tags[0]), pages, "evict")
    pool.unshare(1, pages, tags)
    assert rows_of(pool, "share", "unshare") == []


def test_a_lock_is_undone_once_and_by_its_taker(pool_of):
    pool = pool_of(5)
    pages, tags = cached(pool, 1, 2)
    pool.share(2, pages, tags)
    for req, part in ((3, pages), (2, pages[:1])):
        with pytest.raises(NotOwned, match="holds no lock"):
            pool.unshare(req, part, tags[: len(part)])
    pool.unshare(2, pages, tags)
    with pytest.raises(NotOwned):
        pool.unshare(2, pages, tags)
    assert pool.audit().wrong == ()


def test_only_cached_pages_can_be_locked(pool_of):
    pool = pool_of(5)
    pages, tag = pool.reserve(1, 2)
    with pytest.raises(NotOwned, match="is used"):
        pool.share(2, pages, tags_of(tag, pages))
    kept, tags = cached(pool, 1, 2)
    with pytest.raises(NotOwned, match="not owned under"):
        pool.share(2, kept, tags + 1)
    assert pool.audit().wrong == ()


def test_quarantine_is_a_hold_until_somebody_frees(pool_of, rows_of):
    pool = pool_of(5)
    pages, tag = pool.reserve(1, 3)
    pool.hold(1, tag, pages, "abort")
    pool.quarantine(1, tag, pages)
    assert pool.counts()["quarantined"] == 3
    assert pool.facts(int(pages[0])).held
    with pytest.raises(NotOwned):
        pool.hold(1, tag, pages, "abort")
    assert [row["cause"] for row in rows_of(pool, "hold")] == ["abort", "quarantine"]
    pool.scrub(pages)
    pool.free(1, tag, pages, "operator")
    assert pool.counts()["free"] == 4
    assert [row["pages"] for row in rows_of(pool, "scrub")] == [pages.tolist()]


def test_a_page_that_is_being_read_is_not_scrubbed(pool_of):
    pool = pool_of(5)
    pages, tags = cached(pool, 1, 2)
    pool.share(2, pages[1:], tags[1:])
    with pytest.raises(NotOwned, match="being read"):
        pool.scrub(pages)


def spoil_list(pool, pages):
    pool._free.append(int(pages[0]))


def spoil_free_twice(pool, pages):
    pool._free.append(4)


def spoil_state(pool, pages):
    pool._state[pages[0]] = PageState.FREE


def spoil_tag(pool, pages):
    pool._tag[pages[0]] = 0


def spoil_references(pool, pages):
    pool._references[pages[0]] += 1


def spoil_owner(pool, pages):
    pool._owner[pages[0]] = -1


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (spoil_list, "is in the free list and owned"),
        (spoil_free_twice, "in the free list more than once"),
        (spoil_state, "is neither in the free list nor owned"),
        (spoil_tag, "is neither in the free list nor owned"),
        (spoil_references, "has another reference count than locks"),
        (spoil_owner, "has a tag without an owner"),
    ],
)
def test_the_audit_says_which_page_is_wrong_and_how(pool_of, rows_of, spoil, words):
    pool = pool_of(6)
    pages, _ = pool.reserve(9, 2)
    spoil(pool, pages)
    wrong = 4 if spoil is spoil_free_twice else int(pages[0])
    audit = pool.audit(record=True)
    assert wrong in audit.wrong
    [finding] = [finding for finding in audit.findings if finding.page == wrong]
    assert words in finding.why
    [row] = rows_of(pool, "audit")
    assert (row["n"], tuple(row["pages"])) == (len(audit.wrong), audit.wrong)


def test_a_clean_audit_is_a_row_too(pool_of, rows_of):
    pool = pool_of(6)
    pool.audit(record=True)
    [row] = rows_of(pool, "audit")
    assert (row["n"], row["pages"], row["pool"]) == (0, [], "kv")


def test_the_audit_knows_who_may_have_a_page_in_its_table(pool_of):
    pool = pool_of(12)
    own, _ = pool.reserve(1, 2)
    kept, tags = cached(pool, 2, 2)
    pool.share(1, kept, tags)
    assert pool.audit({1: np.concatenate([kept, own])}).findings == ()
    # whoever has no table any more and owns pages has leaked them
    assert {f.page: f.why for f in pool.audit({}).findings} == dict.fromkeys(
        own.tolist(), "is owned by a request that is at an end"
    )
    # two tables with one page, and one of them without a claim to it
    findings = pool.audit({1: np.concatenate([kept, own]), 3: own[:1]}).findings
    assert [f.page for f in findings] == [own[0]]
    assert "in the table of request 3, which has no claim" in findings[0].why
    assert "in the tables of several requests" in findings[0].why
    # reading what a cache keeps, without a lock
    findings = pool.audit({1: np.concatenate([kept, own]), 2: kept}).findings
    assert [f.page for f in findings] == sorted(kept.tolist())
    assert "request 2, which has not locked it" in findings[0].why


def test_a_million_pages_take_no_time(pool_of):
    pool = pool_of(1_000_001)
    for _ in range(3):
        pages, tag = pool.reserve(1, 1_000_000)
        assert pool.counts()["used"] == 1_000_000
        tags = tags_of(tag, pages)
        pool.cache(1, pages, tags)
        pool.share(2, pages, tags)
        pool.unshare(2, pages, tags)
        pool.free(None, tag, pages, "evict")
    assert pool.audit().wrong == ()


@given(st.lists(st.integers(0, 2), max_size=12))
def test_tag_runs_cover_tags_in_order(tags):
    runs = list(tag_runs(np.array(tags, np.int64)))
    assert [tag for tag, start, stop in runs for _ in range(start, stop)] == tags
    assert [stop for _, _, stop in runs[:-1]] == [start for _, start, _ in runs[1:]]
    assert all(one[0] != other[0] for one, other in pairwise(runs))


@pytest.mark.parametrize(("tokens", "pages"), [(1, 1), (PAGE, 1), (PAGE + 1, 2), (3 * PAGE, 3)])
def test_pages_for_tokens(pool_of, tokens, pages):
    assert pool_of(5).pages_for(tokens) == pages
