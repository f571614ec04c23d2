"""Pages of an aborted handoff: held with a deadline, then quarantined or released, and what a late landing does there."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from live_http import HTTP
from live_texts import HOLD_MS, abort_gated, calm, prompt_and_answer, until, verdict_of, verdicts_of

from engine.ledger.reader import read_ledger
from engine.truth import read_truth

pytestmark = pytest.mark.engine

PAGES = 12


@pytest.fixture(params=["guarded", "trusting"])
def engine(request):
    found = request.getfixturevalue(request.param)
    yield found
    calm(found, "late_write")


def free_pages(engine):
    """Of decode; what a leak has taken from an engine may stay away."""
    return engine.metrics(engine.decode)["kvwitness_free_pages",]


def holds_of(engine, rid):
    """The `hold` rows of a request's pages on decode, oldest first."""
    tables = read_ledger(engine.ledger).tables
    reqs = {
        row["req"] for row in tables["requests"].to_pylist() if row["rid"] == rid and row["worker"] == "decode-0"
    }  # fmt: skip
    rows = tables["pages"].to_pylist()
    return [row for row in rows if row["op"] == "hold" and row["worker"] == "decode-0" and row["req"] in reqs]


def test_held_pages_have_a_deadline_that_ledger_and_metrics_tell(engine, request):
    rid, free = f"{request.node.callspec.id}-held", free_pages(engine)
    engine.switch(engine.prefill, late_write=True)
    abort_gated(engine, rid, prompt_and_answer(rid)[0])
    found = engine.metrics(engine.decode)
    assert (found["kvwitness_held_pages",], found["kvwitness_acks_outstanding",]) == (PAGES, 1)
    assert 0 < found["kvwitness_hold_deadline_seconds",] <= HOLD_MS / 1000
    (hold,) = until(lambda: holds_of(engine, rid), "the hold row")
    assert (hold["cause"], hold["n"]) == ("abort", PAGES)
    assert 0 < (hold["deadline"] - hold["t"]).total_seconds() <= HOLD_MS / 1000 + 0.1
    engine.post(engine.prefill, "/faults/late-write", {"release": True})
    until(lambda: engine.metrics(engine.decode)["kvwitness_acks_outstanding",] == 0, "the writer to drain")
    found = engine.metrics(engine.decode)
    assert found["kvwitness_held_pages",] == 0
    assert found["kvwitness_free_pages",] >= free  # more, where a double free has damaged the books before
    assert found["kvwitness_hold_deadline_seconds",] == 0


def test_quarantined_pages_can_be_written_late_and_nobody_is_harmed(guarded):
    engine, free = guarded, free_pages(guarded)
    engine.switch(engine.prefill, late_write=True)
    abort_gated(engine, "late-donor", prompt_and_answer("late-donor")[0])
    until(lambda: engine.metrics(engine.decode)["kvwitness_quarantined_pages",] == PAGES, "the quarantine")
    found = engine.metrics(engine.decode)
    assert (found["kvwitness_held_pages",], found["kvwitness_hold_deadline_seconds",]) == (0, 0)
    causes = until(lambda: len(rows := holds_of(engine, "late-donor")) == 2 and rows, "the second hold row")
    assert [row["cause"] for row in causes] == ["abort", "quarantine"]
    asked = {f"beside-quarantine-{i}": prompt_and_answer(f"beside-quarantine-{i}") for i in range(4)}
    with ThreadPoolExecutor(4) as pool:
        asking = {
            rid: pool.submit(engine.ask, headers={"x-request-id": rid}, prompt=prompt, max_tokens=60)
            for rid, (prompt, _) in asked.items()
        }
        until(lambda: engine.metrics(engine.decode)["kvwitness_used_pages",] > 0, "pages in use")
        engine.post(engine.prefill, "/faults/late-write", {"release": True})
        for rid, (_, expected) in asked.items():
            assert asking[rid].result().json()["choices"][0]["text"] == expected
    until(lambda: free_pages(engine) == free, "the pages to come back")
    verdicts_of(engine, asked, verdict="clean")
    truth = read_truth(engine.ledger / "truth")
    assert not any(truth[rid].contaminated or truth[rid].undecided for rid in asked)
    pages = read_ledger(engine.ledger).tables["pages"].to_pylist()
    assert any(row["op"] == "scrub" and row["worker"] == "decode-0" for row in pages)
    calm(engine, "late_write")


def test_a_timer_that_releases_lets_a_late_write_through(trusting):
    """M4: the acknowledgement never comes, the timer is believed, and the writes land over the next owner."""
    engine = trusting
    engine.switch(engine.prefill, lost_ack=True)
    abort_gated(engine, "unacked", prompt_and_answer("unacked")[0])
    assert engine.metrics(engine.decode)["kvwitness_held_pages",] == PAGES
    until(lambda: engine.metrics(engine.decode)["kvwitness_held_pages",] == 0, "the release")
    with HTTP.stream(
        "POST", f"{engine.gateway}/v1/completions", timeout=60,
        json={"prompt": prompt_and_answer("overwritten")[0], "max_tokens": 400, "stream": True},
        headers={**engine.client("brio"), "x-request-id": "overwritten"},
    ) as answer:  # fmt: skip
        lines = answer.iter_lines()
        next(lines)
        engine.post(engine.prefill, "/faults/late-write", {"release": True})
        assert list(lines)[-2] == "data: [DONE]"
    until(engine.idle, "the workers to be idle")
    truth = read_truth(engine.ledger / "truth")["overwritten"]
    assert truth.contaminated
    assert set(truth.donors) == {"unacked"}
    assert verdict_of(engine, "overwritten", verdict="contaminated", mechanism="M4")["donors"] == ["unacked"]
    calm(engine, "lost_ack")


def test_a_slow_drain_costs_capacity_and_harms_nobody(guarded):
    engine, free = guarded, free_pages(guarded)
    engine.switch(engine.prefill, slow_drain={"delay_us": 700_000})
    abort_gated(engine, "slowly", prompt_and_answer("slowly")[0])
    engine.post(engine.prefill, "/faults/late-write", {"release": True})
    assert engine.metrics(engine.decode)["kvwitness_held_pages",] == PAGES
    prompt, expected = prompt_and_answer("meanwhile")
    assert engine.ask(prompt=prompt, max_tokens=60).json()["choices"][0]["text"] == expected
    until(lambda: free_pages(engine) == free, "the pages to come back")
    assert len(holds_of(engine, "slowly")) == 1
    calm(engine, "slow_drain")
