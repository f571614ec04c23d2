import numpy as np
import pytest
from cache_bench import ANN, BOB, PAGE, CacheBench
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.block_pool import NotOwned
from engine.ledger.tag import split_tag
from engine.page_keys import SegmentPrompt


@pytest.fixture
def bench_of(tmp_path):
    made = []

    def build(**settings):
        made.append(CacheBench(tmp_path / f"ledger-{len(made)}", **{"host_pages": 17, **settings}))
        return made[-1]

    yield build
    for each in made:
        each.close()


def assert_clean(bench, tables=None):
    bench.assert_clean(tables)
    assert bench.host.audit().findings == ()
    assert bench.tier.audit() == ()
    assert bench.host.counts()["shared"] == 0, "nothing is locked once a load is over"


def offloaded(bench, req, identity, *digests):
    """Pages that a request computed and left to cache and tier."""
    _, tag, keys = bench.computed(req, identity, *digests)
    match = bench.cache.match_prefix(keys)
    stored = bench.tier.offload(keys, match.pages, match.tags, identity)
    return match, tag, keys, stored


def loaded(bench, req, identity, keys):
    """A request that takes what the tier has for its keys; returns (count, pages, tag)."""
    pages, tag = bench.pool.reserve(req, len(keys))
    return bench.tier.load(keys, pages, tag, identity), pages, tag


def short(row, *names):
    return tuple(row.get(name) for name in names)


PAIR = ("op", "peer", "dir", "src_pool", "src_pages", "src_tag", "dst_pool", "dst_pages", "dst_tag", "bytes")


def test_an_offload_is_a_transfer_to_oneself_and_a_row_with_the_keys(bench_of):
    bench = bench_of()
    match, tag, keys, stored = offloaded(bench, 1, ANN, 1, 2, 3)
    assert stored == bench.tier.stored_pages == bench.tier.match(keys) == 3
    host = [bench.tier._page_of[key] for key in keys.tolist()]
    host_tag = bench.host.owner_tag(host[0])
    assert bench.host.owner_of(host[0]) == 1, "its owner is who computed it"
    assert bench.memory.content["host"][host].tolist() == keys.tolist()
    post, done = bench.rows("transfers")
    ends = ("prefill-0", "push", "kv", match.pages.tolist(), tag, "host", host, host_tag)
    assert short(post, *PAIR) == ("post", *ends, None)
    assert short(done, *PAIR) == ("done", *ends, 3 * 64)
    assert post["xfer"] == done["xfer"]
    assert split_tag(post["xfer"]).seq == post["seq"]
    row = bench.rows("cache", "offload")[-1]
    assert short(row, "tier", "keys", "req", "tenant", "pool", "tag", "pages", "n", "asked", "returned") == (
        "host", keys.tolist(), 1, "t-a", "kv", tag, match.pages.tolist(), 3, 3, 3,
    )  # fmt: skip
    assert done["seq"] < row["seq"]
    assert_clean(bench, {})


def test_a_load_locks_what_it_reads_and_says_what_it_brought(bench_of):
    bench = bench_of()
    _, _, keys, _ = offloaded(bench, 1, ANN, 1, 2, 3)
    bench.cache.evict(9)
    host = [bench.tier._page_of[key] for key in keys.tolist()]
    host_tag = bench.host.owner_tag(host[0])
    wanted = bench.of(ANN, 1, 2, 3, 4, 5)
    count, pages, tag = loaded(bench, 2, ANN, wanted)
    assert count == 3
    assert bench.memory.content["kv"][pages[:3]].tolist() == keys.tolist()
    hit, load = bench.rows("cache", "hit", "load")
    assert short(hit, "tier", "req", "tenant", "keys", "pool", "tag", "pages", "asked", "returned") == (
        "host", 2, "t-a", keys.tolist(), "host", host_tag, host, 5, 3,
    )  # fmt: skip
    assert short(load, "tier", "req", "keys", "pool", "tag", "pages", "asked", "returned") == (
        "host", 2, keys.tolist(), "kv", tag, pages[:3].tolist(), 5, 3,
    )  # fmt: skip
    share, unshare = bench.rows("pages", "share", "unshare")
    assert [short(row, "pool", "req", "tag", "pages") for row in (share, unshare)] == [("host", 2, host_tag, host)] * 2
    post, done = bench.rows("transfers")[-2:]
    assert hit["seq"] < share["seq"] < post["seq"] < done["seq"] < unshare["seq"] < load["seq"]
    assert short(done, "src_pool", "src_tag", "dst_pool", "dst_pages", "dst_tag") == (
        "host", host_tag, "kv", pages[:3].tolist(), tag,
    )  # fmt: skip
    assert_clean(bench, {2: pages})


