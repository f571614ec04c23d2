"""Aborts in every state, and pages that nobody gets before their writer has drained."""

import pytest
from control_bench import PAGE, pages_of


def stop_at(engine, moment):
    """Bring request r1 (6 prompt pages, 20 output tokens) to a moment of its life."""
    engine.transport.auto = False
    roles = ("decode",) if moment == "granted, prefill knows nothing" else ("prefill", "decode")
    if moment == "waiting for pages":
        engine.ask("hog", prompt=14 * PAGE, output=8)
        engine.until(lambda: engine.transport.write() and engine.transport.write())
        engine.until(lambda: engine.tokens("hog"))
    given = engine.ask("r1", prompt=6 * PAGE, output=20, roles=roles)
    if moment == "granted, prefill knows nothing":
        engine.until(lambda: engine.decode.transfers)
    elif moment == "waiting for pages":
        engine.until(lambda: engine.decode.prealloc)
    elif moment == "queued at prefill":
        engine.network.held.add("mem://prefill")
        engine.until(lambda: engine.decode.transfers)
    elif moment == "computed, nothing posted":
        engine.until(lambda: engine.transport.queue)
    elif moment == "a write under way":
        engine.until(lambda: engine.transport.queue)
        engine.transport.post()
    elif moment == "decoding":
        engine.until(engine.transport.write)
        engine.until(lambda: len(engine.tokens("r1")) == 5)
    return given


MOMENTS = [
    "waiting for pages", "granted, prefill knows nothing", "queued at prefill", "computed, nothing posted",
    "a write under way", "decoding",
]  # fmt: skip


@pytest.mark.parametrize("moment", MOMENTS)
def test_an_abort_ends_the_request_once_and_frees_everything(bench, moment):
    engine = bench(decode_pages=17, prefill_pages=33)
    given = stop_at(engine, moment)
    sent = len(engine.tokens("r1"))
    engine.decode.abort("r1")
    engine.prefill.abort("r1")
    engine.network.held.clear()
    engine.turn()
    if moment == "granted, prefill knows nothing":
        engine.prefill.submit(given)  # the other half of the request comes late
    if engine.transport.posted:
        engine.transport.land()
    engine.transport.auto = True
    engine.run()
    assert engine.code("r1") == "aborted"
    assert len(engine.tokens("r1")) <= sent + 1
    if engine.tokens("hog"):
        assert engine.code("hog") == ""
    for role in (engine.prefill, engine.decode):
        assert role.running() == 0
        assert role.pool.counts()["free"] == role.pool.usable_pages
        assert role.pool.audit().wrong == ()
    (end,) = engine.rows("requests", "decode", op="abort")
    assert (end["reason"], end["status"]) == ("aborted", "499")
    assert end["page_rows"] == len(engine.rows("pages", "decode", req=end["req"]))


def test_aborting_the_unknown_and_the_ended_does_nothing(bench):
    engine = bench()
    engine.ask("r1")
    engine.run()
    engine.decode.abort("r1")
    engine.decode.abort("nobody")
    engine.run()
    assert engine.code("r1") == ""
    assert not engine.rows("requests", "decode", op="abort")


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_an_abort_that_names_a_room_spares_a_namesake_in_another(bench, role):
    engine = bench()
    worker = getattr(engine, role)
    given = engine.ask("r1", prompt=3 * PAGE, output=20, roles=(role,))  # it waits for its other half
    engine.turn()
    worker.abort("r1", room=given.room + 1)
    engine.turn()
    assert worker.running() == 1
    worker.abort("r1", room=given.room)
    engine.turn()
    assert engine.code("r1", role) == "aborted"


def test_pages_are_held_until_the_writer_has_drained(bench):
    engine = bench(decode_pages=13)
    stop_at(engine, "a write under way")
    engine.decode.abort("r1")
    engine.ask("r2", prompt=7 * PAGE, output=1)
    for _ in range(20):
        engine.turn()
        assert engine.decode.pool.counts()["held"] == 6
        assert not engine.events["decode"]["r2"]  # 12 pages in all, 6 of them held: r2 waits for its 7
    assert engine.code("r1") == "aborted"  # the client is told at once
    engine.transport.land()
    engine.transport.auto = True
    engine.run()
    assert engine.tokens("r2") == [7 * PAGE + 1]
    assert engine.story("decode", 1) == [
        "requests/receive", "requests/admit", "requests/room", "pages/reserve", "transfers/grant",
        "transfers/abort sent", "pages/hold", "transfers/ack received", "transfers/ack received", "pages/free",
        "requests/abort",
    ]  # fmt: skip
    (hold,), frees = engine.rows("pages", op="hold"), engine.rows("pages", "decode", op="free", req=1)
    assert [(row["pages"], row["cause"]) for row in frees] == [(hold["pages"], "drained")]


