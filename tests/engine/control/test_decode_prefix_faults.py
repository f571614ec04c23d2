"""Faults and defences beside decode's own prefix cache: what they reach of it, and what they leave alone."""

import pytest
from control_bench import PAGE, pages_of

from engine.defences import DETECTORS
from engine.page_keys import Scope

OFF = dict.fromkeys(DETECTORS, "off")
HEAD = 3  # pages that the first request leaves behind


def warmed(bench, **settings):
    """An engine whose decode worker has the first three pages of every prompt."""
    engine = bench(decode_scope=Scope.TENANT, **settings)
    engine.ask("r1", prompt=HEAD * PAGE + 1, output=1)
    engine.run()
    assert engine.decode.pool.counts()["cached"] == HEAD
    return engine


@pytest.mark.parametrize("mode", ["off", "log", "enforce"])
def test_what_decode_had_counts_as_covered_and_nothing_else_does(bench, mode):
    engine = warmed(bench, defences={**OFF, "covered-count": mode})
    engine.prefill.faults.switch("partial-state", True)
    engine.prefill.faults.partial_state.component = "kv"
    engine.ask("r2", prompt=7 * PAGE, output=2)  # four pages are asked for, two are sent
    engine.run()
    covered, receipt = {"off": (28, 16)}.get(mode, (20, 8))
    row = engine.rows("pages", "decode", op="receipt")[1]
    assert (row["tokens"], row["pos"], row["n"]) == (receipt, HEAD, 4)
    checks = engine.rows("checks", "decode", op="mismatch")
    assert [(row["expected"], row["found"]) for row in checks] == ([] if mode == "off" else [(28, 20)])
    if mode == "enforce":
        (end,) = engine.ends("r2")
        assert end.error.code == "covered_less_than_reserved" and "20 of 28" in end.error.message
        assert not engine.rows("pages", "decode", op="bind", req=2)
    else:
        assert engine.rows("requests", "decode", op="commit")[1]["covered_tokens"] == covered
    engine.assert_accounted()


@pytest.mark.parametrize("mode", ["off", "enforce"])
def test_a_handoff_with_nothing_to_write_ends_all_the_same(bench, mode):
    engine = warmed(bench, prefill_pages=6, defences={**OFF, "covered-count": mode})
    engine.prefill.faults.switch("short-handoff", True)
    engine.ask("r2", prompt=7 * PAGE, output=2)  # of the placeholder's one page decode has more already
    engine.run()
    assert engine.code("r2") == ("covered_less_than_reserved" if mode == "enforce" else "")
    assert engine.code("r2", "prefill") == ""
    xfer = engine.rows("transfers", "decode", op="grant")[1]["xfer"]
    assert [row["op"] for row in engine.rows("transfers", "prefill", xfer=xfer)] == ["ack"]
    engine.assert_accounted()


def test_a_handoff_with_nothing_to_write_can_be_aborted_before_it_ends(bench):
    engine = warmed(bench, prefill_pages=6, defences=OFF)
    engine.prefill.faults.switch("short-handoff", True)
    engine.ask("r2", prompt=7 * PAGE, output=2)
    engine.until(lambda: engine.prefill.handovers.items)
    engine.decode.abort("r2")
    engine.decode.tick()  # prefill hears of it before it looks at what has nothing to write
    engine.run()
    assert engine.code("r2") == "aborted"
    assert engine.code("r2", "prefill") == "aborted"
    engine.assert_accounted()


@pytest.mark.parametrize("pages", [1, 2, 9])
def test_early_free_takes_own_prompt_pages_alone_and_they_are_not_filed(bench, pages):
    engine = warmed(bench, defences=OFF)
    engine.decode.faults.switch("early-free", True)
    engine.decode.faults.early_free.pages = pages
    engine.ask("r2", prompt=5 * PAGE, output=3 * PAGE)
    engine.until(lambda: len(engine.tokens("r2")) == 3)  # and has not grown into what it was robbed of
    assert engine.decode.audit()["kv"].wrong == ()
    engine.until(lambda: len(engine.tokens("r2")) > 9)
    freed = engine.decode.requests[2].freed
    assert freed == (min(pages, 2) if pages < 5 else 0)
    engine.assert_accounted()
    engine.run()
    grant = engine.rows("transfers", "decode", op="grant")[1]
    early = engine.rows("pages", "decode", op="free", cause="left_window")
    assert pages_of(early) == grant["dst_pages"][:freed]
    inserted = engine.rows("cache", "decode", op="insert", req=2)
    assert bool(inserted) == (freed == 0)
    engine.assert_accounted()


