"""Faults on real bytes: whose words or stamps come out, what the record says of it, and the same with the defences on."""

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import httpx
import pytest
from live_http import HTTP
from live_texts import abort_gated, calm, prompt_and_answer, record, until, verdict_of

from engine.faults import CLASSES
from engine.truth import read_truth

pytestmark = pytest.mark.engine

DONOR, VICTIM = "Mrs. Quill", "nobody"
PAGES = 12  # of every prompt here


@contextmanager
def fault(engine, **switches):
    """Faults on all workers within the block; afterwards everything is calm again."""
    engine.switch(**switches)
    try:
        yield
    finally:
        calm(engine, *switches)


def ask(engine, rid, prompt, tokens=30, tenant="acme"):
    return engine.ask(tenant=tenant, headers={"x-request-id": rid}, prompt=prompt, max_tokens=tokens, timeout=60)


def said(answer):
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]["text"]


class Reader:
    """A streamed answer of another tenant that is under way."""

    def __init__(self, engine, rid, tokens):
        self._client = httpx.Client(timeout=60)
        body = {"prompt": record(rid, VICTIM)[0], "max_tokens": tokens, "stream": True}
        headers = {**engine.client("brio"), "x-request-id": rid}
        request = self._client.build_request("POST", f"{engine.gateway}/v1/completions", json=body, headers=headers)
        self.answer = self._client.send(request, stream=True)
        self._lines = filter(None, self.answer.iter_lines())
        next(self._lines)

    def rest(self):
        """Everything to the end: the text, and the code of an error."""
        events = [json.loads(line[6:]) for line in self._lines if line.startswith("data: {")]
        self._client.close()
        code = next((event["error"]["code"] for event in events if "error" in event), None)
        return "".join(event["choices"][0]["text"] for event in events if "error" not in event), code


def leaked(engine, rid, donor, mechanisms):
    """The stamps say that a response read another's pages, and the record says so, or that it cannot know."""
    truth = read_truth(engine.ledger / "truth")[rid]
    assert truth.contaminated, truth
    assert donor in truth.donors
    row = verdict_of(engine, rid, verdict=("contaminated", "unknown"))
    if row["verdict"] == "contaminated":
        assert row["mechanism"] in mechanisms, row
        assert donor in row["donors"], row


@pytest.mark.parametrize("name", ["fail_open", "partial_state"])
def test_pages_that_were_not_sent_tell_their_former_owners_record(trusting, name):
    """M2, M14: the head of the table is missing, or its second half."""
    donor, victim = f"{name}-donor", f"{name}-victim"
    ask(trusting, donor, record(donor, DONOR)[0])
    until(trusting.idle, "the workers to be idle")
    with fault(trusting, **{name: {"component": "kv"} if name == "partial_state" else True}):
        text = said(ask(trusting, victim, record(victim, VICTIM)[0], tenant="brio"))
    if name == "fail_open":
        assert text.startswith(f" {DONOR} has a bed up")
    leaked(trusting, victim, donor, {"M1", "M2", "M14"})


def test_a_source_that_is_reused_while_it_is_read_sends_its_next_owners_record(trusting):
    """M5."""
    victim, donor = "reused-victim", "reused-donor"
    with fault(trusting, source_reuse=True), ThreadPoolExecutor(1) as pool:
        trusting.post(trusting.prefill, "/faults/late-write", {"arm": 1})
        asking = pool.submit(ask, trusting, victim, record(victim, VICTIM)[0], tenant="brio")
        until(lambda: victim in trusting.fault_state(trusting.prefill)["late-write"]["gated"], "the gated handoff")
        assert said(ask(trusting, donor, record(donor, DONOR)[0])).startswith(f" {DONOR}")
        trusting.post(trusting.prefill, "/faults/late-write", {"release": True})
        assert said(asking.result()).startswith(f" {DONOR} has a bed up")
    leaked(trusting, victim, donor, {"M5"})


