"""Real processes behind real clients: answers, streams, errors, clients that go away, metrics."""

import json
import socket
from concurrent.futures import ThreadPoolExecutor

import httpx
import openai
import pytest
from live_http import HTTP
from live_texts import prompt_and_answer, until

from engine.defences import DETECTORS
from engine.ledger.reader import read_ledger

pytestmark = pytest.mark.engine

OFF = dict.fromkeys(DETECTORS, "off")
OPERATED = ("short-handoff", "late-write")


@pytest.fixture
def engine(live_engine):
    """Every defence on, no fault."""
    return live_engine()


@pytest.fixture
def faulty(live_engine):
    """Every defence off; the faults are switched off here and on by those tests that want them."""
    engine = live_engine(defences=OFF)
    yield engine
    for url in (engine.prefill, engine.decode):
        engine.post(url, "/faults/late-write", {"release": True})
        engine.post(url, "/faults", dict.fromkeys(OPERATED, False))


@pytest.fixture
def client(engine):
    with openai.OpenAI(base_url=f"{engine.gateway}/v1", api_key="key-acme", max_retries=0) as made:
        yield made


def switch(engine, **faults):
    for url in (engine.prefill, engine.decode):
        engine.post(url, "/faults", {name.replace("_", "-"): on for name, on in faults.items()})


def test_a_completion_is_what_the_copier_must_say(client):
    prompt, expected = prompt_and_answer("completion")
    answer = client.completions.create(model="m", prompt=prompt, max_tokens=60)
    assert answer.choices[0].text == expected
    assert answer.choices[0].finish_reason == "length"
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (190, 60)


def test_a_chat_completion_too(client):
    prompt, expected = prompt_and_answer("chat")
    answer = client.chat.completions.create(
        model="m", messages=[{"role": "user", "content": prompt}], max_completion_tokens=60
    )
    assert answer.choices[0].message.content == expected
    assert answer.usage.total_tokens == 250


def test_streams_say_the_same_token_by_token(client):
    prompt, expected = prompt_and_answer("stream")
    chunks = list(
        client.completions.create(
            model="m", prompt=prompt, max_tokens=60, stream=True, stream_options={"include_usage": True}
        )
    )
    assert "".join(chunk.choices[0].text for chunk in chunks if chunk.choices) == expected
    assert len([chunk for chunk in chunks if chunk.choices and chunk.choices[0].finish_reason is None]) == 60
    assert chunks[-1].usage.completion_tokens == 60
    assert chunks[-2].choices[0].finish_reason == "length"


def test_chat_streams_too(client):
    prompt, expected = prompt_and_answer("chat-stream")
    stream = client.chat.completions.create(
        model="m", messages=[{"role": "user", "content": prompt}], max_tokens=60, stream=True
    )
    chunks = list(stream)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == expected
    assert all(chunk.usage is None for chunk in chunks)
    assert chunks[0].choices[0].delta.role == "assistant"


def test_the_shortest_answer_is_one_token(client):
    prompt, expected = prompt_and_answer("one")
    answer = client.completions.create(model="m", prompt=prompt, max_tokens=1)
    assert answer.choices[0].text == expected[0]


def test_many_at_once_each_get_their_own(engine):
    asked = {f"many-{i}": prompt_and_answer(f"many-{i}", start=20 + 3 * i) for i in range(8)}
    tenants = ["acme", "brio", "cyan"]
    with ThreadPoolExecutor(8) as pool:
        answers = pool.map(
            lambda item: engine.ask(tenant=tenants[item[0] % 3], headers={"x-request-id": item[1]}, prompt=asked[item[1]][0],
                max_tokens=60,
            ),
            enumerate(asked),
        )  # fmt: skip
    for (rid, (_, expected)), answer in zip(asked.items(), answers, strict=True):
        assert answer.headers["x-request-id"] == rid
        assert answer.json()["choices"][0]["text"] == expected


def test_models_are_listed(client):
    (model,) = client.models.list().data
    assert model.id == "induction-llama"


def test_no_key_and_a_wrong_key(engine):
    for headers in ({}, {"authorization": "Bearer nope"}):
        answer = HTTP.post(f"{engine.gateway}/v1/completions", json={"prompt": "a"}, headers=headers)
        assert answer.status_code == 401
        assert answer.json()["error"]["code"] == "unauthorized"


def test_what_no_body_may_be(engine):
    for body in ({}, {"prompt": 7}, {"prompt": "a", "max_tokens": 0}, {"prompt": "a", "n": 2}):
        answer = engine.ask(**body)
        assert answer.status_code == 400
        assert answer.json()["error"]["code"] == "invalid_body"
    answer = HTTP.post(f"{engine.gateway}/v1/completions", content=b"{", headers=engine.client())
    assert answer.status_code == 400
    assert engine.ask(prompt="").json()["error"]["code"] == "empty_prompt"


