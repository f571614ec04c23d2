"""Bodies, tenants, request ids, answers, messages: what stands at the doors, without a process."""

import json
import time

import pytest
from pydantic import ValidationError

from engine.clock import ManualClock
from engine.config import EngineConfig, ProcessConfig, WorkerAddress
from engine.gateway import Gateway
from engine.ledger.recorder import Recorder
from engine.openai_api import CHAT, COMPLETION, Answer, ChatBody, CompletionBody, usage
from engine.relay import Refused
from engine.request import RequestError
from engine.role import Ended, TokenLeft
from engine.sglang_api import GenerateAnswer, GenerateBody
from engine.tenants import Tenants
from engine.wire import Peers, ZmqWire

BODY = {"input_ids": [1, 2, 3], "rid": "r1", "bootstrap_room": 5, "bootstrap_port": 9000}


@pytest.fixture
def gateway(tmp_path):
    config = ProcessConfig(
        engine=EngineConfig(
            str(tmp_path / "ledger"), str(tmp_path), context_tokens=100, tenants={"acme": "key-a", "brio": "key-b"}
        ),
        role="gateway", name="gateway-0", ordinal=0, http_port=1, wire_port=0,
        workers=(
            WorkerAddress("prefill-0", "prefill", "http://127.0.0.1:9", 3),
            WorkerAddress("decode-0", "decode", "http://127.0.0.1:9", 4),
        ),
        memory="", checkpoint="", hop_key="hop", ledger_key="secret",
    )  # fmt: skip
    clock = ManualClock()
    recorder = Recorder(
        tmp_path / "ledger", "gateway-0", ordinal=0, now_us=clock.now_us, digest_key=b"k", threaded=False
    )
    made = Gateway(config, recorder, clock)
    made.pools = {"prefill": 50, "decode": 200}
    yield made
    recorder.close(seal=False)


def refused(gateway, text="hello", budget=4, **headers):
    with pytest.raises(Refused) as caught:
        gateway.receive({"authorization": "Bearer key-a", **headers}, text, budget)
    return caught.value.error


def received(gateway, text="hello", budget=4, **headers):
    return gateway.receive({"authorization": "Bearer key-a", **headers}, text, budget)


@pytest.mark.parametrize(
    "header", ["", "Bearer", "Bearer key-x", "Basic key-a", "Bearer key-a-and-more", "key-a", "Bearer ü"]
)
def test_only_a_known_key_gets_in(gateway, header):
    assert refused(gateway, authorization=header).code == "unauthorized"


def test_the_tenant_comes_from_the_key_and_the_ledger_knows_a_pseudonym(gateway):
    mine, theirs = received(gateway), received(gateway, authorization="Bearer key-b")
    assert mine.tenant != theirs.tenant
    assert mine.tenant.startswith("t-")
    assert "acme" not in mine.tenant
    assert Tenants({}, "other secret").pseudonym("acme") != mine.tenant


def test_a_request_id_is_taken_over_once_whoever_sends_it(gateway):
    assert received(gateway, **{"x-request-id": "order-7"}).rid == "order-7"
    for key in ("key-a", "key-b"):
        error = refused(gateway, **{"x-request-id": "order-7", "authorization": f"Bearer {key}"})
        assert (error.status, error.code) == (409, "request_id_in_use")
    assert len({received(gateway).rid for _ in range(50)}) == 50


@pytest.mark.parametrize("rid", ["a b", "x" * 65, "né", "a/b", 'a"b'])
def test_request_ids_that_are_not_well_formed_are_refused(gateway, rid):
    assert refused(gateway, **{"x-request-id": rid}).code == "bad_request_id"


def test_a_purpose_that_nobody_knows_is_refused(gateway):
    assert refused(gateway, **{"x-kvwitness-purpose": "free text"}).code == "bad_purpose"
    assert received(gateway, **{"x-kvwitness-purpose": "probe"}).purpose == "probe"


@pytest.mark.parametrize(
    ("length", "budget", "code"),
    [(50, 50, None), (51, 1, "prompt_exceeds_pool"), (50, 51, "prompt_exceeds_context"), (0, 1, "empty_prompt")],
)
def test_the_gate_refuses_at_the_boundary_of_the_smallest_pool(gateway, length, budget, code):
    if code is None:
        assert len(received(gateway, "x" * length, budget).tokens) == length
    else:
        error = refused(gateway, "x" * length, budget)
        assert (error.status, error.code) == (400, code)


def test_an_unknown_tenant_leaves_no_row(gateway):
    before = gateway.recorder.seq
    refused(gateway, authorization="Bearer nobody")
    assert gateway.recorder.seq == before