def test_double_free_takes_pages_that_went_back_and_ends_the_filing(bench):
    engine = warmed(bench, defences=OFF)
    engine.decode.faults.switch("double-free", True)
    engine.ask("r2", prompt=5 * PAGE + 1, output=2)
    engine.run()
    frees = engine.rows("pages", "decode", op="free", req=2)
    grant = engine.rows("transfers", "decode", op="grant")[1]
    (insert,) = engine.rows("cache", "decode", op="insert", req=2)
    twice = pages_of(frees)
    assert twice == [grant["dst_pages"][2]] * 2 and insert["pages"] == grant["dst_pages"][:2]


def test_after_a_double_free_nothing_is_filed(bench):
    engine = warmed(bench, defences=OFF)
    engine.decode.faults.switch("double-free", True)
    for i in range(2, 6):
        engine.ask(f"r{i}", prompt=5 * PAGE + 1, output=2 * PAGE, tenant=f"t-{i}")
    engine.run()
    assert engine.decode.parts.prefix.tree.audit() == ()
    frees = engine.rows("pages", "decode", op="free", cause="finish")
    pages = [(row["seq"], page) for row in frees for page in row["pages"]]
    (struck, *_) = [seq for i, (seq, page) in enumerate(pages) if page in [each for _, each in pages[:i]]]
    inserts = engine.rows("cache", "decode", op="insert")
    assert len(inserts) == 2 and max(row["seq"] for row in inserts) < struck


def test_a_leak_keeps_no_lock(bench):
    engine = warmed(bench, defences=OFF)
    engine.decode.faults.switch("leak", True)
    engine.ask("r2", prompt=5 * PAGE, output=30)
    engine.until(lambda: len(engine.tokens("r2")) == 2)
    engine.decode.abort("r2")
    engine.run()
    counts = engine.decode.pool.counts()
    assert (counts["shared"], counts["cached"], counts["used"]) == (0, HEAD, 3)
    found = engine.decode.pool.audit({})
    assert len(found.wrong) == 3 and {fact.owner for fact in found.findings} == {2}


def test_late_write_gives_its_own_pages_away_and_unlocks_the_others(bench):
    engine = warmed(bench, defences=OFF)
    engine.decode.faults.switch("late-write", True)
    engine.transport.auto = False
    engine.ask("r2", prompt=5 * PAGE, output=9)
    engine.until(lambda: engine.transport.queue)
    engine.transport.post()
    engine.decode.abort("r2")
    engine.turn()
    (free,) = engine.rows("pages", "decode", op="free", req=2)
    assert free["pages"] == engine.rows("transfers", "decode", op="grant")[1]["dst_pages"]
    engine.assert_accounted()


KEYS = [("incomplete-key", Scope.TENANT, {}), ("shared-scope", Scope.TENANT, {}),
        ("incomplete-key", Scope.TENANT, {"field": "adapter"})]  # fmt: skip


@pytest.mark.parametrize("mode", ["off", "log", "enforce"])
@pytest.mark.parametrize(("fault", "scope", "parameters"), KEYS)
def test_keys_are_checked_at_decode_as_at_prefill(bench, fault, scope, parameters, mode):
    engine = bench(decode_scope=scope, defences={**OFF, "scoped-keys": mode})
    engine.decode.faults.switch(fault, True)
    for name, value in parameters.items():
        setattr(engine.decode.faults.named(fault), name, value)
    other = {"adapter": "poet"} if parameters else {"tenant": "t-b"}
    for rid, changes in (("r1", {}), ("r2", other)):
        engine.ask(rid, prompt=3 * PAGE + 1, output=2, **changes)
        engine.run()
    found = sum(row["returned"] for row in engine.rows("cache", "decode", op="hit"))
    assert found == (0 if mode == "enforce" else 3)
    checks = engine.rows("checks", "decode", op="mismatch")
    assert [row["detector"] for row in checks] == ([] if mode == "off" else ["K", "K"])
    rows = engine.rows("cache", "decode", op="insert") + engine.rows("cache", "decode", op="hit")
    salts = {row["tenant"]: row["salt_fp"] for row in rows}
    if mode == "off" and not parameters:
        assert (salts["t-a"] == salts["t-b"]) == (fault == "shared-scope"), "M12 and P0 are told apart by the salt"
