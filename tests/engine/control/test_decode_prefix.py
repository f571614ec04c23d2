"""Decode's own prefix cache: what it need not be sent, what it keeps, and what it gives up for others."""

import pytest
from control_bench import PAGE, pages_of

from engine.metrics import RoleCollector, render
from engine.page_keys import Scope


@pytest.fixture
def engine(bench):
    return bench(decode_scope=Scope.TENANT)


def asked_twice(engine, prompt=3 * PAGE + 2, **changes):
    """Request r1, and r2 with the same prompt once it has ended."""
    engine.ask("r1", prompt=prompt, output=3)
    engine.run()
    engine.ask("r2", prompt=prompt, output=3, **changes)
    engine.run()
    assert engine.code("r1") == engine.code("r2") == ""


def test_what_decode_has_is_not_sent_again(engine):
    asked_twice(engine)
    assert engine.tokens("r2") == engine.tokens("r1") == [15, 16, 17]
    first, second = engine.rows("transfers", "decode", op="grant")
    assert (first["n"], first["tokens"], first["pos"]) == (4, 14, None)
    assert (second["n"], second["asked"], second["tokens"], second["pos"]) == (1, 1, 2, 3)
    (post,) = engine.rows("transfers", "prefill", op="post", xfer=second["xfer"])
    assert (post["dst_pages"], post["pos"], post["dst_tag"]) == (second["dst_pages"], 3, second["dst_tag"])
    computed = [row for row in engine.rows("pages", "prefill", op="write") if row["req"] == 2]
    assert pages_of(computed)[3:] == post["src_pages"], "the same page of prefill's table"
    commits = engine.rows("requests", "decode", op="commit")
    assert [(row["covered_tokens"], row["cached_tokens"]) for row in commits] == [(14, 0), (14, 0)]
    receipts = engine.rows("pages", "decode", op="receipt")
    assert [(row["pages"], row["tokens"]) for row in receipts] == [(first["dst_pages"], 14), (second["dst_pages"], 2)]
    engine.assert_accounted()


def test_a_table_is_bound_run_by_run(engine):
    asked_twice(engine)
    (insert,) = engine.rows("cache", "decode", op="insert")
    grant = engine.rows("transfers", "decode", op="grant")[1]
    binds = engine.rows("pages", "decode", op="bind", req=2)
    assert [(row["tag"], row["pages"], row["pos"], row["tokens"]) for row in binds] == [
        (insert["tag"], insert["pages"], 0, None), (grant["dst_tag"], grant["dst_pages"], 3, 2),
    ]  # fmt: skip
    unbound = engine.rows("pages", "decode", op="unbind", req=2)
    assert pages_of(unbound)[:4] == insert["pages"] + grant["dst_pages"]


def test_the_rows_of_a_hit_stand_in_the_order_of_the_contract(engine):
    asked_twice(engine)
    story = [row for row in engine.story("decode", 2) if row != "steps/decode"]
    assert story == [
        "requests/receive", "requests/admit", "requests/room", "cache/hit", "pages/share", "pages/reserve",
        "transfers/grant", "transfers/ack received", "pages/receipt", "requests/commit", "pages/bind", "pages/bind",
        "requests/first_token", "checks/passed", "pages/unbind", "pages/unbind", "pages/unshare", "pages/free",
        "requests/finish",
    ]  # fmt: skip
    (hit,) = engine.rows("cache", "decode", op="hit")
    assert (hit["asked"], hit["returned"], hit["tenant"], hit["pos"]) == (3, 3, "t-a", 0)


def test_full_pages_of_a_prompt_stay_where_its_answer_ended_well_and_no_others(engine):
    engine.ask("r1", prompt=2 * PAGE + 3, output=3 * PAGE)
    engine.ask("r2", prompt=3 * PAGE, output=40, tokens=tuple(range(100, 112)))
    engine.until(lambda: len(engine.tokens("r2")) > 20)
    engine.decode.abort("r2")
    engine.run()
    (insert,) = engine.rows("cache", "decode", op="insert")
    (grant,) = engine.rows("transfers", "decode", op="grant", req=1)
    assert (insert["req"], insert["pages"], insert["tag"]) == (1, grant["dst_pages"][:2], grant["dst_tag"])
    freed = engine.rows("pages", "decode", op="free")
    assert not set(insert["pages"]) & set(pages_of(freed))
    assert engine.decode.pool.counts() | {"free": 0} == {
        "free": 0, "used": 0, "cached": 2, "shared": 0, "held": 0, "quarantined": 0,
    }  # fmt: skip
    engine.assert_accounted()


