"""Several workers of a role, and kill -9 of each process while a handoff's writes are gated: who goes on, who is told."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from live_http import HTTP
from live_texts import endless, until

from engine.ledger.reader import read_ledger
from engine.ledger.tag import split_tag

pytestmark = pytest.mark.engine

WORKERS = ("prefill-0", "prefill-1", "decode-0", "decode-1")


@pytest.fixture
def engine(two_of_each):
    """Made whole again behind each test: who was killed comes up as a new epoch, and so does who waits for the dead."""
    engine = two_of_each
    yield engine
    start_dead(engine)
    for url in engine.state["prefill"]:
        engine.post(url, "/faults/late-write", {"release": True})
        engine.post(url, "/faults", {"late-write": False})
    for index, url in enumerate(engine.state["decode"]):
        if engine.metrics(url)["kvwitness_held_pages",]:
            engine.kill(f"decode-{index}")
    start_dead(engine)


def start_dead(engine):
    for name in engine.running.ended():
        engine.running.start(name)
    until(lambda: up(engine) == {*WORKERS}, "all workers to be up", seconds=60)


def up(engine):
    """Names of the workers that the gateway knows to be up; none where there is no gateway."""
    try:
        return {worker["worker"] for worker in engine.info()["workers"] if worker["up"]}
    except httpx.HTTPError:
        return set()


def epoch_of(engine, name):
    """The epoch of a worker as the gateway knows it."""
    return next(worker["epoch"] for worker in engine.info()["workers"] if worker["worker"] == name)


def prompt_and_answer(seed, tokens=40):
    """A short prompt, and the characters that must follow it."""
    text = endless(seed, 64 + tokens)
    return text + text[:12], text[12 : 12 + tokens]


def answered_right(engine, seed, requests=4):
    """Several requests at once are answered as they must be."""
    asked = {f"{seed}-{i}": prompt_and_answer(f"{seed}-{i}") for i in range(requests)}
    with ThreadPoolExecutor(requests) as pool:
        answers = list(
            pool.map(lambda rid: engine.ask(headers={"x-request-id": rid}, prompt=asked[rid][0], max_tokens=40), asked)
        )
    for (rid, (_, expected)), answer in zip(asked.items(), answers, strict=True):
        assert answer.status_code == 200, (rid, answer.text)
        assert answer.json()["choices"][0]["text"] == expected


class Stream:
    """A streamed request whose lines are read one by one; of its answer the first `known` characters are known."""

    def __init__(self, engine, rid, known=200, tokens=None):
        prompt, self.expected = prompt_and_answer(rid, known)
        body = {"prompt": prompt, "max_tokens": tokens or known, "stream": True}
        self._client = httpx.Client(timeout=30)
        request = self._client.build_request(
            "POST", f"{engine.gateway}/v1/completions", json=body, headers={**engine.client(), "x-request-id": rid}
        )
        self.answer = self._client.send(request, stream=True)
        self._lines = filter(None, self.answer.iter_lines())
        self.text = ""

    def read(self, tokens):
        for _ in range(tokens):
            self.text += json.loads(next(self._lines)[6:])["choices"][0]["text"]

    def rest(self):
        """Everything to the end; (text of all tokens, the body of an error event or None)."""
        for line in self._lines:
            body = json.loads(line[6:]) if line.startswith("data: {") else {}
            if "error" in body:
                assert not list(self._lines)
                self._client.close()
                return self.text, body["error"]
            self.text += body["choices"][0]["text"] if body else ""
        self._client.close()
        return self.text, None


def gate(engine, url):
    """The next handoff of a prefill worker is held back before its first byte."""
    engine.post(url, "/faults", {"late-write": True})
    engine.post(url, "/faults/late-write", {"arm": 1})


def gated(engine, url):
    return HTTP.get(f"{url}/faults", headers=engine.hop, timeout=10).json()["late-write"]["gated"]


def ask_gated(engine, pool, rid, stream):
    """A request on prefill-0 and the first decode worker, under way in a thread, its writes held back."""
    prefill = engine.state["prefill"][0]
    gate(engine, prefill)
    prompt, _ = prompt_and_answer(rid)
    asking = pool.submit(
        engine.ask, headers={"x-request-id": rid}, prompt=prompt, max_tokens=40, stream=stream, timeout=60
    )
    until(lambda: rid in gated(engine, prefill) or asking.done(), "the gated handoff")
    assert not asking.done(), asking.result().text
    return asking


def lost(answer, role):
    """Whether an answer says, and says nothing but, that a worker of this role was lost."""
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "worker_lost"), answer.text
    message = answer.json()["error"]["message"]
    assert role in message
    assert not any(word in message for word in (*WORKERS, "127.0.0.1", "http", "Error"))


def record_of_a_death(engine, name, epoch):
    """The ledger reads; of the dead life a tail may be missing, of nobody a row."""
    ledger = read_ledger(engine.ledger)
    # Who is killed while it writes leaves a frame half written; the live leave none.
    lives = {f"{writer.worker}-{writer.epoch}" for writer in ledger.writers if writer.state == "dead"}
    assert {(problem.kind, Path(problem.where).stem) for problem in ledger.problems} <= {
        ("torn stream", life) for life in lives
    }
    assert {writer.state for writer in ledger.writers if (writer.worker, writer.epoch) == (name, epoch)} == {"dead"}
    assert {gap.reason for gap in ledger.gaps if (gap.worker, gap.epoch) == (name, epoch)} == {"dead writer"}
    assert {gap.before_seq for gap in ledger.gaps} == {None}
    return ledger


def never_answered(ledger, rid):
    """Whether no token of a request left on any worker."""
    requests = ledger.tables["requests"].to_pylist()
    mine = {(row["worker"], row["epoch"], row["req"]) for row in requests if row["rid"] == rid}
    rows = [row for row in requests if (row["worker"], row["epoch"], row["req"]) in mine]
    return not any(row["output_tokens"] for row in rows) and not any(
        row["op"] == "first_token" and not row["worker"].startswith("prefill") for row in rows
    )


def test_all_workers_take_part_and_the_state_lists_them(engine):
    assert (len(engine.state["prefill"]), len(engine.state["decode"])) == (2, 2)

    def live():
        counts = {worker["worker"]: worker["live_requests"] for worker in engine.info()["workers"]}
        return counts["decode-0"], counts["decode-1"]

    with ThreadPoolExecutor(4) as pool:
        opening = [pool.submit(Stream, engine, f"part-{i}", known=350) for i in range(4)]
        until(lambda: live() == (2, 2), "two requests on each")
        streams = [each.result() for each in opening]
    for stream in streams:
        assert stream.rest() == (stream.expected, None)
    ledger = read_ledger(engine.ledger)
    grants = ledger.tables["transfers"].to_pylist()
    pairs = {(row["worker"], row["peer"]) for row in grants if row["op"] == "grant"}
    assert {worker for worker, _ in pairs} == {"decode-0", "decode-1"}
    assert {peer for _, peer in pairs} <= {"prefill-0", "prefill-1"}
    ordinals = {writer.worker: writer.ordinal for writer in ledger.writers}
    assert ordinals == {"gateway-0": 0, "prefill-0": 1, "prefill-1": 2, "decode-0": 3, "decode-1": 4}


@pytest.mark.parametrize("stream", [False, True])
def test_a_prefill_worker_killed_in_a_handoff(engine, stream):
    rid, epoch = f"prefill-dies-{stream}", epoch_of(engine, "prefill-0")
    with ThreadPoolExecutor(1) as pool:
        beside = Stream(engine, f"{rid}-beside")
        beside.read(1)  # its KV is handed over: it needs no prefill any more
        asking = ask_gated(engine, pool, rid, stream)
        engine.kill("prefill-0")
        lost(asking.result(), "prefill")
    until(lambda: "prefill-0" not in up(engine), "the gateway to know")
    assert beside.rest() == (beside.expected, None)
    answered_right(engine, f"{rid}-later")
    rows = until(lambda: engine.rows_of(rid, "abort").get("gateway-0"), "the gateway's row")
    assert (rows["status"], rows["reason"], rows["output_tokens"]) == ("502", "worker_lost", 0)
    assert never_answered(record_of_a_death(engine, "prefill-0", epoch), rid)


def test_a_decode_worker_killed_in_a_handoff_and_in_an_answer(engine):
    rid, epoch = "decode-dies", epoch_of(engine, "decode-0")
    with ThreadPoolExecutor(2) as pool:
        asking = ask_gated(engine, pool, rid, stream=False)
        beside, hit = Stream(engine, f"{rid}-beside", 300), Stream(engine, f"{rid}-hit", 100, 500)
        beside.read(1)
        hit.read(1)
        whole = pool.submit(engine.ask, prompt=prompt_and_answer(f"{rid}-whole")[0], max_tokens=300)
        on = {worker["worker"]: worker for worker in engine.info()["workers"]}
        assert (on["decode-0"]["live_requests"], on["decode-1"]["live_requests"]) in ((2, 1), (2, 2)), on
        engine.kill("decode-0")
        lost(asking.result(), "decode")
        text, error = hit.rest()
        assert (error["code"], len(text) < 500) == ("worker_lost", True)
        assert text[:100] == hit.expected[: len(text)]
        assert beside.rest() == (beside.expected, None)
        assert whole.result().status_code == 200
    answered_right(engine, f"{rid}-later")
    engine.post(engine.prefill, "/faults/late-write", {"release": True})
    until(lambda: engine.metrics(engine.prefill)["kvwitness_running_requests",] == 0, "prefill to let the half go")
    assert never_answered(record_of_a_death(engine, "decode-0", epoch), rid)


def test_what_was_meant_for_a_dead_life_of_a_worker_does_not_land_in_its_next(engine):
    with ThreadPoolExecutor(1) as pool:
        asking = ask_gated(engine, pool, "former-life", stream=False)
        engine.kill("decode-0")
        lost(asking.result(), "decode")
    start_dead(engine)
    reader = Stream(engine, "next-life")
    reader.read(1)
    engine.post(engine.prefill, "/faults/late-write", {"release": True})
    until(lambda: engine.metrics(engine.prefill)["kvwitness_running_requests",] == 0, "the writes to be over")
    assert reader.rest() == (reader.expected, None)
    rows = read_ledger(engine.ledger).tables["transfers"].to_pylist()
    failed = next(row for row in reversed(rows) if row["op"] == "fail" and row["worker"] == "prefill-0")
    granted = next(row for row in reversed(rows) if row["op"] == "grant" and row["worker"] == "decode-0")
    assert "not connected" in failed["status"]
    assert (failed["peer"], granted["peer"]) == ("decode-0", "prefill-0")
    assert split_tag(failed["dst_tag"]).epoch + 1 == granted["epoch"]
    assert {*failed["dst_pages"]} & {*granted["dst_pages"]}  # the new pool has the very pages


def test_without_a_decode_worker_requests_are_refused_until_one_is_back(engine):
    epochs = {name: epoch_of(engine, name) for name in ("decode-0", "decode-1")}
    for name in epochs:
        engine.kill(name)
    until(lambda: not up(engine) & {*epochs}, "the gateway to know")
    for stream in (False, True):
        answer = engine.ask(prompt="hello", max_tokens=3, stream=stream)
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "no_worker")
        assert "decode" in answer.json()["error"]["message"]
    start_dead(engine)
    assert {name: epoch_of(engine, name) for name in epochs} == {name: epoch + 1 for name, epoch in epochs.items()}
    answered_right(engine, "back")
    beats = read_ledger(engine.ledger).tables["workers"].to_pylist()
    heard = {(row["peer"], row["peer_epoch"]) for row in beats if row["op"] == "heartbeat"}
    assert {(name, epoch + 1) for name, epoch in epochs.items()} <= heard


def test_the_gateway_killed_in_a_handoff_and_in_an_answer(engine):
    rid, epoch = "gateway-dies", engine.info()["epoch"]
    before = {url: engine.metrics(url)["kvwitness_free_pages",] for url in engine.workers}
    with ThreadPoolExecutor(1) as pool:
        asking = ask_gated(engine, pool, rid, stream=False)
        hit = Stream(engine, f"{rid}-hit", 100, 800)
        hit.read(1)
        engine.kill("gateway-0")
        with pytest.raises(httpx.HTTPError):
            asking.result()
        with pytest.raises(httpx.HTTPError):
            hit.rest()
    rows = until(lambda: engine.rows_of(f"{rid}-hit", "abort").get("decode-1"), "decode to stop the answer")
    assert (rows["reason"], rows["output_tokens"] < 800) == ("aborted", True)
    engine.post(engine.prefill, "/faults/late-write", {"release": True})
    until(engine.idle, "the workers to be idle")
    assert {url: engine.metrics(url)["kvwitness_free_pages",] for url in engine.workers} == before
    assert never_answered(record_of_a_death(engine, "gateway-0", epoch), rid)
    assert engine.running.ended().keys() == {"gateway-0"}
    start_dead(engine)
    answered_right(engine, f"{rid}-later")