def test_the_last_row_is_written_once(gateway):
    call = received(gateway)
    gateway.end(call, None)
    after = gateway.recorder.seq
    gateway.end(call, RequestError(499, "aborted", "late"))
    assert gateway.recorder.seq == after


@pytest.mark.parametrize(
    "change",
    [
        {"input_ids": []}, {"input_ids": [256]}, {"input_ids": [-1]}, {"input_ids": None}, {"text": "both"},
        {"input_ids": None, "text": ""}, {"bootstrap_room": -1}, {"bootstrap_room": 1 << 63}, {"bootstrap_port": 0},
        {"rid": ""}, {"rid": "x" * 129}, {"sampling_params": {"max_new_tokens": 0}},
    ],
)  # fmt: skip
def test_generate_bodies_that_would_break_a_pass_are_refused(change):
    GenerateBody(**BODY)
    with pytest.raises(ValidationError):
        GenerateBody(**{**BODY, **change})


def test_generate_takes_text_as_well():
    body = GenerateBody(**{**BODY, "input_ids": None, "text": "né"})
    given = body.request({"x-kvwitness-tenant": "t-1"})
    assert given.tokens == tuple("né".encode())
    assert given.bootstrap == "tcp://127.0.0.1:9000"


def test_generate_answers_in_sglangs_shape():
    answer = GenerateAnswer(GenerateBody(**BODY).request({}))
    first = json.loads(answer.token(TokenLeft(104, cached_tokens=2))[6:])
    assert (first["text"], first["output_ids"]) == ("h", [104])
    assert first["meta_info"]["finish_reason"] is None
    assert first["meta_info"]["cached_tokens"] == 2
    answer.token(TokenLeft(105, cached_tokens=2))
    whole = answer.whole(Ended(None, 2, 2))
    assert (whole["text"], whole["output_ids"]) == ("hi", [104, 105])
    assert whole["meta_info"]["finish_reason"] == {"type": "length", "length": 2}
    assert (whole["meta_info"]["prompt_tokens"], whole["meta_info"]["completion_tokens"]) == (3, 2)
    last = json.loads(answer.last(Ended(RequestError(500, "page_tag_mismatch", "no"), 2))[6:])
    assert last["meta_info"]["finish_reason"] == {
        "type": "abort", "message": "no", "status_code": 500, "err_type": "page_tag_mismatch",
    }  # fmt: skip
    assert last["error"] == {"message": "no", "type": "server_error", "code": "page_tag_mismatch"}


def test_characters_split_between_tokens_come_out_whole():
    answer = Answer(COMPLETION, "r", 1, "m")
    texts = [answer.text(byte) for byte in "né€".encode()]
    assert texts == ["n", "", "é", "", "", "€"]
    assert answer.text(0) == ""
    assert answer.text(0xC3) == ""
    assert answer.text(0, final=True) == "\ufffd"


@pytest.mark.parametrize("shape", [COMPLETION, CHAT])
def test_answers_in_openais_shape(shape):
    answer = Answer(shape, "r", 1, "m")
    body = answer.whole("hi", usage(3, 2))
    assert body["usage"] == {
        "prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5, "prompt_tokens_details": {"cached_tokens": 0},
    }  # fmt: skip
    assert body["id"] == f"{shape.prefix}-r"
    chunk = json.loads(answer.chunk("hi")[6:])
    assert chunk["choices"][0]["finish_reason"] is None
    assert json.loads(answer.chunk("", "length")[6:])["choices"][0]["finish_reason"] == "length"


def test_chat_takes_strings_and_text_parts():
    body = ChatBody(
        messages=[{"role": "user", "content": "a"}, {"role": "user", "content": [{"type": "text", "text": "b"}]}]
    )
    assert body.text() == "ab"
    assert ChatBody(messages=body.messages, max_completion_tokens=3, max_tokens=9).budget == 3
    with pytest.raises(ValidationError):
        ChatBody(messages=[{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}])


@pytest.mark.parametrize("change", [{"n": 2}, {"max_tokens": 0}, {"prompt": ["a", "b"]}, {"prompt": None}])
def test_completions_that_cannot_be_answered_are_refused(change):
    assert CompletionBody(prompt="a", ignore_eos=True, stream_options=None).budget == 16
    with pytest.raises(ValidationError):
        CompletionBody(**{"prompt": "a", **change})


def test_messages_without_the_hop_key_are_dropped():
    clock = ManualClock()
    inbox, friend, stranger = (ZmqWire(key, clock.now_us) for key in ("key", "key", "guess"))
    try:
        stranger.send(inbox.address, {"n": 1})
        friend.send(inbox.address, {"n": 2})
        friend.send(inbox.address, {"n": 3})
        heard, deadline = [], time.monotonic() + 10
        while len(heard) < 2 and time.monotonic() < deadline:
            heard += inbox.receive()
        assert [message["n"] for message in heard] == [2, 3]
        assert set(heard[0]) == {"n", "heard"}
    finally:
        for wire in (inbox, friend, stranger):
            wire.close()