def test_a_prompt_that_is_there_whole_is_sent_its_last_page(engine):
    asked_twice(engine, prompt=3 * PAGE)
    grant = engine.rows("transfers", "decode", op="grant")[1]
    assert (grant["n"], grant["tokens"], grant["pos"]) == (1, PAGE, 2)
    (first, _) = engine.rows("transfers", "decode", op="grant")
    freed = engine.rows("pages", "decode", op="free", req=2)
    assert grant["dst_pages"][0] in pages_of(freed), "the cache has that page already"
    assert engine.decode.pool.counts()["cached"] == 3 == len(first["dst_pages"])


def test_a_longer_prompt_adds_to_what_is_there(engine):
    engine.ask("r1", prompt=2 * PAGE + 1, output=2)
    engine.run()
    engine.ask("r2", prompt=4 * PAGE + 1, output=2)
    engine.run()
    engine.ask("r3", prompt=6 * PAGE, output=2)
    engine.run()
    hits = engine.rows("cache", "decode", op="hit", req=3)
    assert [(row["pos"], row["n"]) for row in hits] == [(0, 2), (2, 2)]
    inserts = engine.rows("cache", "decode", op="insert")
    assert [(row["req"], row["pos"], row["n"]) for row in inserts] == [(1, 0, 2), (2, 2, 2), (3, 4, 2)]
    assert hits[1]["tag"] == inserts[1]["tag"]


@pytest.mark.parametrize(
    ("scope", "asked", "found"),
    [
        (Scope.TENANT, {"tenant": "t-b"}, 0),
        (Scope.TENANT, {"user": "u"}, 3),
        (Scope.USER, {"user": "u"}, 0),
        (Scope.ORGANISATION, {"tenant": "t-b"}, 3),
        (Scope.SHARED, {"tenant": "t-b", "organisation": "other"}, 3),
        (Scope.SHARED, {"adapter": "poet"}, 0),
    ],
)
def test_who_finds_whose(bench, scope, asked, found):
    engine = bench(decode_scope=scope)
    asked_twice(engine, **asked)
    assert sum(row["returned"] for row in engine.rows("cache", "decode", op="hit")) == found
    assert engine.rows("transfers", "decode", op="grant")[1]["n"] == 4 - found


def test_without_a_cache_nothing_is_found_or_kept(bench):
    engine = bench()
    asked_twice(engine)
    assert not engine.rows("cache")
    assert [row["pos"] for row in engine.rows("transfers", "decode", op="grant")] == [None, None]
    assert not any("head_tokens" in message for _, _, message in engine.network.sent)


def test_two_at_once_read_the_same_pages_and_none_is_evicted_under_them(bench):
    engine = bench(decode_scope=Scope.TENANT, decode_pages=13)
    engine.ask("r1", prompt=4 * PAGE + 1, output=2)
    engine.run()
    for rid in ("r2", "r3"):
        engine.ask(rid, prompt=4 * PAGE + 1, output=20)
    engine.until(lambda: engine.tokens("r2") and engine.tokens("r3"))
    assert engine.decode.pool.counts()["shared"] == 4
    engine.ask("r4", prompt=6 * PAGE, output=1, tokens=tuple(range(100, 124)))
    engine.until(lambda: engine.decode.prealloc)
    for _ in range(5):
        engine.turn()
        engine.assert_accounted()
    assert engine.decode.prealloc, "two of its six pages are being read"
    engine.run()
    assert [engine.code(rid) for rid in ("r2", "r3", "r4")] == ["", "", ""]
    shares = [row["req"] for row in engine.rows("pages", "decode", op="share")]
    assert shares == [2, 3]
    engine.assert_accounted()


def test_pages_that_nobody_reads_are_evicted_before_anybody_waits(bench):
    engine = bench(decode_scope=Scope.TENANT, decode_pages=13)
    texts = [tuple(range(20 * i, 20 * i + 3 * PAGE + 1)) for i in range(1, 6)]
    for i, text in enumerate(texts):
        engine.ask(f"r{i}", tokens=text, output=2)
        engine.run()
    assert all(engine.code(f"r{i}") == "" for i in range(5))
    gone = [key for row in engine.rows("cache", "decode", op="evict") for key in row["keys"][::-1]]
    filed = [key for row in engine.rows("cache", "decode", op="insert") for key in row["keys"][::-1]]
    assert len(filed) == 15 and gone == filed[: len(gone)], "what was used longest ago goes first, from its end"
    assert len(gone) == 15 - engine.decode.pool.counts()["cached"] == 4


