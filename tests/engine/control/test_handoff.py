"""The life of a request that goes well, and what the ledger says of it."""

import pytest
from control_bench import PAGE, pages_of

from engine.ledger.tag import make_tag, split_tag
from engine.role import Pace


def test_tokens_come_out_and_both_sides_come_to_rest(bench):
    engine = bench()
    engine.ask("r1", prompt=10, output=5)
    engine.run()
    assert engine.tokens("r1") == [11, 12, 13, 14, 15]
    assert engine.code("r1") == engine.code("r1", "prefill") == ""
    for role in (engine.prefill, engine.decode):
        assert role.running() == 0
        assert role.pool.counts()["free"] == role.pool.usable_pages
        assert role.pool.audit().wrong == ()


def test_decode_says_what_it_did_in_the_order_of_the_contract(bench):
    engine = bench()
    engine.ask("r1", prompt=10, output=2)
    engine.run()
    assert engine.story("decode") == [
        "requests/receive", "requests/admit", "requests/room", "pages/reserve", "transfers/grant",
        "transfers/ack received", "pages/receipt", "requests/commit", "pages/bind", "requests/first_token",
        "steps/decode", "checks/passed", "pages/unbind", "pages/free", "requests/finish",
    ]  # fmt: skip


def test_prefill_says_what_it_did_in_the_order_of_the_contract(bench):
    engine = bench()
    engine.ask("r1", prompt=10, output=2)
    engine.run()
    assert engine.story("prefill") == [
        "requests/receive", "requests/admit", "requests/room", "pages/reserve", "pages/write", "pages/bind",
        "steps/prefill", "requests/first_token", "transfers/post", "transfers/done", "transfers/ack sent",
        "pages/unbind", "pages/free", "requests/finish",
    ]  # fmt: skip


def test_a_transfer_is_posted_in_bounded_batches_of_whole_pages(bench):
    engine = bench(prefill_pages=33)
    engine.ask("r1", prompt=19 * PAGE - 1, output=1)
    engine.run()
    posts, dones = engine.rows("transfers", op="post"), engine.rows("transfers", op="done")
    (reserved,) = engine.rows("pages", "prefill", op="reserve")
    (granted,) = engine.rows("transfers", op="grant")
    assert [row["chunk"] for row in posts] == [row["chunk"] for row in dones] == [0, 1, 2]
    assert [row["n"] for row in posts] == [8, 8, 3]
    assert [page for row in posts for page in row["src_pages"]] == reserved["pages"]
    assert [page for row in posts for page in row["dst_pages"]] == granted["dst_pages"]
    assert [row["pos"] for row in posts] == [0, 8, 16]
    for row in (*posts, *dones):
        assert row["tokens"] is None  # whole page payloads move
        assert (row["xfer"], row["dst_tag"], row["src_tag"]) == (granted["xfer"], granted["dst_tag"], reserved["tag"])
        assert (row["peer"], row["dir"]) == ("decode-0", "push")
    assert sum(row["bytes"] for row in dones) == 19 * 64


def test_the_transfer_is_named_after_its_grant_row(bench):
    engine = bench()
    engine.ask("r1")
    engine.run()
    (grant,) = engine.rows("transfers", op="grant")
    assert grant["xfer"] == make_tag(2, grant["epoch"], grant["seq"])
    assert (grant["asked"], grant["writers"], grant["tokens"]) == (3, ["prefill-0"], 10)
    acks = engine.rows("transfers", op="ack")
    assert [(row["worker"], row["status"], row["outstanding"], row["xfer"]) for row in acks] == [
        ("decode-0", "received", 0, grant["xfer"]), ("prefill-0", "sent", 0, grant["xfer"]),
    ]  # fmt: skip


def test_ends_count_the_page_rows_and_name_the_last_token(bench):
    engine = bench()
    engine.ask("r1", prompt=10, output=6)
    engine.run()
    for role in ("prefill", "decode"):
        (end,) = engine.rows("requests", role, op="finish")
        assert end["page_rows"] == len(engine.rows("pages", role, req=1))
        assert end["status"] == "200"
    (end,) = engine.rows("requests", "decode", op="finish")
    assert end["output_tokens"] == 6
    passes = engine.rows("steps", "decode")
    assert passes[-1]["t_end"] < end["last_token"] <= end["t"]
    (prefill_end,) = engine.rows("requests", "prefill", op="finish")
    assert (prefill_end["output_tokens"], prefill_end["last_token"]) == (0, None)


