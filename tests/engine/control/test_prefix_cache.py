import numpy as np
import pytest
from cache_bench import ANN, BOB, PAGE, CacheBench
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from engine.block_pool import NotOwned
from engine.page_keys import ALL_FIELDS, SegmentPrompt
from engine.prefix_cache import StaleMatch


@pytest.fixture
def bench_of(tmp_path):
    made = []

    def build(**settings):
        made.append(CacheBench(tmp_path / f"ledger-{len(made)}", **settings))
        return made[-1]

    yield build
    for each in made:
        each.close()


# The cache against a dictionary


class CacheGame(RuleBasedStateMachine):
    """Requests of two tenants that come, share, leave pages behind, end or abort in any order."""

    live = Bundle("live")
    prompts = st.lists(st.integers(0, 1), min_size=1, max_size=7)

    @initialize(pages=st.integers(4, 24))
    def begin(self, pages):
        self.bench = CacheBench(self.make_directory(), pages)
        self.pool, self.cache = self.bench.pool, self.bench.cache
        self.cache.on_evict = self.note_evicted
        self.model, self.name_of, self.tables, self.locks, self.next_req = {}, {}, {}, {}, 1

    def note_evicted(self, run, identity):
        locked = {page for locks in self.locks.values() for lock in locks for page in lock.match.pages.tolist()}
        # From the end: nothing is evicted before what follows it.
        for key, page, tag in list(zip(run.keys.tolist(), run.pages.tolist(), run.tags.tolist(), strict=True))[::-1]:
            assert page not in locked
            assert self.pool.owner_tag(page) == tag, "content is still there when an eviction is told"
            name = self.name_of[key]
            assert name[0] == identity
            assert self.model.pop(name) == page
            assert not [other for other in self.model if other[0] == name[0] and other[1][: len(name[1])] == name[1]]

    def keys_of(self, identity, prompt):
        keys = self.bench.of(identity, *prompt)
        for count, key in enumerate(keys.tolist(), start=1):
            name = identity, tuple(prompt[:count])
            assert self.name_of.setdefault(key, name) == name
        return keys

    def expected(self, identity, prompt):
        found = []
        while len(found) < len(prompt) and (identity, tuple(prompt[: len(found) + 1])) in self.model:
            found.append(self.model[identity, tuple(prompt[: len(found) + 1])])
        return found

    @rule(target=live, identity=st.sampled_from([ANN, BOB]), prompt=prompts)
    def start(self, identity, prompt):
        keys = self.keys_of(identity, prompt)
        match = self.cache.match_prefix(keys)
        assert match.pages.tolist() == self.expected(identity, prompt)
        assert self.cache.cached_tokens(match) == PAGE * len(match)
        req, self.next_req = self.next_req, self.next_req + 1
        lock = self.cache.lock(match, req, identity)
        self.locks[req] = [lock]
        count = len(keys) + 1 - len(match)  # the last page is not full
        if count > self.pool.free_pages:
            self.evict(count - self.pool.free_pages)
        if count > self.pool.free_pages:
            self.end(req)
            return None
        own, tag = self.pool.reserve(req, count)
        table = np.concatenate([match.pages, own])
        tags = np.concatenate([match.tags, np.full(count, tag)])
        self.tables[req] = table
        return req, identity, prompt, keys, table, tags

    def end(self, req):
        for lock in self.locks.pop(req):
            self.cache.unlock(lock)
        self.tables.pop(req, None)

    def free(self, req, pages, tags):
        for page, tag in zip(pages, tags, strict=True):
            self.pool.free(req, int(tag), np.array([page], np.int32), "finish")

    def insert(self, request, count, keep):
        req, identity, prompt, keys, table, tags = request
        here = self.expected(identity, prompt[:count])
        inserted = self.cache.insert(req, identity, keys[:count], table[:count], tags[:count], keep=keep)
        assert inserted.pos == len(here)
        assert inserted.new.pages.tolist() == table[len(here) : count].tolist()
        assert inserted.duplicates.tolist() == [p for p, q in zip(table.tolist(), here, strict=False) if p != q]
        for place in range(len(here), count):
            self.model[identity, tuple(prompt[: place + 1])] = int(table[place])
        return inserted

    @rule(request=consumes(live))
    def finish(self, request):
        if request is None:
            return
        req, _, _, keys, table, tags = request
        if req not in self.tables:
            return
        inserted = self.insert(request, len(keys), keep=False)
        self.free(req, inserted.duplicates, inserted.duplicate_tags)
        self.free(req, table[len(keys) :], tags[len(keys) :])
        self.end(req)

    @rule(request=live, part=st.integers(0, 7))
    def leave_pages_while_running(self, request, part):
        if request is not None and request[0] in self.tables:
            inserted = self.insert(request, min(part, len(request[3])), keep=True)
            self.locks[request[0]].append(inserted.lock)

    @rule(request=consumes(live))
    def abort(self, request):
        if request is None or request[0] not in self.tables:
            return
        req, _, _, _, table, tags = request
        mine = [i for i, page in enumerate(table.tolist()) if page not in self.model.values()]
        kept = [i for i in range(len(table)) if i not in mine]
        for i in kept:
            with pytest.raises(NotOwned):
                self.pool.free(req, int(tags[i]), table[i : i + 1], "abort")
        self.free(req, table[mine], tags[mine])
        self.end(req)

    @rule(count=st.integers(0, 9))
    def evict(self, count):
        could = self.cache.evictable_pages
        assert self.cache.evict(count) == min(count, could)

    @invariant()
    def everything_is_accounted_for(self):
        self.bench.assert_clean(self.tables)
        counts = self.pool.counts()
        assert self.cache.cached_pages == len(self.model) == counts["cached"] + counts["shared"]
        assert counts["shared"] <= self.cache.protected_pages
        locked = {page for locks in self.locks.values() for lock in locks for page in lock.match.pages.tolist()}
        assert counts["shared"] == len(locked)

    def teardown(self):
        for req in list(self.locks):
            self.end(req)
        assert self.cache.protected_pages == 0
        self.evict(99)
        assert not self.model
        self.bench.close()