def test_what_is_found_is_not_counted_as_room_for_the_rest(bench):
    engine = bench(decode_scope=Scope.TENANT, decode_pages=9, prefill_pages=33)
    engine.ask("r1", prompt=4 * PAGE + 1, output=1)
    engine.run()
    assert engine.decode.pool.counts()["cached"] == 4
    engine.ask("hog", tokens=tuple(range(100, 110)), output=1)
    engine.transport.auto = False
    engine.until(lambda: engine.transport.queue)  # three of the four free pages are taken
    engine.ask("r2", prompt=4 * PAGE + 1, output=2 * PAGE)  # has four of its seven, and three are not free
    for _ in range(5):
        engine.turn()
    assert engine.decode.prealloc
    engine.transport.auto = True
    engine.run()
    assert engine.code("r2") == engine.code("hog") == ""
    engine.assert_accounted()


def test_a_request_that_grows_evicts_rather_than_ends(bench):
    engine = bench(decode_scope=Scope.TENANT, decode_pages=9, prefill_pages=33)
    engine.ask("r1", prompt=4 * PAGE + 1, output=1)
    engine.run()
    engine.ask("r2", tokens=tuple(range(100, 104)), output=7 * PAGE)
    engine.run()
    assert engine.code("r2") == "" and len(engine.tokens("r2")) == 7 * PAGE
    assert sum(row["n"] for row in engine.rows("cache", "decode", op="evict")) == 4
    engine.assert_accounted()


def test_an_aborted_handoff_holds_its_own_pages_and_unlocks_the_others_at_once(engine):
    engine.ask("r1", prompt=5 * PAGE + 1, output=1)
    engine.run()
    engine.transport.auto = False
    engine.ask("r2", prompt=8 * PAGE, output=20)
    engine.until(lambda: engine.transport.queue)
    engine.transport.post()
    assert engine.decode.pool.counts()["shared"] == 5
    engine.decode.abort("r2")
    engine.turn()
    counts = engine.decode.pool.counts()
    assert (counts["held"], counts["shared"], counts["cached"]) == (3, 0, 5)
    engine.assert_accounted()
    assert engine.decode.prefix.make_room(engine.decode.pool.usable_pages - 3), "nothing locks what it had of the cache"
    engine.transport.land()
    engine.run()
    assert engine.decode.pool.counts()["free"] == engine.decode.pool.usable_pages
    (hold,), grant = engine.rows("pages", "decode", op="hold"), engine.rows("transfers", "decode", op="grant")[1]
    assert (hold["pages"], hold["tag"]) == (grant["dst_pages"], grant["dst_tag"])
    frees = engine.rows("pages", "decode", op="free", req=2)
    assert [(row["pages"], row["cause"]) for row in frees] == [(hold["pages"], "drained")]
    (unshare,) = engine.rows("pages", "decode", op="unshare", req=2)
    assert unshare["seq"] < hold["seq"]


def test_a_handoff_that_fails_gives_back_its_own_pages_alone(engine):
    engine.ask("r1", prompt=3 * PAGE + 1, output=1)
    engine.run()
    engine.transport.auto = False
    engine.ask("r2", prompt=5 * PAGE, output=5)
    engine.until(lambda: engine.transport.queue)
    engine.transport.post()
    engine.transport.land(error="broken")
    engine.transport.auto = True
    engine.run()
    assert engine.code("r2") == "transfer_failed"
    counts = engine.decode.pool.counts()
    assert (counts["cached"], counts["shared"], counts["used"]) == (3, 0, 0)
    engine.assert_accounted()


def test_a_waiting_request_that_is_aborted_leaves_no_keys_behind(bench):
    engine = bench(decode_scope=Scope.TENANT, decode_pages=9)
    engine.ask("hog", prompt=6 * PAGE, output=5)
    engine.ask("r1", prompt=6 * PAGE, output=5)
    engine.until(lambda: engine.decode.prealloc)
    engine.decode.abort("r1")
    engine.run()
    cache = engine.decode.parts.prefix
    assert engine.code("r1") == "aborted" and not cache._asked and not cache._taken


def test_a_retracted_request_takes_a_copy_of_what_it_read_and_comes_back_with_pages_of_its_own(bench):
    engine = bench(decode_scope=Scope.TENANT, decode_pages=11, host_pages=33, reserved_tokens=1)
    engine.ask("r0", prompt=2 * PAGE + 1, output=1)
    engine.run()
    for rid in ("r1", "r2"):
        engine.ask(rid, prompt=3 * PAGE, output=20)
    engine.until(lambda: engine.decode.retraction.waiting)
    retracted = engine.decode.retraction.waiting[0]
    assert retracted.cached_pages == 0
    engine.assert_accounted()
    engine.run()
    assert [len(engine.tokens(rid)) for rid in ("r1", "r2")] == [20, 20]
    assert engine.tokens("r1") == engine.tokens("r2")
    assert engine.decode.parts.host.counts()["free"] == 32
    req = retracted.req
    moves = [row for row in engine.rows("transfers", "decode", op="done") if row["req"] == req]
    out, back = ([row for row in moves if row["dst_pool"] == pool] for pool in ("host", "kv"))
    (share,) = engine.rows("pages", "decode", op="share", req=req)
    assert pages_of([share]) == out[0]["src_pages"] and out[0]["src_tag"] == share["tag"]
    assert sum(row["n"] for row in out) == back[0]["n"] >= 3
    (unshare,) = engine.rows("pages", "decode", op="unshare", req=req)
    assert out[-1]["seq"] < unshare["seq"] < back[0]["seq"]
    assert not set(pages_of([share])) & set(pages_of(engine.rows("pages", "decode", op="free", cause="retract")))
    (bind,) = [row for row in engine.rows("pages", "decode", op="bind", req=req) if row["seq"] > back[0]["seq"]]
    assert bind["tag"] == back[0]["dst_tag"]
    assert engine.decode.pool.counts()["cached"] == 3, "what is there already is not filed a second time"
    engine.assert_accounted()