def test_growth_appends_pages_and_says_when_one_is_full(bench):
    engine = bench()
    # Prompt of 2 pages; 9 output tokens write 8 slots more: pages 2 and 3, both full at the end.
    engine.ask("r1", prompt=2 * PAGE, output=2 * PAGE + 1)
    engine.run()
    appends, writes = engine.rows("pages", "decode", op="append"), engine.rows("pages", "decode", op="write")
    assert [row["pos"] for row in appends] == [2, 3]
    assert [(row["pos"], row["tokens"], row["since_seq"]) for row in writes] == [
        (2, PAGE, appends[0]["seq"]), (3, PAGE, appends[1]["seq"]),
    ]  # fmt: skip
    assert [row["pages"] for row in writes] == [row["pages"] for row in appends]
    assert [split_tag(row["tag"]).seq for row in appends] == [row["seq"] for row in appends]
    freed = engine.rows("pages", "decode", op="free")
    assert sorted(pages_of(freed)) == [1, 2, 3, 4]
    assert {row["cause"] for row in freed} == {"finish"}


def test_a_page_that_is_not_full_gets_no_write(bench):
    engine = bench()
    engine.ask("r1", prompt=2 * PAGE, output=PAGE)
    engine.run()
    assert len(engine.rows("pages", "decode", op="append")) == 1
    assert not engine.rows("pages", "decode", op="write")


def test_freed_pages_come_back_in_the_same_order_after_growth(bench):
    engine = bench()
    engine.ask("r1", prompt=2 * PAGE, output=2 * PAGE + 1)
    engine.run()
    engine.ask("r2", prompt=4 * PAGE, output=1)
    engine.run()
    first, second = engine.rows("pages", "decode", op="reserve")
    grown = pages_of(engine.rows("pages", "decode", op="append"))
    assert second["pages"] == first["pages"] + grown