@pytest.fixture(autouse=True)
def game_directory(tmp_path_factory):
    CacheGame.make_directory = staticmethod(lambda: tmp_path_factory.mktemp("game") / "ledger")


CacheGame.TestCase.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
TestCacheGame = CacheGame.TestCase


# Locks, eviction and rows


IDENTITY_COLUMNS = {"tenant": "t-a", "weights": "w", "kv_format": "f32"}


def common(bench, identity=ANN):
    salt = bench.keys.salt_fp(identity)
    return {"tier": "device", "component": "kv", "pool": "kv", "salt_fp": salt, **IDENTITY_COLUMNS}


def without(row, *names):
    return {k: v for k, v in row.items() if k not in ("worker", "epoch", "seq", "prev", "t", *names)}


def test_a_hit_names_the_taker_and_every_tag_it_takes_from(bench_of):
    bench = bench_of()
    first, tag, _ = bench.computed(1, ANN, 1, 2)
    _, tag2, keys = bench.computed(2, ANN, 1, 2, 3)
    match = bench.cache.match_prefix(bench.of(ANN, 1, 2, 3, 4, 5))
    lock = bench.cache.lock(match, 3, ANN)
    bench.cache.unlock(lock)
    shared = int(match.pages[2])
    hits = bench.rows("cache", "hit")
    assert [without(row) for row in hits] == [
        common(bench)
        | {"op": "hit", "req": 3, "keys": keys[:2].tolist(), "tag": tag, "pages": first.tolist(), "pos": 0, "n": 2,
           "asked": 2, "returned": 2},
        common(bench)
        | {"op": "hit", "req": 3, "keys": keys[2:].tolist(), "tag": tag2, "pages": [shared], "pos": 2, "n": 1,
           "asked": 3, "returned": 1},
    ]  # fmt: skip
    assert (sum(row["asked"] for row in hits), sum(row["returned"] for row in hits)) == (5, 3)
    locks = bench.rows("pages", "share", "unshare")
    assert [(row["op"], row["req"], row["tag"], row["pages"], row.get("pos")) for row in locks] == [
        (op, 3, *rest) for op in ("share", "unshare") for rest in ((tag, first.tolist(), 0), (tag2, [shared], 2))
    ]
    assert max(row["seq"] for row in hits) < locks[0]["seq"]