def test_a_prompt_over_the_pool_is_refused_with_the_numbers(client, engine):
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model="m", prompt="x" * 513, max_tokens=3, extra_headers={"x-request-id": "over-1"})
    assert caught.value.code == "prompt_exceeds_pool"
    assert "513 tokens" in caught.value.message
    assert "512 tokens" in caught.value.message
    reject = until(lambda: engine.rows_of("over-1", "reject").get("gateway-0"), "the reject row")
    assert (reject["status"], reject["reason"]) == ("400", "prompt_exceeds_pool")
    assert not engine.rows_of("over-1", "receive").keys() & {"prefill-0", "decode-0"}  # nobody else has heard of it


def test_the_longest_prompt_is_served(client):
    prompt, expected = prompt_and_answer("longest")
    prompt = ("y" * (512 - len(prompt))) + prompt
    assert client.completions.create(model="m", prompt=prompt, max_tokens=30).choices[0].text == expected[:30]


def test_prompt_and_answer_over_the_context_are_refused(engine):
    answer = engine.ask(prompt="x" * 500, max_tokens=525)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "prompt_exceeds_context"


def test_a_request_id_in_use_gets_a_conflict_and_harms_nobody(engine):
    prompt, expected = prompt_and_answer("twice", tokens=60)
    with HTTP.stream(
        "POST", f"{engine.gateway}/v1/completions", timeout=30,
        json={"prompt": prompt, "max_tokens": 400, "stream": True},
        headers={**engine.client("acme"), "x-request-id": "twice"},
    ) as mine:  # fmt: skip
        lines = mine.iter_lines()
        first = json.loads(next(lines)[6:])["choices"][0]["text"]
        theirs = engine.ask(tenant="brio", headers={"x-request-id": "twice"}, prompt="hello there", max_tokens=5)
        assert theirs.status_code == 409
        assert theirs.json()["error"]["code"] == "request_id_in_use"
        texts = [json.loads(line[6:])["choices"][0]["text"] for line in lines if line.startswith("data: {")]
    assert len(texts) == 400  # 399 tokens more, and the end
    assert (first + "".join(texts)).startswith(expected)