def test_a_retracted_request_that_is_aborted_leaves_nothing(bench):
    engine = bench(decode_scope=Scope.TENANT, decode_pages=11, host_pages=33, reserved_tokens=1)
    for rid in ("r1", "r2"):
        engine.ask(rid, prompt=3 * PAGE, output=24)
    engine.until(lambda: engine.decode.retraction.waiting)
    engine.decode.abort(engine.decode.retraction.waiting[0].given.rid)
    engine.run()
    assert engine.decode.parts.host.counts()["free"] == 32
    assert not engine.decode.parts.prefix._taken
    engine.assert_accounted()


def test_a_retracted_request_comes_back_to_pages_that_are_evicted_for_it(bench):
    engine = bench(decode_scope=Scope.TENANT, decode_pages=9, host_pages=33, reserved_tokens=1)
    engine.ask("r0", prompt=5 * PAGE + 1, output=1)
    engine.run()
    for rid in ("r1", "r2"):  # five pages that both read, and three to grow into
        engine.ask(rid, prompt=5 * PAGE + 1, output=8)
    engine.run()
    assert [len(engine.tokens(rid)) for rid in ("r1", "r2")] == [8, 8]
    (resume,) = engine.rows("requests", "decode", op="resume")
    (back,) = [row for row in engine.rows("transfers", "decode", op="post") if row["src_pool"] == "host"]
    evicted = [row for row in engine.rows("cache", "decode", op="evict") if row["seq"] < back["seq"]]
    assert back["n"] == 7 and sum(row["n"] for row in evicted) == 4
    assert back["req"] == resume["req"]
    engine.assert_accounted()


def test_with_scrubbing_what_is_evicted_is_zeroed_and_what_is_read_is_not(bench):
    engine = bench(decode_scope=Scope.TENANT, decode_pages=9, scrub=True)
    asked_twice(engine)
    scrubbed = engine.executors["decode"].scrubbed
    kept = engine.decode.pool.pages_in(3).tolist()
    assert len(kept) == 3 and not set(kept) & set(scrubbed)
    engine.ask("r3", tokens=tuple(range(100, 100 + 6 * PAGE)), output=1)
    engine.run()
    assert set(kept) & set(scrubbed), "before they go to somebody else"
    evicted = pages_of(engine.rows("cache", "decode", op="evict"))
    frees = [row for row in engine.rows("pages", "decode", op="free", cause="evict")]
    scrubs = engine.rows("pages", "decode", op="scrub")
    for free in frees:
        assert any(row["pages"] == free["pages"] and row["seq"] < free["seq"] for row in scrubs)
    assert evicted


def test_metrics_tell_what_decode_found(engine):
    engine.ask("r1", prompt=3 * PAGE + 2, output=1)
    engine.run()
    engine.ask("r2", prompt=3 * PAGE + 2, output=9)
    engine.until(lambda: engine.tokens("r2"))
    text = render(RoleCollector(engine.decode)).decode()
    for line in (
        "kvwitness_prefix_hit_tokens_total 12.0", "kvwitness_prefix_asked_tokens_total 28.0",
        "kvwitness_shared_pages 3.0", "kvwitness_cached_pages 0.0",
    ):  # fmt: skip
        assert f"\n{line}\n" in text
    assert "kvwitness_prefix_hit_tokens" not in render(RoleCollector(engine.prefill)).decode()


def test_a_gauge_counts_what_is_being_sent(engine):
    engine.ask("r1", prompt=3 * PAGE + 2, output=1)
    engine.run()
    engine.transport.auto = False
    engine.ask("r2", prompt=5 * PAGE, output=1)
    engine.until(lambda: engine.transport.queue)
    engine.clock.advance(engine.decode.parts.pace.gauge_us)
    engine.turn()
    sample = engine.rows("gauges", "decode")[-1]
    assert (sample["in_transfer"], sample["shared"], sample["used"]) == (2, 3, 2)