def test_an_early_acknowledgement_lets_a_landing_over_the_next_owner(trusting):
    """M4."""
    free = trusting.metrics(trusting.decode)["kvwitness_free_pages",]
    with fault(trusting, early_ack=True):
        abort_gated(trusting, "acked-donor", record("acked-donor", DONOR)[0])
        until(lambda: trusting.metrics(trusting.decode)["kvwitness_free_pages",] == free, "decode to free the pages")
        reader = Reader(trusting, "acked-victim", 400)
        trusting.post(trusting.prefill, "/faults/late-write", {"release": True})
        assert reader.rest()[1] is None
    leaked(trusting, "acked-victim", "acked-donor", {"M4"})


def test_pages_that_are_freed_while_they_are_read_show_their_next_owners_bytes(trusting):
    """M7."""
    engine = trusting
    with fault(engine):
        engine.switch(engine.decode, early_free={"pages": PAGES - 1})
        reader = Reader(engine, "freed-victim", 600)
        until(lambda: engine.fault_state(engine.decode)["struck"].get("early-free"), "the free")
        engine.switch(engine.decode, early_free=False)
        ask(engine, "freed-donor", record("freed-donor", DONOR)[0])
        assert reader.rest()[1] is None
    leaked(engine, "freed-victim", "freed-donor", {"M7"})


def test_pages_that_were_freed_twice_have_two_owners(trusting):
    """M8."""
    engine = trusting
    with fault(engine):
        engine.switch(engine.decode, double_free={"pages": PAGES})
        ask(engine, "twice-first", record("twice-first", "somebody")[0], tokens=2)
        until(engine.idle, "the workers to be idle")
        engine.switch(engine.decode, double_free=False)
        reader = Reader(engine, "twice-victim", 300)
        ask(engine, "twice-donor", record("twice-donor", DONOR)[0])
        assert reader.rest()[1] is None
    leaked(engine, "twice-victim", "twice-donor", {"M8"})


def test_shifted_pages_leave_the_first_one_to_its_former_owner(trusting):
    """M13."""
    ask(trusting, "shift-donor", record("shift-donor", DONOR)[0])
    until(trusting.idle, "the workers to be idle")
    with fault(trusting, shifted_pages=True):
        ask(trusting, "shift-victim", record("shift-victim", VICTIM)[0], tenant="brio")
    leaked(trusting, "shift-victim", "shift-donor", {"M13"})
    assert read_truth(trusting.ledger / "truth")["shift-victim"].misplaced


def test_two_requests_in_one_room(trusting):
    """M11: the second request's door was told the first one's room while that was alive."""
    engine, gateway = trusting, trusting.gateway
    with ThreadPoolExecutor(2) as pool:
        engine.switch(engine.prefill, late_write=True)
        engine.post(engine.prefill, "/faults/late-write", {"arm": 1})
        first = pool.submit(ask, engine, "room-first", record("room-first", DONOR)[0])
        until(lambda: "room-first" in engine.fault_state(engine.prefill)["late-write"]["gated"], "the gated handoff")
        engine.switch(gateway, room_collision=True)
        second = pool.submit(ask, engine, "room-second", record("room-second", VICTIM)[0], tenant="brio")
        until(lambda: engine.fault_state(gateway)["struck"].get("room-collision"), "the collision")
        engine.switch(gateway, room_collision=False)
        calm(engine, "late_write")
        assert {first.result().status_code, second.result().status_code} <= {200, 502}
    rooms = until(lambda: len(found := rooms_of(engine, "room-first", "room-second")) == 2 and found, "the room rows")
    assert len(set(rooms.values())) == 1


def rooms_of(engine, *rids):
    return {
        rid: row["room"] for rid in rids for worker, row in engine.rows_of(rid, "room").items() if worker == "gateway-0"
    }


def test_a_leak_is_for_the_audit_to_find(trusting):
    """M9. Behind it the pages are lost to this engine, so few are."""
    engine = trusting
    engine.switch(engine.decode, leak=True)
    reader = Reader(engine, "leaky", 300)
    engine.post(engine.decode, "/abort_request", {"rid": "leaky"})
    assert reader.rest()[1] == "aborted"
    calm(engine, "leak")
    wrong = engine.audit(engine.decode)["pools"]["kv"]
    assert len(wrong["wrong"]) >= PAGES
    assert {"is owned by a request that is at an end"} <= {fact["why"] for fact in wrong["findings"]}


