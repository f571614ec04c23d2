"""The prefix cache on real processes: what clients are told of it, whose pages pass, and what the ledger says of that."""

import json

import openai
import pytest
from live_http import HTTP
from live_texts import ASKED, SHARED_TOKENS, endless, prompts, verdict_of, verdicts_of

from engine.ledger.reader import read_ledger
from engine.truth import read_truth

pytestmark = pytest.mark.engine


@pytest.fixture
def cached(guarded):
    """Tenants keep their pages to themselves; every defence on."""
    return guarded


@pytest.fixture(scope="session")
def unscoped(live_engine):
    """The same, but nobody looks at the keys. The faults that spoil them are switched by the tests."""
    return live_engine(prefix_cache="tenant", defences={"scoped-keys": "off"}, truth=True)


def complete(engine, tenant, rid, prompt, stream=False):
    """(text, cached tokens) as the real client has them."""
    with openai.OpenAI(base_url=f"{engine.gateway}/v1", api_key=f"key-{tenant}", max_retries=0) as client:
        settings = {"model": "m", "prompt": prompt, "max_tokens": ASKED, "extra_headers": {"x-request-id": rid}}
        if not stream:
            answer = client.completions.create(**settings)
            return answer.choices[0].text, answer.usage.prompt_tokens_details.cached_tokens
        chunks = list(client.completions.create(**settings, stream=True, stream_options={"include_usage": True}))
        text = "".join(chunk.choices[0].text for chunk in chunks if chunk.choices)
        return text, chunks[-1].usage.prompt_tokens_details.cached_tokens


@pytest.mark.parametrize("stream", [False, True])
def test_a_second_request_with_the_same_prefix_is_told_how_much_was_cached(cached, stream):
    seed = f"cached-{stream}"
    asked = prompts(seed, 3)
    said = [
        complete(cached, tenant, f"{seed}-{i}", prompt, stream)
        for i, (tenant, (prompt, _)) in enumerate(zip(("acme", "acme", "brio"), asked, strict=True))
    ]
    assert [text for text, _ in said] == [expected for _, expected in asked]
    assert [count for _, count in said] == [0, SHARED_TOKENS, 0]
    verdicts_of(cached, [f"{seed}-{i}" for i in range(3)], verdict="clean", proof="proved")
    truth = read_truth(cached.ledger / "truth")
    assert not any(truth[f"{seed}-{i}"].contaminated or truth[f"{seed}-{i}"].cross_tenant for i in range(3))


def test_a_prompt_that_is_cached_whole_still_computes_its_last_token(cached):
    (prompt, expected), *_ = prompts("whole", 1)
    prompt = prompt[: SHARED_TOKENS + 12]
    for i, cached_tokens in enumerate((0, SHARED_TOKENS)):
        assert complete(cached, "cyan", f"whole-{i}", prompt) == (expected, cached_tokens)
    text = endless("whole-pages", 128)
    prompt = text + text[:16]  # nine full pages
    for cached_tokens in (0, 128):
        said = cached.ask(prompt=prompt, max_tokens=20).json()
        assert said["choices"][0]["text"] == text[16:36]
        assert said["usage"]["prompt_tokens_details"] == {"cached_tokens": cached_tokens}


def test_workers_say_it_as_sglang_does(cached):
    prompt, _ = prompts("worker-door", 1)[0]
    for attempt, cached_tokens in enumerate((0, SHARED_TOKENS)):
        port = cached.info(cached.prefill)["disaggregation_bootstrap_port"]
        body = {
            "text": prompt, "bootstrap_port": port, "bootstrap_room": 77 + attempt, "rid": f"worker-door-{attempt}",
            "sampling_params": {"max_new_tokens": 3},
        }  # fmt: skip
        headers = {**cached.hop, "x-kvwitness-tenant": "t-direct"}
        with HTTP.stream(
            "POST", f"{cached.decode}/generate", json={**body, "stream": True}, headers=headers, timeout=30
        ) as answer:
            at_prefill = HTTP.post(f"{cached.prefill}/generate", json=body, headers=headers, timeout=30).json()
            lines = [json.loads(line[6:]) for line in answer.iter_lines() if line.startswith("data: {")]
        assert at_prefill["meta_info"]["cached_tokens"] == cached_tokens
        assert {line["meta_info"]["cached_tokens"] for line in lines} == {cached_tokens}


