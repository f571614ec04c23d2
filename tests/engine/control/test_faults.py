"""The two faults, with every defence off: what they do to a bystander and what the ledger says of it."""

import pytest
from control_bench import PAGE

from engine.defences import DETECTORS
from engine.faults import Faults

OFF = dict.fromkeys(DETECTORS, "off")


def test_without_the_fault_an_over_pool_prompt_is_refused_by_prefill(bench):
    engine = bench(prefill_pages=5, defences=OFF)
    engine.ask("r1", prompt=5 * PAGE)
    engine.run()
    (end,) = engine.ends("r1")
    assert (end.error.status, end.error.code) == (400, "prompt_exceeds_pool")
    assert f"{5 * PAGE} tokens" in end.error.message
    assert f"{4 * PAGE} tokens" in end.error.message
    assert engine.tokens("r1") == []
    assert not engine.rows("pages", "prefill")


def test_short_handoff_sends_one_page_for_many_and_says_success(bench):
    engine = bench(prefill_pages=5, defences=OFF, faults=["short-handoff"])
    engine.ask("r1", prompt=7 * PAGE, output=4)
    engine.run()
    assert engine.code("r1") == ""
    assert len(engine.tokens("r1")) == 4
    (works,) = [works for kind, _, works in engine.executors["prefill"].passes]
    assert works[0].tokens.tolist() == [0]
    (reject,) = engine.rows("requests", "prefill", op="reject")
    assert (reject["status"], reject["reason"]) == ("400", "prompt_exceeds_pool")
    (finish,) = engine.rows("requests", "prefill", op="finish")
    assert finish["status"] == "200"
    (grant,), (done,) = engine.rows("transfers", op="grant"), engine.rows("transfers", op="done")
    assert (grant["asked"], done["n"]) == (7, 1)
    (receipt,), (commit,) = engine.rows("pages", op="receipt"), engine.rows("requests", op="commit")
    assert receipt["tokens"] == commit["covered_tokens"] == 7 * PAGE  # what decode believes
    (bind,) = engine.rows("pages", "decode", op="bind")
    assert (len(bind["pages"]), bind["tokens"]) == (7, 7 * PAGE)


def test_short_handoff_leaves_prompts_that_fit_alone(bench):
    engine = bench(prefill_pages=5, defences=OFF, faults=["short-handoff"])
    engine.ask("r1", prompt=4 * PAGE, output=2)
    engine.run()
    (works,) = [works for kind, _, works in engine.executors["prefill"].passes]
    assert len(works[0].tokens) == 4 * PAGE
    assert not engine.rows("requests", op="reject")


def test_short_handoff_does_not_stretch_the_context(bench):
    engine = bench(defences=OFF, faults=["short-handoff"], context=20)
    engine.ask("r1", prompt=18, output=10)
    engine.run()
    assert engine.code("r1") == "prompt_exceeds_context"


def late_write(engine, prompt=6 * PAGE):
    """Request r1 is aborted while its writes are gated; r2 gets its pages and reads them; then the writes land."""
    engine.prefill.faults.late_write.armed = 1
    engine.ask("r1", prompt=prompt, output=5)
    engine.until(lambda: engine.transport.gated)
    assert list(engine.prefill.faults.late_write.gated.values()) == ["r1"]
    engine.decode.abort("r1")
    engine.until(lambda: engine.ends("r1"))
    engine.ask("r2", prompt=prompt, output=30)
    engine.until(lambda: len(engine.tokens("r2")) == 5)
    engine.prefill.release_writes()
    engine.run()


def test_late_write_lands_over_the_next_owner(bench):
    engine = bench(defences=OFF, faults=["late-write"])
    late_write(engine)
    assert engine.code("r2") == ""
    first, second = engine.rows("pages", "decode", op="reserve")
    assert first["pages"] == second["pages"]
    assert not engine.rows("pages", op="hold")
    (free,) = engine.rows("pages", "decode", op="free", cause="abort")
    done = [row for row in engine.rows("transfers", op="done") if row["dst_tag"] == first["tag"]]
    assert [page for row in done for page in row["dst_pages"]] == first["pages"]
    # Nothing was cancelled, and decode did not wait for the ack that says so.
    acks = [row["outstanding"] for row in engine.rows("transfers", "prefill", op="ack", xfer=done[0]["xfer"])]
    assert acks == [1, 0]
    (abort,) = engine.rows("transfers", "decode", op="abort")
    assert abort["seq"] < free["seq"]


def test_late_write_gates_only_as_many_handoffs_as_were_armed(bench):
    engine = bench(defences=OFF, faults=["late-write"])
    late_write(engine)
    engine.ask("r3")
    engine.run()
    assert engine.code("r3") == ""
    assert engine.prefill.faults.late_write.gated == {}


def test_an_armed_handoff_is_gated_with_the_fault_off_too_and_ends_well_once_let_go(bench):
    engine = bench()
    engine.prefill.faults.late_write.armed = 1
    engine.ask("r1")
    engine.until(lambda: engine.transport.queue)
    engine.run()
    assert not engine.ends("r1") and list(engine.prefill.faults.late_write.gated.values()) == ["r1"]
    engine.prefill.release_writes()
    engine.run()
    assert engine.code("r1") == ""


def test_without_the_fault_the_same_abort_is_drained(bench):
    engine = bench(defences=OFF)
    engine.transport.auto = False
    engine.ask("r1", prompt=6 * PAGE)
    engine.until(lambda: engine.transport.queue)
    engine.decode.abort("r1")
    engine.run()
    assert engine.transport.written == []
    assert not engine.rows("transfers", op="post")


def test_faults_are_named_and_the_unknown_is_refused():
    faults = Faults()
    faults.switch("late-write", True)
    assert faults.active() == ["late-write"]
    with pytest.raises(ValueError, match=r"unknown fault 'latewrite'; known: short-handoff, fail-open, late-write, "):
        faults.switch("latewrite", True)