def test_a_long_prompt_is_computed_in_chunks_that_bind_each_range(bench):
    prompt = Pace().chunk_tokens + 7
    engine = bench(prefill_pages=90, decode_pages=90, context=600)
    engine.ask("r1", prompt=prompt, output=1)
    engine.run()
    writes, binds = engine.rows("pages", "prefill", op="write"), engine.rows("pages", "prefill", op="bind")
    for rows in (writes, binds):
        assert [(row["pos"], row["tok_off"], row["tokens"]) for row in rows] == [
            (0, 0, Pace().chunk_tokens), (Pace().chunk_tokens // PAGE, 0, 7),
        ]  # fmt: skip
    steps = engine.rows("steps", "prefill")
    assert [(row["step"], row["n"], row["tokens"]) for row in steps] == [(1, 1, Pace().chunk_tokens), (2, 1, 7)]
    for step, write, bind in zip(steps, writes, binds, strict=True):
        assert step["since_seq"] == write["since_seq"] < write["seq"] < bind["seq"] < step["seq"]


def test_two_requests_share_passes(bench):
    engine = bench()
    engine.ask("r1", prompt=5, output=20)
    engine.ask("r2", prompt=6, output=20)
    engine.run()
    batches = [len(works) for kind, _, works in engine.executors["decode"].passes if kind == "decode"]
    assert max(batches) == 2
    assert engine.tokens("r1") == list(range(6, 26))
    assert engine.tokens("r2") == list(range(7, 27))


def test_step_runs_cover_every_pass_once_and_nothing_lies_inside_them(bench):
    engine = bench()
    engine.ask("r1", prompt=5, output=12)
    engine.until(lambda: len(engine.tokens("r1")) == 4)
    engine.ask("r2", prompt=6, output=9)
    engine.run()
    steps = engine.rows("steps", "decode")
    passes = len(engine.executors["decode"].passes)
    assert sum(row["n"] for row in steps) == passes
    expected = 1
    for row in steps:
        assert row["step"] == expected
        expected += row["n"]
        assert row["tokens"] == row["n"] * row["batch"]
        assert row["t"] <= row["t_end"]
    others = [
        row["seq"] for table in ("pages", "transfers", "workers", "requests") for row in engine.rows(table, "decode")
    ]
    for row in steps:
        if row["n"] > 1:
            assert not [seq for seq in others if row["since_seq"] < seq < row["seq"]]


def test_a_full_decode_pool_makes_requests_wait_their_turn(bench):
    engine = bench(decode_pages=6)
    for name in ("r1", "r2", "r3"):
        engine.ask(name, prompt=3 * PAGE, output=2)
    engine.run()
    for name in ("r1", "r2", "r3"):
        assert engine.tokens(name) == [3 * PAGE + 1, 3 * PAGE + 2]
    finishes = [row["req"] for row in engine.rows("requests", "decode", op="finish")]
    assert finishes == [1, 2, 3]


def test_no_request_is_started_whose_answer_would_not_fit_beside_the_others(bench):
    engine = bench(decode_pages=11)
    for name in ("r1", "r2", "r3"):
        engine.ask(name, prompt=2 * PAGE, output=3 * PAGE + 1)  # two pages each, growing to five
    engine.until(lambda: engine.tokens("r1"))
    assert len(engine.decode.prealloc) == 1  # ten pages: two requests with all that they may grow by
    engine.run()
    assert [engine.code(name) for name in ("r1", "r2", "r3")] == ["", "", ""]


def test_a_full_prefill_pool_makes_requests_wait_their_turn(bench):
    engine = bench(prefill_pages=4)
    for name in ("r1", "r2"):
        engine.ask(name, prompt=3 * PAGE, output=2)
    engine.run()
    assert [engine.code(name) for name in ("r1", "r2")] == ["", ""]


def test_out_of_pages_while_running_is_a_typed_error_for_that_request(bench):
    engine = bench(decode_pages=4, prefill_pages=8)
    engine.ask("r1", prompt=2 * PAGE, output=3 * PAGE)
    engine.run()
    assert engine.code("r1") == "out_of_pages"
    (end,) = engine.ends("r1")
    assert end.error.status == 503
    assert engine.decode.pool.counts()["free"] == 3


@pytest.mark.parametrize("first", ["prefill", "decode"])
def test_either_side_may_hear_of_a_room_first(bench, first):
    engine = bench()
    given = engine.ask("r1", roles=(first,))
    engine.run()
    other = "decode" if first == "prefill" else "prefill"
    getattr(engine, other).submit(given)
    engine.run()
    assert engine.tokens("r1") == [11, 12, 13]


def test_a_failed_write_is_told_and_ends_the_request(bench):
    engine = bench()
    engine.transport.auto = False
    engine.ask("r1")
    engine.until(lambda: engine.transport.queue)
    engine.transport.post()
    engine.transport.land(error="the wire broke")
    engine.run()
    assert engine.code("r1") == "transfer_failed"
    assert engine.decode.pool.counts()["free"] == engine.decode.pool.usable_pages
    (fail,) = engine.rows("transfers", op="fail")
    assert fail["status"] == "the wire broke"
    assert not engine.rows("transfers", op="done")


def test_a_peer_of_another_geometry_is_refused(bench):
    engine = bench()
    engine.transport.refuse = "pages of another shape"
    engine.ask("r1")
    engine.run()
    assert engine.code("r1") == "geometry_refused"
    assert engine.code("r1", "prefill") == "geometry_refused"


def test_a_live_request_id_or_room_cannot_be_taken(bench):
    engine = bench()
    given = engine.ask("r1", output=30)
    engine.until(lambda: engine.tokens("r1"))
    before = len(engine.tokens("r1"))
    engine.decode.submit(engine.given("r1"))
    engine.decode.submit(engine.given("r2", room=given.room))
    engine.turn()
    assert engine.ends("r1")[0].error.code == "request_id_in_use"
    assert engine.code("r2") == "room_in_use"
    engine.run()
    assert len(engine.tokens("r1")) == 30 > before


def test_an_unknown_bootstrap_address_is_refused(bench):
    engine = bench()
    engine.decode.submit(engine.given("r1", bootstrap="tcp://10.0.0.1:1"))
    engine.run()
    assert engine.code("r1") == "unknown_bootstrap"


def test_a_tick_says_when_it_is_next_due(bench):
    engine = bench()
    engine.ask("r1")
    engine.run()
    turn = engine.decode.tick()
    assert not turn.busy
    assert 0 < turn.wake_us - engine.clock.now_us() <= 1_000_000
    engine.clock.advance(turn.wake_us - engine.clock.now_us())
    gauges = len(engine.network.sent), engine.decode.recorder.seq
    engine.decode.tick()
    assert (len(engine.network.sent), engine.decode.recorder.seq) > gauges