def test_the_mover_tells_what_is_outstanding_and_then_that_nothing_is(bench):
    engine = bench(decode_pages=40, prefill_pages=40)
    engine.transport.auto = False
    engine.ask("r1", prompt=20 * PAGE, output=2)
    engine.until(lambda: engine.transport.queue)
    assert len(engine.transport.queue) == 3
    engine.transport.post()
    engine.decode.abort("r1")
    for _ in range(5):
        engine.turn()
    assert not engine.transport.queue  # the two batches that were not posted are dropped
    engine.transport.land()
    engine.run()
    sent = engine.rows("transfers", "prefill", op="ack")
    assert [(row["outstanding"], row["status"]) for row in sent] == [(1, "sent"), (0, "sent")]
    order = [row["op"] for row in engine.rows("transfers", "prefill") if row["op"] != "ack" or row["outstanding"] == 0]
    assert order == ["post", "abort", "done", "ack"]
    received = engine.rows("transfers", "decode", op="ack")
    assert [row["outstanding"] for row in received] == [1, 0]


def test_an_abort_that_crosses_with_success_releases_on_that_success(bench):
    engine = bench()
    engine.network.held.add("mem://decode")
    engine.ask("r1", prompt=2 * PAGE)
    for _ in range(20):
        engine.turn()
    assert engine.code("r1", "prefill") == ""
    engine.decode.abort("r1")
    engine.turn()
    assert engine.decode.pool.counts()["held"] == 2
    engine.network.held.clear()
    engine.run()
    assert engine.code("r1") == "aborted"
    assert engine.decode.pool.counts()["held"] == 0


def test_an_aborted_prompt_is_not_computed_to_its_end(bench):
    engine = bench(prefill_pages=400, decode_pages=400, context=2000)
    engine.ask("r1", prompt=1500, output=1)
    engine.until(lambda: engine.executors["prefill"].passes)
    engine.decode.abort("r1")
    engine.run()
    assert len(engine.executors["prefill"].passes) < 1500 // 256
    assert not engine.rows("transfers", op="post")
    unbound = engine.rows("pages", "prefill", op="unbind")
    bound = engine.rows("pages", "prefill", op="bind")
    assert sorted(set(pages_of(unbound))) == sorted(set(pages_of(bound)))
    freed = engine.rows("pages", "prefill", op="free")
    assert {row["cause"] for row in freed} == {"abort"}


def test_other_requests_go_on_through_an_abort(bench):
    engine = bench()
    engine.ask("r1", prompt=6, output=15)
    engine.ask("r2", prompt=7, output=15)
    engine.until(lambda: len(engine.tokens("r1")) == 3)
    engine.decode.abort("r1")
    engine.run()
    assert engine.tokens("r2") == list(range(8, 23))


def test_a_room_that_decode_gives_up_before_its_grant_does_not_keep_prefill_waiting(bench):
    engine = bench(decode_pages=5)
    engine.ask("r1", prompt=5 * PAGE)  # too long for decode, not for prefill
    engine.run()
    assert engine.code("r1") == engine.code("r1", "prefill") == "prompt_exceeds_pool"
    given = engine.ask("r2", prompt=5 * PAGE, roles=("decode",))
    engine.run()
    engine.prefill.submit(given)  # its other half comes late
    engine.run()
    assert engine.code("r2", "prefill") == "prompt_exceeds_pool"
    assert not engine.prefill.queue.requests
    assert not engine.prefill.queue.refused


def test_rooms_refused_by_both_are_forgotten(bench):
    engine = bench(decode_pages=5, prefill_pages=5)
    engine.ask("r1", prompt=5 * PAGE)
    engine.run()
    assert engine.code("r1") == engine.code("r1", "prefill") == "prompt_exceeds_pool"
    assert not engine.prefill.queue.refused


def test_paused_workers_hear_and_abort_but_begin_no_pass(bench):
    engine = bench()
    stop_at(engine, "decoding")
    for role in (engine.prefill, engine.decode):
        role.pause(True)
    engine.turn()
    passes = len(engine.executors["decode"].passes), len(engine.executors["prefill"].passes)
    engine.ask("r2")
    engine.run()
    assert (len(engine.executors["decode"].passes), len(engine.executors["prefill"].passes)) == passes
    assert len(engine.tokens("r1")) == 5 and not engine.ends("r2")
    engine.decode.abort("r1")
    engine.run()
    assert engine.code("r1") == "aborted"
    for role in (engine.prefill, engine.decode):
        role.pause(False)
    engine.transport.auto = True
    engine.run()
    assert engine.code("r2") == "" and len(engine.tokens("r2")) == 3
