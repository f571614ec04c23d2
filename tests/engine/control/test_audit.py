"""The owner audit: when idle, on demand, and what it finds of each fault that leaves pages behind."""

from control_bench import PAGE, Bench

from engine.defences import DETECTORS

OFF = dict.fromkeys(DETECTORS, "off")


def idle(engine):
    """Let the time of an audit pass with nothing to do."""
    engine.run()
    engine.clock.advance(engine.decode.parts.pace.audit_us)
    engine.turn()


def test_an_idle_worker_audits_and_finds_nothing_wrong(bench):
    engine = bench()
    engine.ask("r1", prompt=3 * PAGE, output=3)
    idle(engine)
    audits = engine.rows("pages", op="audit")
    assert {row["worker"] for row in audits} == {"prefill-0", "decode-0"}
    assert all(row["n"] == 0 for row in audits)
    assert not engine.rows("checks", op="mismatch")


def test_no_audit_while_a_request_is_alive(bench):
    engine = bench()
    engine.transport.auto = False
    engine.ask("r1", prompt=3 * PAGE, output=3)
    engine.clock.advance(engine.decode.parts.pace.audit_us)
    engine.turn()
    assert not engine.rows("pages", op="audit")


def test_a_leak_is_found_to_the_page(bench):
    engine = bench(defences={**OFF, "owner-audit": "log"}, faults=["leak"])
    engine.ask("r1", prompt=3 * PAGE, output=30)
    engine.until(lambda: len(engine.tokens("r1")) == 2)
    engine.decode.abort("r1")
    idle(engine)
    (audit,) = engine.rows("pages", "decode", op="audit")
    (reserve,) = engine.rows("pages", "decode", op="reserve")
    assert sorted(audit["pages"])[:3] == sorted(reserve["pages"]) and audit["n"] == 4
    (check,) = engine.rows("checks", "decode", op="mismatch")
    assert (check["detector"], check["found"]) == ("D8", 4)
    found = engine.decode.pool.audit({})
    assert found.wrong == tuple(sorted(audit["pages"]))


def test_a_page_that_was_freed_twice_is_found(bench):
    engine = bench(defences={**OFF, "owner-audit": "log"}, faults=["double-free"])
    engine.ask("r1", prompt=3 * PAGE, output=2)
    idle(engine)
    (audit,) = engine.rows("pages", "decode", op="audit")
    assert audit["n"] == 1


def test_held_pages_are_accounted_for(bench):
    engine = bench()
    engine.transport.auto = False
    engine.ask("r1", prompt=3 * PAGE, output=3)
    engine.until(lambda: engine.transport.queue)
    engine.transport.post()
    engine.decode.abort("r1")
    engine.turn()
    found = engine.decode.audit()["kv"]
    assert found.wrong == () and found.counts["held"] == 3


def test_the_audit_can_be_switched_off(tmp_path):
    engine = Bench(tmp_path / "ledger", defences=OFF)
    engine.ask("r1")
    idle(engine)
    assert not engine.rows("pages", op="audit")