def test_pages_are_evicted_for_new_prompts_and_every_answer_is_right(cached):
    before = cached.metrics(cached.prefill)
    for i in range(10):
        prompt, expected = prompts(f"evict-{i}", 1)[0]
        assert complete(cached, "acme", f"evict-{i}", prompt) == (expected, 0)
    found = cached.metrics(cached.prefill)
    assert found["kvwitness_cached_pages",] + found["kvwitness_free_pages",] == 96
    assert found["kvwitness_cached_pages",] > 64
    assert found["kvwitness_shared_pages",] == found["kvwitness_used_pages",] == 0
    assert found["kvwitness_prefix_asked_tokens_total",] - before["kvwitness_prefix_asked_tokens_total",] == 2680
    assert found["kvwitness_prefix_hit_tokens_total",] == before["kvwitness_prefix_hit_tokens_total",]
    verdict_of(cached, "evict-9", verdict="clean")


def test_users_of_a_tenant_share_its_cache_unless_they_are_to_be_parted(cached):
    prompt, _ = prompts("users", 1)[0]
    said = [cached.ask(prompt=prompt, max_tokens=3, user=user).json() for user in ("one", "two")]
    assert [each["usage"]["prompt_tokens_details"]["cached_tokens"] for each in said] == [0, SHARED_TOKENS]


@pytest.mark.parametrize(("fault", "mechanism"), [("incomplete_key", "M12"), ("shared_scope", "P0")])
def test_another_tenants_hit_is_exposed_and_its_text_right(unscoped, fault, mechanism):
    engine, asked = unscoped, prompts(fault, 2)
    engine.switch(engine.prefill, **{fault: True})
    try:
        said = [complete(engine, tenant, f"{fault}-{tenant}", asked[i][0]) for i, tenant in enumerate(("acme", "brio"))]
    finally:
        engine.switch(engine.prefill, **{fault: False})
    assert said == [(asked[0][1], 0), (asked[1][1], SHARED_TOKENS)]
    found = verdicts_of(engine, [f"{fault}-brio"], verdict="exposed", mechanism=mechanism)
    assert found[f"{fault}-acme"]["verdict"] == "clean"
    truth = read_truth(engine.ledger / "truth")[f"{fault}-brio"]
    assert (truth.contaminated, truth.cross_tenant) == (False, {f"{fault}-acme"})


def test_a_global_cache_is_exposure_by_policy(tight):
    asked = prompts("global", 2)
    said = [complete(tight, tenant, f"global-{tenant}", asked[i][0]) for i, tenant in enumerate(("acme", "brio"))]
    assert said == [(asked[0][1], 0), (asked[1][1], SHARED_TOKENS)]
    verdict_of(tight, "global-brio", verdict="exposed", mechanism="P0")


def test_what_was_evicted_comes_back_from_the_host_pool(tight):
    prompt, expected = prompts("host", 1)[0]
    assert complete(tight, "acme", "host-before", prompt) == (expected, 0)
    for i in range(4):  # each fills half of the pool
        complete(tight, "acme", f"host-between-{i}", prompts(f"host-{i}", 1)[0][0])
    assert complete(tight, "acme", "host-after", prompt) == (expected, SHARED_TOKENS)
    verdict_of(tight, "host-after", verdict="clean", proof="proved")
    assert not read_truth(tight.ledger / "truth")["host-after"].contaminated
    loads = [row for row in read_ledger(tight.ledger).tables["cache"].to_pylist() if row["op"] == "load"]
    assert sum(row["n"] for row in loads) * 16 == SHARED_TOKENS
    assert tight.metrics(tight.prefill)["kvwitness_host_cached_pages",] >= SHARED_TOKENS // 16
    pools = tight.audit(tight.prefill)["pools"]
    assert {name: pool["wrong"] for name, pool in pools.items()} == {"kv": [], "host": []}


@pytest.mark.parametrize("fault", ["incomplete_key", "shared_scope"])
def test_with_the_keys_checked_the_other_tenant_hits_nothing(cached, fault):
    asked = prompts(f"checked-{fault}", 2)
    failures = cached.metrics(cached.prefill)["kvwitness_check_failures_total", "K"]
    cached.switch(cached.prefill, **{fault: True})
    try:
        said = [
            complete(cached, tenant, f"checked-{fault}-{tenant}", asked[i][0])
            for i, tenant in enumerate(("acme", "brio"))
        ]
    finally:
        cached.switch(cached.prefill, **{fault: False})
    assert said == [(asked[0][1], 0), (asked[1][1], 0)]
    assert cached.metrics(cached.prefill)["kvwitness_check_failures_total", "K"] == failures + 2
    verdict_of(cached, f"checked-{fault}-brio", verdict="clean")