def test_loaded_pages_can_be_cached_again(bench_of):
    bench = bench_of()
    _, _, keys, _ = offloaded(bench, 1, ANN, 1, 2)
    bench.cache.evict(9)
    _, pages, tag = loaded(bench, 2, ANN, keys)
    bench.cache.insert(2, ANN, keys, pages, np.full(2, tag))
    assert bench.cache.match_prefix(keys).pages.tolist() == pages.tolist()
    assert_clean(bench, {})


def test_nothing_there_is_said_and_nothing_is_copied(bench_of):
    bench = bench_of()
    count, *_ = loaded(bench, 1, ANN, bench.of(ANN, 1, 2))
    assert count == 0
    assert bench.rows("transfers") == bench.rows("pages", "share") == bench.rows("cache", "hit") == []
    [row] = bench.rows("cache")
    assert short(row, "op", "keys", "asked", "returned", "n") == ("load", [], 2, 0, 0)


def test_what_the_tier_has_is_not_copied_again(bench_of):
    bench = bench_of()
    offloaded(bench, 1, ANN, 1, 2)
    match, _, keys, stored = offloaded(bench, 2, ANN, 1, 2, 3)
    assert stored == 1
    assert bench.memory.copies[-1][1] == match.pages[2:].tolist()
    row = bench.rows("cache", "offload")[-1]
    assert short(row, "keys", "asked", "returned", "req") == (keys[2:].tolist(), 1, 1, 2)
    seq = bench.recorder.seq
    assert bench.tier.offload(keys, match.pages, match.tags, ANN) == 0
    assert bench.recorder.seq == seq
    assert_clean(bench, {})


def test_pages_of_several_owners_are_told_apart(bench_of):
    bench = bench_of()
    bench.computed(1, ANN, 1, 2)
    _, _, keys, stored = offloaded(bench, 2, ANN, 1, 2, 3)
    assert stored == 3
    rows = bench.rows("cache", "offload")
    assert [short(row, "req", "keys", "asked", "returned") for row in rows] == [
        (1, keys[:2].tolist(), 2, 2), (2, keys[2:].tolist(), 1, 1),
    ]  # fmt: skip
    hosts = [row for row in bench.rows("pages", "reserve") if row["pool"] == "host"]
    assert [row["req"] for row in hosts] == [1, 2]
    bench.cache.evict(9)
    loaded(bench, 3, ANN, keys)
    hits = bench.rows("cache", "hit")
    assert [(row["tag"], row["pos"], row["n"]) for row in hits] == [(hosts[0]["tag"], 0, 2), (hosts[1]["tag"], 2, 1)]


def test_copies_come_in_bounded_batches(bench_of):
    bench = bench_of(batch_pages=2)
    offloaded(bench, 1, ANN, 1, 2, 3, 4, 5)
    rows = bench.rows("transfers")
    assert [short(row, "op", "chunk", "pos", "n") for row in rows] == [
        (op, chunk, 2 * chunk, n) for chunk, n in ((0, 2), (1, 2), (2, 1)) for op in ("post", "done")
    ]
    assert len({row["xfer"] for row in rows}) == 1
    assert [row["asked"] for row in bench.rows("cache", "offload")] == [5]


def test_the_tier_lets_go_of_what_was_used_longest_ago_from_its_end(bench_of):
    bench = bench_of(host_pages=6)
    old, new = offloaded(bench, 1, ANN, 1, 2)[2], offloaded(bench, 2, ANN, 3, 4)[2]
    bench.cache.evict(99)
    loaded(bench, 3, ANN, old)
    third = offloaded(bench, 4, ANN, 5, 6)[2]
    assert [bench.tier.match(keys) for keys in (old, new, third)] == [2, 1, 2]
    [row] = bench.rows("cache", "evict")[-1:]
    assert short(row, "tier", "pool", "keys") == ("host", "host", new[1:].tolist())
    [free] = [row for row in bench.rows("pages", "free") if row["pool"] == "host"]
    assert short(free, "req", "cause") == (None, "evict")
    assert bench.host.audit().findings == ()