def test_only_what_is_new_is_inserted_and_what_was_there_is_handed_back(bench_of):
    bench = bench_of()
    bench.computed(1, ANN, 1, 2)
    keys = bench.of(ANN, 1, 2, 3, 4)
    match = bench.cache.match_prefix(keys[:1])
    lock = bench.cache.lock(match, 2, ANN)
    own, tag = bench.pool.reserve(2, 3)
    table, tags = np.concatenate([match.pages, own]), np.concatenate([match.tags, np.full(3, tag)])
    inserted = bench.cache.insert(2, ANN, keys, table, tags)
    assert inserted.duplicates.tolist() == own[:1].tolist(), "the page that it shares is no duplicate"
    assert inserted.duplicate_tags.tolist() == [tag]
    assert (inserted.pos, inserted.new.pages.tolist()) == (2, own[1:].tolist())
    bench.pool.free(2, tag, inserted.duplicates, "finish")
    bench.cache.unlock(lock)
    row = bench.rows("cache", "insert")[-1]
    assert without(row) == common(bench) | {
        "op": "insert", "req": 2, "keys": keys[2:].tolist(), "tag": tag, "pages": own[1:].tolist(), "pos": 2, "n": 2,
    }  # fmt: skip
    bench.assert_clean({})


def test_an_eviction_is_told_and_ends_the_pages(bench_of):
    bench = bench_of()
    pages, tag, keys = bench.computed(1, ANN, 1, 2, 3)
    assert bench.cache.evict(2) == 2
    row = bench.rows("cache", "evict")[-1]
    assert without(row) == common(bench) | {
        "op": "evict", "keys": keys[1:].tolist(), "tag": tag, "pages": pages[1:].tolist(), "pos": 0, "n": 2,
    }  # fmt: skip
    free = bench.rows("pages", "free")[-1]
    assert (free["cause"], free["tag"], free["pages"], "req" in free) == ("evict", tag, pages[1:].tolist(), False)
    assert bench.cache.match_prefix(keys).pages.tolist() == pages[:1].tolist()


def test_the_leaf_used_longest_ago_goes_first_and_its_end_before_its_beginning(bench_of):
    bench = bench_of()
    gone = []
    bench.cache.on_evict = lambda run, identity: gone.extend(run.keys.tolist())
    old, new, other = ([1, 2, 3], [1, 2, 4], [5, 6])
    for req, prompt in enumerate((old, new, other), start=1):
        bench.computed(req, ANN, *prompt)
    keys = {tuple(p): bench.of(ANN, *p).tolist() for p in (old, new, other)}
    bench.cache.unlock(bench.cache.lock(bench.cache.match_prefix(bench.of(ANN, *old)), 9, ANN))
    for _ in range(6):
        assert bench.cache.evict(1) == 1
    assert gone == [keys[1, 2, 4][2], keys[5, 6][1], keys[5, 6][0], keys[1, 2, 3][2], *keys[1, 2, 3][1::-1]]
    assert bench.cache.evict(1) == 0


def test_looking_changes_nothing(bench_of):
    bench = bench_of()
    keys = [bench.computed(req, ANN, req)[2] for req in (1, 2)]
    before = bench.recorder.seq
    assert len(bench.cache.match_prefix(keys[0])) == 1
    assert bench.recorder.seq == before
    bench.cache.evict(1)
    assert [len(bench.cache.match_prefix(each)) for each in keys] == [0, 1]


def test_what_is_locked_stays_and_what_follows_it_goes(bench_of):
    bench = bench_of(pages=7)
    pages, _, keys = bench.computed(1, ANN, 1, 2, 3, 4, 5)
    lock = bench.cache.lock(bench.cache.match_prefix(keys).head(2), 2, ANN)
    assert (bench.cache.protected_pages, bench.cache.evictable_pages) == (2, 3)
    assert bench.cache.evict(99) == 3
    assert bench.cache.match_prefix(keys).pages.tolist() == pages[:2].tolist()
    bench.cache.unlock(lock)
    assert bench.cache.evict(99) == 2
    bench.assert_clean({})


def test_a_match_that_was_evicted_cannot_be_locked(bench_of):
    bench = bench_of(pages=4)
    _, _, keys = bench.computed(1, ANN, 1, 2, 3)
    match = bench.cache.match_prefix(keys)
    bench.cache.evict(1)
    with pytest.raises(StaleMatch, match="1 of 3"):
        bench.cache.lock(match, 2, ANN)
    bench.cache.evict(2)
    bench.computed(3, ANN, 1, 2, 3)  # the same keys and pages again, under another tag
    with pytest.raises(StaleMatch, match="3 of 3"):
        bench.cache.lock(match, 2, ANN)
    assert bench.rows("cache", "hit") == []
    assert bench.pool.counts()["shared"] == 0