@pytest.mark.parametrize("offset", [0, 5_000_000, -70_000])
@pytest.mark.parametrize(("there", "back"), [(300, 300), (10, 9_000), (4_000, 5)])
def test_a_clock_offset_is_within_its_error_however_lopsided_the_way(offset, there, back):
    true = [1_000_000_000]
    prefill = Peers("prefill-0", 1, "p", lambda: 11, lambda: true[0])
    decode = Peers("decode-0", 3, "d", lambda: 22, lambda: true[0] + offset)
    first = decode.stamp("prefill-0", {"kind": "grant"})
    assert first["echo"] is None
    true[0] += there
    assert prefill.hear(first).offset_us is None  # nothing was echoed: no clock is proved
    true[0] += 777
    reply = prefill.stamp("decode-0", {"kind": "ack"})
    true[0] += back
    beat = decode.hear(reply)
    assert (beat.peer, beat.epoch, beat.seq) == ("prefill-0", 1, 11)
    assert abs(beat.offset_us - -offset) <= beat.error_us
    assert 0 < beat.error_us <= (there + back) // 2 + 1


def test_the_quickest_round_trip_counts_until_drift_has_eaten_it_up():
    true = [1_000_000_000]
    prefill = Peers("prefill-0", 1, "p", lambda: 1, lambda: true[0])
    decode = Peers("decode-0", 1, "d", lambda: 1, lambda: true[0] + 1_000)

    def round_trip(there, back):
        message = decode.stamp("prefill-0", {"kind": "beat"})
        true[0] += there
        prefill.hear(message)
        reply = prefill.stamp("decode-0", {"kind": "beat"})
        true[0] += back
        return decode.hear(reply)

    first = round_trip(100, 100)
    assert first.error_us == 101
    slow = round_trip(9_000, 40)
    assert 101 < slow.error_us < 110  # the quick reading, a little older; not the slow one's 4,521
    assert abs(slow.offset_us + 1_000) <= slow.error_us
    true[0] += 60_000_000
    late = round_trip(9_000, 40)
    assert late.error_us == 4_521  # a minute's drift outweighs it by now
    assert abs(late.offset_us + 1_000) <= late.error_us


def test_a_peer_that_was_restarted_has_a_clock_of_its_own():
    true = [1_000_000_000]
    prefill = Peers("prefill-0", 1, "p", lambda: 1, lambda: true[0])
    decode = Peers("decode-0", 1, "d", lambda: 1, lambda: true[0])
    prefill.hear(decode.stamp("prefill-0", {"kind": "beat"}))
    assert decode.hear(prefill.stamp("decode-0", {"kind": "beat"})).offset_us is not None
    reborn = Peers("prefill-0", 2, "p", lambda: 1, lambda: true[0])
    assert decode.hear(reborn.stamp("decode-0", {"kind": "beat"})).offset_us is None


def test_who_has_waited_longest_for_a_word_is_known():
    now = [1_000]
    own = Peers("decode-0", 1, "d", lambda: 1, lambda: now[0])
    others = {name: Peers(name, 1, name, lambda: 1, lambda: now[0]) for name in ("a", "b", "c")}
    assert own.told_us() is None
    for other in others.values():
        own.hear(other.stamp("decode-0", {"kind": "beat"}))
    for name in ("a", "b", "c", "a", "c", "c", "b", "a", "a", "c"):
        now[0] += 10
        own.stamp(name, {"kind": "beat"})
        own.hear(others[name].stamp("decode-0", {"kind": "beat"}))
        assert own.told_us() == min(view.told_t for view in own.known.values())
    assert own.told_us() == 1_070  # b, the seventh


def test_process_configuration_survives_its_file_and_is_private(tmp_path, gateway):
    path = tmp_path / "child.json"
    gateway.config.save(path)
    assert ProcessConfig.load(path) == gateway.config
    assert path.stat().st_mode & 0o077 == 0


def test_a_tenant_is_of_the_organisation_in_its_name_or_of_its_own():
    tenants = Tenants({}, "ledger key")
    one, other, alone = (tenants.identity(name) for name in ("house/one", "house/other", "one"))
    assert one.organisation == other.organisation
    assert len({one.tenant, other.tenant, alone.tenant}) == 3
    assert alone.organisation != one.organisation
    assert tenants.identity("alone/x").organisation == tenants.identity("alone").organisation
    assert one.user is None
    assert len({tenants.identity(name, "u").user for name in ("house/one", "house/other")}) == 2
