"""Answers that outgrow a small decode pool: retracted to the host pool and resumed, whole and right all the same."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from live_texts import endless, until, verdicts_of

from engine.induction import byte_codes
from engine.ledger.reader import read_ledger
from engine.oracle import Oracle
from engine.truth import read_truth

pytestmark = pytest.mark.engine

REQUESTS, ANSWER = 6, 140
ORACLE = Oracle(byte_codes())


def asked(seed):
    """A prompt of four pages, and what the oracle says must follow."""
    text = endless(seed, 52)
    prompt = list((text + text[:12]).encode())
    return bytes(prompt).decode(), bytes(ORACLE.continuation(prompt, ANSWER)).decode()


def test_long_answers_at_once_all_end_whole_and_right(tight):
    prompts = {f"tight-{i}": asked(f"tight-{i}") for i in range(REQUESTS)}

    def ask(rid):
        return tight.ask(headers={"x-request-id": rid}, prompt=prompts[rid][0], max_tokens=ANSWER, timeout=120)

    with ThreadPoolExecutor(REQUESTS) as pool:
        answers = dict(zip(prompts, pool.map(ask, prompts), strict=True))
    for rid, answer in answers.items():
        assert answer.status_code == 200, answer.text
        assert answer.json()["choices"][0]["text"] == prompts[rid][1]
    until(tight.idle, "the workers to be idle")
    verdicts_of(tight, prompts, verdict="clean")
    rows = read_ledger(tight.ledger).tables["requests"].to_pylist()
    paused = [row["req"] for row in rows if row["op"] == "pause"]
    assert len(paused) >= 2
    assert sorted(paused) == sorted(row["req"] for row in rows if row["op"] == "resume")
    truth = read_truth(tight.ledger / "truth")
    assert not any(truth[rid].contaminated or truth[rid].misplaced or truth[rid].unwritten for rid in prompts)
    pools = tight.audit(tight.decode)["pools"]
    assert {name: (pool["counts"]["used"], pool["wrong"]) for name, pool in pools.items()} == {
        "kv": (0, []), "host": (0, []),
    }  # fmt: skip


def test_a_retracted_request_whose_client_goes_away_leaves_nothing(tight):
    prompts = {f"gone-{i}": asked(f"gone-{i}")[0] for i in range(REQUESTS)}
    with ThreadPoolExecutor(REQUESTS) as pool:
        answers = {
            rid: pool.submit(tight.ask, headers={"x-request-id": rid}, prompt=prompt, max_tokens=400, timeout=120)
            for rid, prompt in prompts.items()
        }
        until(lambda: tight.metrics(tight.decode)["kvwitness_retracted_requests",] > 0, "a retraction")
        for rid in prompts:
            tight.post(tight.decode, "/abort_request", {"rid": rid})
        for answer in answers.values():
            assert answer.result().status_code in (200, 499)
    until(tight.idle, "the workers to be idle")
    pools = tight.audit(tight.decode)["pools"]
    assert all(pool["wrong"] == [] and pool["counts"]["used"] == 0 for pool in pools.values())