def test_what_follows_goes_before_what_was_there_earlier(bench_of):
    bench = bench_of()
    offloaded(bench, 1, ANN, 1, 2)
    keys = offloaded(bench, 2, ANN, 1, 2, 3)[2]
    bench.tier.evict(1)
    assert bench.tier.match(keys) == 2


def test_a_tier_that_is_too_small_says_how_much_it_took(bench_of):
    bench = bench_of(host_pages=4)
    match, _, keys, stored = offloaded(bench, 1, ANN, 1, 2, 3, 4, 5)
    assert stored == bench.tier.match(keys) == 3
    [row] = bench.rows("cache", "offload")
    assert short(row, "keys", "asked", "returned") == (keys[:3].tolist(), 5, 3)
    assert bench.tier.offload(keys, match.pages, match.tags) == 0, "a beginning is not evicted for what follows it"
    assert bench.tier.match(keys) == 3
    assert short(bench.rows("cache", "offload")[-1], "asked", "returned", "n") == (2, 0, 0)
    assert_clean(bench, {})


@pytest.mark.parametrize("fails", [0, 1, 2])
def test_a_copy_that_fails_ends_an_offload_there(bench_of, fails):
    bench = bench_of(batch_pages=2)
    bench.memory.fail_at = fails
    _, _, keys, stored = offloaded(bench, 1, ANN, 1, 2, 3, 4, 5)
    assert stored == bench.tier.match(keys) == 2 * fails
    fail = bench.rows("transfers")[-1]
    assert short(fail, "op", "bytes", "status") == ("fail", None, "host memory is gone")
    [row] = bench.rows("cache", "offload")
    assert short(row, "keys", "asked", "returned") == (keys[: 2 * fails].tolist(), 5, 2 * fails)
    assert bench.host.counts()["free"] == 16 - 2 * fails
    assert_clean(bench, {})


def test_a_copy_that_fails_ends_a_load_there_and_locks_nothing(bench_of):
    bench = bench_of(batch_pages=2)
    _, _, keys, _ = offloaded(bench, 1, ANN, 1, 2, 3, 4, 5)
    bench.memory.fail_at = len(bench.memory.copies) + 1
    bench.cache.evict(9)
    count, pages, _ = loaded(bench, 2, ANN, keys)
    assert count == 2
    row = bench.rows("cache", "load")[-1]
    assert short(row, "keys", "asked", "returned") == (keys[:2].tolist(), 5, 2)
    assert bench.rows("transfers")[-1]["op"] == "fail"
    assert_clean(bench, {2: pages})


def test_pages_must_be_who_they_are_said_to_be(bench_of):
    bench = bench_of()
    match, _, keys, _ = offloaded(bench, 1, ANN, 1, 2)
    with pytest.raises(NotOwned):
        bench.tier.offload(keys, match.pages, match.tags + 1, ANN)
    pages, own = bench.pool.reserve(2, 2)
    with pytest.raises(NotOwned):
        bench.tier.load(keys, pages, own + 1, ANN)
    for call in (lambda: bench.tier.load(keys, pages[:1], own, ANN), lambda: bench.tier.offload(keys[:1], pages, own)):
        with pytest.raises(ValueError, match="one key per page"):
            call()
    assert bench.rows("cache", "load") == []


def test_a_page_that_a_load_reads_is_never_evicted(bench_of):
    bench = bench_of(host_pages=3)
    _, _, keys, _ = offloaded(bench, 1, ANN, 1, 2)
    seen = []
    copy = bench.memory.copy
    bench.tier._copy = lambda *args: (seen.append(bench.tier.evict(9)), copy(*args))[1]
    loaded(bench, 2, ANN, keys)
    assert seen == [0]
    assert bench.tier.evict(9) == 2