DEFENDED = {
    "fail_open": (True, "D2"),
    "partial_state": ({"component": "kv"}, "D2"),
    "source_reuse": (True, "O"),
    "early_post": (True, "O"),
    "early_free": ({"pages": PAGES - 1}, "D8"),
    "double_free": ({"pages": PAGES}, "D8"),
    "shifted_pages": (True, "G"),
}


@pytest.mark.parametrize("name", DEFENDED)
def test_with_the_defences_on_the_fault_is_not_taken_or_its_request_ends(guarded, name):
    setting, detector = DEFENDED[name]
    failures = sum(guarded.metrics(url)["kvwitness_check_failures_total", detector] for url in guarded.workers)
    prompt, expected = record(f"defended-{name}", VICTIM)
    with fault(guarded, **{name: setting}):
        answer = ask(guarded, f"defended-{name}", prompt, tenant="brio")
    if detector == "D2":
        assert (answer.status_code, answer.json()["error"]["code"]) == (502, "covered_less_than_reserved")
        assert DONOR not in answer.text
    else:
        assert said(answer).startswith(expected[:30])
    after = sum(guarded.metrics(url)["kvwitness_check_failures_total", detector] for url in guarded.workers)
    assert after > failures
    truth = read_truth(guarded.ledger / "truth")[f"defended-{name}"]
    assert not (truth.contaminated or truth.misplaced or truth.unwritten)


def test_an_early_acknowledgement_is_not_given_where_outstanding_writes_are_counted(guarded):
    with fault(guarded, early_ack=True):
        abort_gated(guarded, "honest-donor", prompt_and_answer("honest-donor")[0])
        # The writes that no batch was posted of are cancelled, so that nothing is outstanding and the ack is true.
        until(lambda: guarded.metrics(guarded.decode)["kvwitness_acks_outstanding",] == 0, "the acknowledgement")
    assert guarded.metrics(guarded.prefill)["kvwitness_check_failures_total", "O"] > 0


def test_a_second_request_in_a_room_is_refused(guarded):
    engine = guarded
    with ThreadPoolExecutor(1) as pool:
        engine.switch(engine.prefill, late_write=True)
        engine.post(engine.prefill, "/faults/late-write", {"arm": 1})
        prompt, expected = prompt_and_answer("room-kept")
        first = pool.submit(ask, engine, "room-kept", prompt)
        until(lambda: "room-kept" in engine.fault_state(engine.prefill)["late-write"]["gated"], "the gated handoff")
        engine.switch(engine.gateway, room_collision=True)
        second = ask(engine, "room-refused", record("room-refused", VICTIM)[0], tenant="brio")
        engine.switch(engine.gateway, room_collision=False)
        calm(engine, "late_write")
        assert (second.status_code, second.json()["error"]["code"]) == (409, "room_in_use")
        assert said(first.result()) == expected[:30]


def test_every_fault_can_be_switched_on_every_process(guarded):
    for url in (guarded.gateway, *guarded.workers):
        for each in CLASSES:
            assert guarded.post(url, "/faults", {each.name: True})["active"] == [each.name]
            assert guarded.post(url, "/faults", {each.name: False})["active"] == []
        assert HTTP.post(f"{url}/faults", json={"leak": True}).status_code == 401
        assert HTTP.get(f"{url}/faults").status_code == 401


def test_a_body_of_faults_is_taken_whole_or_not_at_all(guarded):
    for wrong in (
        {"no-such-fault": True}, {"early-free": {"page": 1}}, {"early-free": {"pages": "one"}},
        {"early-free": {"pages": -1}}, {"incomplete-key": {"field": 3}}, {"late-write": {"armed": 1}}, {"leak": 1},
    ):  # fmt: skip
        answer = HTTP.post(f"{guarded.decode}/faults", json={"leak": True, **wrong}, headers=guarded.hop)
        assert answer.status_code == 400, wrong
        assert guarded.fault_state(guarded.decode)["active"] == []


def test_an_audit_needs_the_hop_credential_and_tells_every_pool(guarded):
    for url in guarded.workers:
        assert HTTP.post(f"{url}/audit").status_code == 401
    found = guarded.audit(guarded.decode)
    assert found["worker"] == "decode-0"
    assert sum(found["pools"]["kv"]["counts"].values()) == 96
    assert guarded.audit(guarded.prefill)["cache"] == []