def test_nothing_found_is_a_lock_without_rows(bench_of):
    bench = bench_of()
    lock = bench.cache.lock(bench.cache.match_prefix(bench.of(ANN, 1)), 1, ANN)
    bench.cache.unlock(lock)
    assert bench.rows("cache") == bench.rows("pages") == []


def test_a_lock_is_undone_once(bench_of):
    bench = bench_of()
    _, _, keys = bench.computed(1, ANN, 1)
    lock = bench.cache.lock(bench.cache.match_prefix(keys), 2, ANN)
    bench.cache.unlock(lock)
    with pytest.raises(ValueError, match="a second time"):
        bench.cache.unlock(lock)
    bench.assert_clean({})


def test_pages_a_request_goes_on_using_are_locked_without_a_share(bench_of):
    bench = bench_of()
    keys = bench.of(ANN, 1, 2)
    pages, tag = bench.pool.reserve(1, 2)
    inserted = bench.cache.insert(1, ANN, keys, pages, np.full(2, tag), keep=True)
    assert bench.cache.evict(9) == 0
    bench.assert_clean({1: pages})
    bench.cache.unlock(inserted.lock)
    assert bench.cache.evict(9) == 2
    assert bench.rows("pages", "share", "unshare") == bench.rows("cache", "hit") == []


def test_a_request_cannot_file_pages_of_another(bench_of):
    bench = bench_of()
    pages, tag = bench.pool.reserve(1, 2)
    keys = bench.of(ANN, 1, 2)
    with pytest.raises(NotOwned):
        bench.cache.insert(2, ANN, keys, pages, np.full(2, tag))
    with pytest.raises(ValueError, match="one of each"):
        bench.cache.insert(1, ANN, keys[:1], pages, np.full(2, tag))
    assert bench.rows("cache") == []
    assert len(bench.cache.match_prefix(keys)) == 0


def test_tenants_do_not_meet_unless_the_key_leaves_them_out(bench_of):
    strict, careless = bench_of(), bench_of(fields=ALL_FIELDS.without("tenant"))
    for bench, found in ((strict, 0), (careless, 2)):
        bench.computed(1, ANN, 1, 2)
        match = bench.cache.match_prefix(bench.of(BOB, 1, 2))
        assert len(match) == found
        bench.cache.unlock(bench.cache.lock(match, 2, BOB))
    insert, hit = careless.rows("cache", "insert", "hit")
    assert insert["keys"] == hit["keys"]
    assert (insert["tenant"], hit["tenant"]) == ("t-a", "t-b")
    assert insert["salt_fp"] != hit["salt_fp"]


def test_a_lock_that_is_left_out_shows_in_the_audit(bench_of):
    bench = bench_of()
    pages, _, keys = bench.computed(1, ANN, 1, 2)
    bench.cache._take_lock = lambda lock: None
    lock = bench.cache.lock(bench.cache.match_prefix(keys), 2, ANN)
    assert [f.page for f in bench.pool.audit({2: pages}).findings] == pages.tolist()
    assert bench.cache.evict(2) == 2, "nothing protects it"
    bench.cache.unlock(lock)
    bench.assert_clean({})


def test_a_big_pool_serves_long_prompts_and_many_requests(tmp_path):
    bench = CacheBench(tmp_path / "ledger", pages=40_001)
    long = SegmentPrompt(((1, 31_250 * PAGE),))
    keys = bench.keys.of(ANN, long)
    pages, tag = bench.pool.reserve(1, len(keys))
    bench.cache.insert(1, ANN, keys, pages, np.full(len(keys), tag))
    for req in range(2, 1002):
        prompt = SegmentPrompt(((req % 50, 16 * PAGE), (1000 + req, 16 * PAGE)))
        keys = bench.keys.of(ANN, prompt)
        match = bench.cache.match_prefix(keys)
        lock = bench.cache.lock(match, req, ANN)
        count = len(keys) - len(match)
        bench.cache.evict(count - bench.pool.free_pages)
        own, tag = bench.pool.reserve(req, count)
        table, tags = np.concatenate([match.pages, own]), np.concatenate([match.tags, np.full(count, tag)])
        bench.cache.insert(req, ANN, keys, table, tags)
        bench.cache.unlock(lock)
    assert bench.cache.cached_pages == 40_000
    bench.assert_clean({})
    bench.close()
