"""Decode's own prefix cache on real processes: what is not sent again, whose pages pass, and that texts stay right."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from live_texts import ASKED, SHARED_TOKENS, endless, prompts, until, verdicts_of

from engine.induction import byte_codes
from engine.ledger.reader import read_ledger
from engine.oracle import Oracle
from engine.truth import read_truth

pytestmark = pytest.mark.engine

PAGE = 16
ORACLE = Oracle(byte_codes())


@pytest.fixture(scope="session")
def keeping(live_engine):
    """Decode holds 512 tokens and keeps prompts for their tenant; nobody looks at the keys, which no fault spoils yet."""
    return live_engine(
        decode_pages=33, host_pages=129, reserved_tokens=16, decode_prefix_cache="tenant",
        defences={"scoped-keys": "off"}, truth=True,
    )  # fmt: skip


def complete(engine, tenant, rid, prompt, expected):
    """Ask, check the text, and give what the client is told of cached tokens."""
    answer = engine.ask(
        tenant=tenant, headers={"x-request-id": rid}, prompt=prompt, max_tokens=len(expected), timeout=120
    )
    assert answer.status_code == 200, answer.text
    assert answer.json()["choices"][0]["text"] == expected
    return answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]


def sent_pages(engine, rid):
    """Pages that a request's handoff carried, once the ledger has it all."""

    def rows():
        tables = read_ledger(engine.ledger).tables
        reqs = {
            row["req"] for row in tables["requests"].to_pylist() if row["rid"] == rid and row["worker"] == "decode-0"
        }  # fmt: skip
        transfers = tables["transfers"].to_pylist()
        xfers = {row["xfer"] for row in transfers if row["op"] == "grant" and row["req"] in reqs}
        return [row for row in transfers if row["xfer"] in xfers and row["worker"] == "prefill-0"]

    def whole():
        found = rows()
        return any(row["op"] == "ack" for row in found) and found

    found = until(whole, "the end of the handoff")
    return sum(row["n"] for row in found if row["op"] == "done")


def test_a_prompt_that_comes_again_is_sent_where_it_is_new_alone(keeping):
    engine, asked = keeping, prompts("kept", 3)
    whole = -(-(SHARED_TOKENS + 12) // PAGE)
    before = engine.metrics(engine.decode)["kvwitness_prefix_hit_tokens_total",]
    for rid, tenant, (prompt, expected) in zip(("one", "two", "other"), ("acme", "acme", "brio"), asked, strict=True):
        assert complete(engine, tenant, f"kept-{rid}", prompt, expected) == 0, "prefill has no cache, and says so"
    assert [sent_pages(engine, f"kept-{rid}") for rid in ("one", "two", "other")] == [
        whole, whole - SHARED_TOKENS // PAGE, whole,
    ]  # fmt: skip
    verdicts_of(engine, [f"kept-{rid}" for rid in ("one", "two", "other")], verdict="clean", proof="proved")
    truth = read_truth(engine.ledger / "truth")
    assert not any(one.contaminated or one.cross_tenant or one.unwritten for one in truth.values())
    found = engine.metrics(engine.decode)
    assert found["kvwitness_prefix_hit_tokens_total",] - before == SHARED_TOKENS
    assert found["kvwitness_cached_pages",] + found["kvwitness_free_pages",] == 32
    commit = engine.rows_of("kept-two", "commit")["decode-0"]
    assert commit["covered_tokens"] == SHARED_TOKENS + 12


def test_long_answers_that_begin_alike_are_retracted_and_end_whole(keeping):
    engine, text = keeping, endless("alike", 48)
    head = list((text + text[:12]).encode())  # three full pages
    expected = bytes(ORACLE.continuation(head, 140)).decode()
    prompt = bytes(head).decode()
    complete(engine, "acme", "alike-0", prompt, expected[:4])
    with ThreadPoolExecutor(5) as pool:
        list(pool.map(lambda i: complete(engine, "acme", f"alike-{i}", prompt, expected), range(1, 6)))
    until(engine.idle, "the workers to be idle")
    verdicts_of(engine, [f"alike-{i}" for i in range(6)], verdict="clean")
    tables = read_ledger(engine.ledger).tables
    known = {
        row["req"] for row in tables["requests"].to_pylist()
        if row["worker"] == "decode-0" and (row["rid"] or "").startswith("alike-")
    }  # fmt: skip
    paused = {row["req"] for row in tables["requests"].to_pylist() if row["op"] == "pause"}
    hits = {
        row["req"] for row in tables["cache"].to_pylist() if row["op"] == "hit" and row["worker"] == "decode-0" and row["n"]
    }  # fmt: skip
    assert known & paused & hits, "somebody was retracted from pages of the cache"
    truth = read_truth(engine.ledger / "truth")
    assert not any(truth[f"alike-{i}"].contaminated or truth[f"alike-{i}"].misplaced for i in range(6))
    audit = engine.audit(engine.decode)
    assert audit["cache"] == [] and all(pool["wrong"] == [] for pool in audit["pools"].values())
    assert audit["pools"]["kv"]["counts"]["used"] == audit["pools"]["host"]["counts"]["used"] == 0


@pytest.mark.parametrize(("fault", "mechanism"), [("incomplete_key", "M12"), ("shared_scope", "P0")])
def test_another_tenants_hit_at_decode_is_exposed_and_its_text_right(keeping, fault, mechanism):
    engine, asked = keeping, prompts(f"decode-{fault}", 2)
    engine.switch(engine.decode, **{fault: True})
    try:
        for tenant, (prompt, expected) in zip(("acme", "brio"), asked, strict=True):
            complete(engine, tenant, f"decode-{fault}-{tenant}", prompt, expected)
    finally:
        engine.switch(engine.decode, **{fault: False})
    found = verdicts_of(engine, [f"decode-{fault}-brio"], verdict="exposed", mechanism=mechanism)
    assert found[f"decode-{fault}-acme"]["verdict"] == "clean"
    truth = read_truth(engine.ledger / "truth")[f"decode-{fault}-brio"]
    assert (truth.contaminated, truth.cross_tenant) == (False, {f"decode-{fault}-acme"})
    assert sent_pages(engine, f"decode-{fault}-brio") == 1
    assert len(asked[1][1]) == ASKED