def test_short_handoff_can_be_switched_while_running(faulty):
    switch(faulty, short_handoff=True)
    assert HTTP.get(f"{faulty.prefill}/server_info").json()["faults"] == ["short-handoff"]
    answer = faulty.ask(prompt="x" * 600, max_tokens=7)
    assert answer.status_code == 200
    usage = answer.json()["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (600, 7, 607)
    switch(faulty, short_handoff=False)
    assert faulty.ask(prompt="x" * 600, max_tokens=7).status_code == 400


def test_a_client_that_hangs_up_frees_its_pages(engine):
    prompt, _ = prompt_and_answer("hang-up")
    body = {"prompt": prompt, "max_tokens": 800, "stream": True}
    with HTTP.stream(
        "POST", f"{engine.gateway}/v1/completions", json=body, timeout=30,
        headers={**engine.client(), "x-request-id": "hang-up"},
    ) as answer:  # fmt: skip
        next(answer.iter_lines())
    until(engine.idle, "both workers to be idle", seconds=5)
    rows = until(
        lambda: (found := engine.rows_of("hang-up", "abort")).keys() >= {"gateway-0", "decode-0"} and found, "the ends"
    )
    assert rows["decode-0"]["reason"] == rows["gateway-0"]["reason"] == "aborted"
    assert 0 < rows["decode-0"]["output_tokens"] < 400
    assert engine.metrics(engine.decode)["kvwitness_free_pages",] == 96


def last_passes_of(engine, worker, rids):
    """The number of the last decode pass before each request's abort, by rid, from the ledger; None while one is not there."""
    tables = {name: rows.to_pylist() for name, rows in read_ledger(engine.ledger).tables.items()}
    mine = [row for row in tables["requests"] if row["worker"] == worker and row["epoch"] == 1]
    rid_of = {row["req"]: row["rid"] for row in mine if row["op"] == "receive"}
    aborts = {rid_of[row["req"]]: row["seq"] for row in mine if row["op"] == "abort"}
    if not {*rids} <= aborts.keys():
        return None
    steps = [row for row in tables["steps"] if row["worker"] == worker and row["epoch"] == 1]
    return {rid: max(row["step"] + row["n"] - 1 for row in steps if row["seq"] < aborts[rid]) for rid in rids}


@pytest.mark.parametrize("beside", [0, 3])
def test_at_most_one_pass_ends_after_a_hang_up_was_delivered(engine, beside):
    asked = {f"passes-{beside}-{tokens}": tokens for tokens in (1, 2, 3, 5, 8, 13)}
    with ThreadPoolExecutor(beside + 1) as pool:
        others = [
            pool.submit(engine.ask, prompt=prompt_and_answer(f"beside-{i}")[0], max_tokens=250) for i in range(beside)
        ]
        for rid, tokens in asked.items():
            with HTTP.stream(
                "POST", f"{engine.gateway}/v1/completions", timeout=30,
                json={"prompt": prompt_and_answer(rid)[0], "max_tokens": 300, "stream": True},
                headers={**engine.client(), "x-request-id": rid},
            ) as answer:  # fmt: skip
                for _, _ in zip(range(tokens), filter(None, answer.iter_lines()), strict=False):
                    pass
        last = until(lambda: last_passes_of(engine, "decode-0", asked), "the abort rows")
        delivered = {rid: engine.post(engine.decode, "/abort_request", {"rid": rid})["after_pass"] for rid in asked}
        assert all(other.result().status_code == 200 for other in others)
    assert {last[rid] - delivered[rid] for rid in asked} <= {0, 1}, (last, delivered)


@pytest.mark.parametrize("stream", [False, True])
def test_a_gateway_that_hangs_up_before_the_first_byte_leaves_nothing_at_a_worker(engine, stream):
    port = HTTP.get(f"{engine.prefill}/server_info").json()["disaggregation_bootstrap_port"]
    address = httpx.URL(engine.decode)
    for i in range(20):
        body = {"input_ids": [1, 2], "rid": f"no-byte-{stream}-{i}", "bootstrap_room": 7 + i, "bootstrap_port": port}
        content = json.dumps({**body, "stream": stream}).encode()
        head = f"POST /generate HTTP/1.1\r\nhost: x\r\nx-kvwitness-hop: {engine.hop['x-kvwitness-hop']}\r\n"
        head += f"content-type: application/json\r\ncontent-length: {len(content)}\r\n\r\n"
        with socket.create_connection((address.host, address.port)) as raw:
            raw.sendall(head.encode() + content)
    for i in range(20):
        until(lambda rid=f"no-byte-{stream}-{i}": "decode-0" in engine.rows_of(rid, "abort"), f"the end of {i}")
    until(engine.idle, "both workers to be idle")
    assert engine.metrics(engine.decode)["kvwitness_free_pages",] == 96


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_hangs_up_before_the_first_token(faulty, stream):
    rid = f"early-{stream}"
    switch(faulty, late_write=True)
    faulty.post(faulty.prefill, "/faults/late-write", {"arm": 1})
    with pytest.raises(httpx.ReadTimeout):
        faulty.ask(headers={"x-request-id": rid}, prompt="hello " * 20, max_tokens=5, stream=stream, timeout=0.7)
    rows = until(
        lambda: (found := faulty.rows_of(rid, "abort")).keys() >= {"gateway-0", "decode-0"} and found, "the ends"
    )
    assert rows["gateway-0"]["output_tokens"] == rows["decode-0"]["output_tokens"] == 0
    assert HTTP.get(f"{faulty.prefill}/faults", headers=faulty.hop).json()["late-write"]["gated"] == [rid]
    faulty.post(faulty.prefill, "/faults/late-write", {"release": True})
    until(faulty.idle, "both workers to be idle")


def test_an_abort_by_the_operator_is_a_typed_error_in_the_stream(engine):
    prompt, _ = prompt_and_answer("operator")
    with HTTP.stream(
        "POST", f"{engine.gateway}/v1/completions", json={"prompt": prompt, "max_tokens": 800, "stream": True},
        headers={**engine.client(), "x-request-id": "operator"}, timeout=30,
    ) as answer:  # fmt: skip
        lines = answer.iter_lines()
        next(lines)
        engine.post(engine.decode, "/abort_request", {"rid": "operator"})
        last = [line for line in lines if line][-1]
    assert json.loads(last[6:])["error"]["code"] == "aborted"


def test_workers_keep_their_doors_shut(engine):
    for url in (engine.prefill, engine.decode):
        for path, body in (
            ("/generate", {"input_ids": [1], "bootstrap_room": 1, "bootstrap_port": 1}),
            ("/abort_request", {"rid": "x"}), ("/faults", {}), ("/faults/late-write", {}),
        ):  # fmt: skip
            for headers in ({}, {"x-kvwitness-hop": "guess"}, engine.client()):
                answer = HTTP.post(url + path, json=body, headers=headers)
                assert (answer.status_code, answer.json()["error"]["code"]) == (401, "unauthorized")
        assert HTTP.get(f"{url}/faults").status_code == 401


def test_worker_bodies_that_make_no_sense(engine):
    for path, body in (
        ("/generate", {"input_ids": [999], "bootstrap_room": 1, "bootstrap_port": 1}), ("/generate", {}),
        ("/abort_request", {}), ("/faults", {"no-such-fault": True}), ("/faults/late-write", {"arm": -1}),
        ("/faults/late-write", {"arm": 1}),
    ):  # fmt: skip
        answer = HTTP.post(engine.prefill + path, json=body, headers=engine.hop)
        assert answer.status_code == 400, (path, body)
        assert answer.json()["error"]["message"]


def test_generate_as_a_router_drives_it(engine):
    """One body to both workers, as sglang-router does; decode's answer is the answer."""
    prompt, expected = prompt_and_answer("router")
    info = HTTP.get(f"{engine.prefill}/server_info").json()
    for stream in (False, True):
        body = {
            "text": prompt, "sampling_params": {"max_new_tokens": 20}, "stream": stream, "rid": f"router-{stream}",
            "bootstrap_host": "127.0.0.1", "bootstrap_port": info["disaggregation_bootstrap_port"],
            "bootstrap_room": 4_000_000_000_000_000_000 + stream,
        }  # fmt: skip
        with ThreadPoolExecutor(2) as pool:
            prefill, decode = pool.map(
                lambda url, body=body: HTTP.post(f"{url}/generate", json=body, headers=engine.hop, timeout=20),
                (engine.prefill, engine.decode),
            )
        assert prefill.status_code == decode.status_code == 200
        if stream:
            lines = [json.loads(line[6:]) for line in decode.text.splitlines() if line.startswith("data: {")]
            assert "".join(line["text"] for line in lines) == expected[:20]
            assert lines[-1]["meta_info"]["finish_reason"] == {"type": "length", "length": 20}
        else:
            assert decode.json()["text"] == expected[:20]


def test_server_info_says_what_runs(engine):
    prefill, decode, gateway = (
        HTTP.get(f"{url}/server_info").json() for url in (engine.prefill, engine.decode, engine.gateway)
    )
    assert (prefill["disaggregation_mode"], decode["disaggregation_mode"]) == ("prefill", "decode")
    assert (prefill["max_total_num_tokens"], decode["max_total_num_tokens"]) == (512, 1536)
    assert (prefill["max_req_input_len"], decode["max_req_input_len"]) == (512, 1023)
    assert prefill["page_size"] == 16
    assert prefill["context_length"] == gateway["context_length"] == 1024
    assert gateway["max_req_input_len"] == 512
    assert prefill["defences"] == dict.fromkeys(OFF, "enforce")
    assert prefill["ledger"] == str(engine.ledger)
    assert HTTP.get(f"{engine.prefill}/model_info").json()["is_generation"] is True
    for url in (engine.prefill, engine.decode, engine.gateway):
        assert HTTP.get(f"{url}/health").status_code == 200


def test_metrics_say_the_same_as_server_info(engine):
    engine.ask(prompt="x" * 513, max_tokens=1)
    found, info = engine.metrics(engine.prefill), HTTP.get(f"{engine.prefill}/server_info").json()
    assert found["kvwitness_pool_tokens",] == info["max_total_num_tokens"] == 512
    assert found["kvwitness_pool_pages",] == 32
    assert found["kvwitness_page_tokens",] == info["page_size"]
    assert found["kvwitness_prompt_limit_tokens",] == info["max_req_input_len"]
    assert found["kvwitness_context_tokens",] == info["context_length"]
    assert found["kvwitness_ledger_broken",] == 0
    for detector in ("D1", "D2", "D4"):
        assert found["kvwitness_check_failures_total", detector] == 0
    gateway = engine.metrics(engine.gateway)
    assert gateway["kvwitness_prompt_limit_tokens",] == 512
    assert gateway["kvwitness_check_failures_total", "D1"] >= 2  # the inverted pools at start, and this prompt
    assert gateway["kvwitness_answers_total", "400"] >= 1


def test_no_text_reaches_the_ledger(engine):
    secret = "zqxjkvb-secret-words"
    assert engine.ask(prompt=secret, max_tokens=3).status_code == 200
    until(engine.idle, "both workers to be idle")
    for path in engine.ledger.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert secret.encode() not in content
            assert b"key-acme" not in content
