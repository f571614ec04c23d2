"""Refusals as ends of their own: whoever refuses, its status and words reach the client, and nothing goes on."""

import json
import secrets
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from live_http import HTTP
from live_texts import until

from engine.ledger.reader import read_ledger

pytestmark = pytest.mark.engine

OPEN = {"admission-gate": "off", "covered-count": "off", "page-tag": "off"}


@pytest.fixture
def small_prefill(live_engine):
    """An open gate; prefill holds 512 tokens, decode 1,536, the context is 1,024."""
    return live_engine(defences=OPEN)


def story_of(engine, rid):
    """worker -> ops of the `requests` rows of a request, in order, from the ledger as it is now."""
    rows = read_ledger(engine.ledger).tables["requests"].to_pylist()
    known = {(row["worker"], row["epoch"], row["req"]) for row in rows if row["rid"] == rid}
    mine = [row for row in rows if (row["worker"], row["epoch"], row["req"]) in known]
    return {
        worker: [row["op"] for row in mine if row["worker"] == worker] for worker in {row["worker"] for row in mine}
    }


def refused(engine, rid, stream, **body):
    """(status, code, message) of a request that does not get a token."""
    answer = engine.ask(headers={"x-request-id": rid}, stream=stream, **body)
    assert answer.headers["content-type"] == "application/json"
    error = answer.json()["error"]
    assert error["type"] == "invalid_request_error"
    return answer.status_code, error["code"], error["message"]


def ended(engine, rid, *rejecting):
    """The gateway and one of the workers named rejected it, that was the end there, and no token came from anybody.

    Of two that would reject, the slower one may first hear from the gateway that it is over."""
    story = until(
        lambda: (
            (found := story_of(engine, rid)).keys() >= {"gateway-0", *rejecting}
            and all(ops[-1] in ("reject", "abort") for ops in found.values())
            and found
        ),
        "the ends",
    )
    refused_by = {worker for worker in ("gateway-0", *rejecting) if story[worker][-1] == "reject"}
    assert "gateway-0" in refused_by and refused_by & {*rejecting}, story
    for worker in refused_by:
        assert (story[worker].count("reject"), story[worker][-1]) == (1, "reject"), story
    assert not any({"first_token", "commit", "finish"} & {*ops} for ops in story.values())
    rows = engine.rows_of(rid, "reject")
    assert {worker: (row["status"], row["output_tokens"]) for worker, row in rows.items()} == dict.fromkeys(
        refused_by, ("400", 0)
    )
    until(engine.idle, "the workers to be idle")


@pytest.mark.parametrize("stream", [False, True])
def test_a_prompt_that_prefills_pool_cannot_hold(small_prefill, stream):
    rid = f"over-prefill-{stream}"
    status, code, message = refused(small_prefill, rid, stream, prompt="x" * 600, max_tokens=3)
    assert (status, code) == (400, "prompt_exceeds_pool")
    assert "600 tokens exceeds the prefill KV pool of 512 tokens" in message
    ended(small_prefill, rid, "prefill-0")


@pytest.mark.parametrize("stream", [False, True])
def test_a_prompt_that_decodes_pool_cannot_hold(two_of_each, stream):
    rid = f"over-decode-{stream}"
    status, code, message = refused(two_of_each, rid, stream, prompt="x" * 1100, max_tokens=3)
    assert (status, code) == (400, "prompt_exceeds_pool")
    assert "1100 tokens exceeds the decode KV pool of 1024 tokens" in message
    ended(two_of_each, rid, "decode-0")


@pytest.mark.parametrize("stream", [False, True])
def test_a_prompt_and_an_answer_over_the_context(two_of_each, stream):
    rid = f"over-context-{stream}"
    status, code, message = refused(two_of_each, rid, stream, prompt="x" * 1000, max_tokens=600)
    assert (status, code) == (400, "prompt_exceeds_context")
    assert "the context of 1536" in message
    ended(two_of_each, rid, "prefill-0", "decode-0")


@contextmanager
def namesake(engine, url, rid):
    """Somebody else's request of this id lives on one worker, and still does when the block ends."""
    port = engine.info(engine.prefill)["disaggregation_bootstrap_port"]
    body = {
        "input_ids": [1, 2, 3], "rid": rid, "bootstrap_room": secrets.randbits(62), "bootstrap_port": port,
    }  # fmt: skip
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(HTTP.post, f"{url}/generate", json=body, headers=engine.hop, timeout=60)
        until(lambda: engine.metrics(url)["kvwitness_running_requests",] == 1, "the namesake to be there")
        yield
        assert not waiting.done()
        engine.post(url, "/abort_request", {"rid": rid})
        assert waiting.result().json()["error"]["code"] == "aborted"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_what_a_workers_door_refuses(two_of_each, role, stream):
    engine, rid = two_of_each, f"door-{role}-{stream}"
    other = engine.decode if role == "prefill" else engine.prefill
    with namesake(engine, engine.state[role][0], rid):
        status, code, message = refused(engine, rid, stream, prompt="hello there", max_tokens=3)
        assert (status, code) == (409, "request_id_in_use")
        assert rid in message
        until(lambda: engine.metrics(other)["kvwitness_running_requests",] == 0, "the other half to end")
    row = until(lambda: engine.rows_of(rid, "reject").get("gateway-0"), "the gateway's row")
    assert (row["status"], row["reason"]) == ("409", "request_id_in_use")
    until(engine.idle, "the workers to be idle")


@pytest.mark.parametrize("stream", [False, True])
def test_refusals_as_a_router_hears_them(two_of_each, stream):
    """One body to both doors, no gateway between: each role answers for itself."""
    engine = two_of_each
    port = engine.info(engine.prefill)["disaggregation_bootstrap_port"]
    good = {"text": "x" * 1100, "bootstrap_port": port, "stream": stream, "sampling_params": {"max_new_tokens": 3}}
    for change, code in (
        ({}, "prompt_exceeds_pool"),
        ({"text": "x" * 1600}, "prompt_exceeds_pool"),
        ({"text": ""}, "invalid_body"),
    ):
        body = {**good, "bootstrap_room": secrets.randbits(62), "rid": secrets.token_hex(8), **change}
        with ThreadPoolExecutor(2) as pool:
            answers = list(
                pool.map(
                    lambda url, body=body: HTTP.post(f"{url}/generate", json=body, headers=engine.hop, timeout=20),
                    (engine.prefill, engine.decode),
                )
            )
        for answer in answers:
            if answer.status_code == 200:  # a stream had begun
                assert stream
                event = json.loads(next(line for line in answer.text.splitlines() if line)[6:])
                assert event["meta_info"]["finish_reason"]["status_code"] == 400
                assert event["error"]["code"] == code
            else:
                assert (answer.status_code, answer.json()["error"]["code"]) == (400, code)
    until(engine.idle, "the workers to be idle")