def test_what_is_evicted_from_the_device_can_go_to_the_tier_first(bench_of):
    bench = bench_of(pages=9)
    bench.cache.on_evict = lambda run, identity: bench.tier.offload(run.keys, run.pages, run.tags, identity)
    _, _, keys = bench.computed(1, ANN, 1, 2, 3)
    bench.cache.evict(1)
    bench.cache.evict(2)
    assert bench.tier.match(keys) == 3
    assert bench.memory.content["host"][[bench.tier._page_of[key] for key in keys.tolist()]].tolist() == keys.tolist()
    assert [row["tenant"] for row in bench.rows("cache", "offload", "evict")] == ["t-a"] * 4
    offload, evict = bench.rows("cache", "offload", "evict")[:2]
    [free] = bench.rows("pages", "free")[:1]
    assert offload["seq"] < evict["seq"] < free["seq"]
    assert_clean(bench, {})


def test_a_tier_key_that_leaves_the_tenant_out_shows_in_its_rows(bench_of):
    bench = bench_of()
    _, _, keys, _ = offloaded(bench, 1, ANN, 1, 2)
    count, *_ = loaded(bench, 2, BOB, keys)  # as if both had had these keys
    assert count == 2
    offload, hit = bench.rows("cache", "offload", "hit")
    assert offload["keys"] == hit["keys"]
    assert (offload["tenant"], hit["tenant"]) == ("t-a", "t-b")
    assert offload["salt_fp"] != hit["salt_fp"]


MOVES = st.lists(
    st.tuples(
        st.sampled_from(["offload", "load", "evict host", "evict device"]),
        st.lists(st.integers(0, 1), min_size=1, max_size=6),
        st.sampled_from([None, None, 0, 1]),
    ),
    max_size=25,
)


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(moves=MOVES, host_pages=st.integers(2, 14), batch=st.integers(1, 3))
def test_a_load_gives_exactly_what_was_offloaded(tmp_path_factory, moves, host_pages, batch):
    bench = CacheBench(tmp_path_factory.mktemp("game") / "ledger", 41, host_pages=host_pages, batch_pages=batch)
    for req, (move, prompt, fails) in enumerate(moves, start=1):
        keys = bench.of(ANN, *prompt)
        bench.memory.fail_at = None if fails is None else len(bench.memory.copies) + fails
        bench.cache.evict(len(keys) - bench.pool.free_pages)
        if move == "offload":
            offloaded(bench, req, ANN, *prompt)
        elif move == "evict host":
            bench.tier.evict(len(prompt))
        elif move == "evict device":
            bench.cache.evict(len(prompt))
        else:
            had = bench.tier.match(keys)
            count, pages, tag = loaded(bench, req, ANN, keys)
            assert count == had or (fails is not None and count < had)
            assert bench.memory.content["kv"][pages[:count]].tolist() == keys[:count].tolist()
            bench.pool.free(req, tag, pages, "finish")
        for key, page in bench.tier._page_of.items():
            assert bench.memory.content["host"][page] == key
        assert_clean(bench, {})
    rows = bench.rows("transfers")
    assert [row["op"] for row in rows[::2]] == ["post"] * (len(rows) // 2)
    assert all(
        end["op"] in ("done", "fail") and end["xfer"] == row["xfer"]
        for row, end in zip(rows[::2], rows[1::2], strict=True)
    )
    for op in ("offload", "load", "hit"):
        assert all(row["returned"] == row["n"] == len(row["keys"]) <= row["asked"] for row in bench.rows("cache", op))
    bench.close()


def test_a_big_tier_takes_long_prompts(tmp_path):
    bench = CacheBench(tmp_path / "ledger", 33_000, host_pages=70_001)
    for req in range(1, 5):
        keys = bench.keys.of(ANN, SegmentPrompt(((req, 31_250 * PAGE),)))
        bench.cache.evict(len(keys) - bench.pool.free_pages)
        pages, tag = bench.pool.reserve(req, len(keys))
        bench.cache.insert(req, ANN, keys, pages, np.full(len(keys), tag))
        assert bench.tier.offload(keys, pages, np.full(len(keys), tag), ANN) == len(keys)
    assert bench.tier.stored_pages == 70_000
    assert_clean(bench, {})
    bench.close()
