"""One request on two workers, their doors scripted: whose words reach the client, and who is told to stop."""

import asyncio
import json

import httpx
import pytest

from engine.config import WorkerAddress
from engine.fleet import Fleet
from engine.relay import Call, Refused, Relay

NAMES = ("prefill-0", "prefill-1", "decode-0", "decode-1")


def event(*tokens, finish=None, **more):
    return f"data: {json.dumps({'output_ids': tokens, 'meta_info': {'finish_reason': finish}, **more})}\n\n".encode()


def failed(status, code):
    return event(finish={"status_code": status}, error={"code": code, "message": f"{code} it is"})


def error(status, code):
    return httpx.Response(status, json={"error": {"code": code, "message": f"{code} it is"}})


DONE = event(finish={"type": "length"})


class Body(httpx.AsyncByteStream):
    def __init__(self, parts):
        self.parts = parts

    async def __aiter__(self):
        async for part in self.parts():
            yield part


class Doors:
    """Scripted workers. `prefill` and `decode` are async functions: (request) -> what `/generate` answers."""

    def __init__(self):
        self.asked, self.aborted = [], asyncio.Event()
        self.prefill, self.decode = self.done, self.streaming(event(5), DONE)
        http = httpx.AsyncClient(transport=httpx.MockTransport(self.answer))
        addresses = [WorkerAddress(name, name[:-2], f"http://{name}", 7000 + i) for i, name in enumerate(NAMES)]
        self.fleet = Fleet(addresses, http, lambda worker: None)
        for worker in self.fleet.workers:
            worker.epoch = 1
        self.relay, self.rooms = Relay(self.fleet, http, "hop"), []

    async def answer(self, request):
        self.asked.append((request.url.host, request.url.path))
        await asyncio.sleep(0)  # as every real door, it lets others run
        if request.url.path == "/abort_request":
            assert json.loads(request.content) == {"rid": "r-1", "bootstrap_room": self.rooms[-1]}
            self.aborted.set()
            return httpx.Response(200, json={})
        return await getattr(self, request.url.host[:-2])(request)

    async def done(self, request):
        return httpx.Response(200, json={})

    async def waiting(self, request):
        await asyncio.Event().wait()

    def streaming(self, *parts):
        """An answer of these parts; one that is callable is awaited, an exception is raised."""

        async def body():
            for part in parts:
                if isinstance(part, Exception):
                    raise part
                if callable(part):
                    await part()
                else:
                    yield part

        async def answer(request):
            return httpx.Response(200, stream=Body(body))

        return answer

    def tokens(self):
        return self.relay.tokens(Call("r-1", 1, [1, 2], 4, "t-a", "customer"), self.rooms.append)

    async def run(self):
        """(tokens that left, error with which it ended), and nothing of the request is left behind."""
        found, refusal = [], None
        try:
            async for token in self.tokens():
                found.append(token)
        except Refused as refused:
            refusal = refused.error
        await self.relay.close()
        assert [worker.live for worker in self.fleet.workers] == [0, 0, 0, 0]
        return found, refusal

    def aborts(self):
        return {host for host, path in self.asked if path == "/abort_request"}

    def up(self):
        return [worker.address.name for worker in self.fleet.workers if worker.epoch]


@pytest.fixture
async def doors():
    return Doors()


async def test_a_request_that_goes_well_is_aborted_nowhere(doors):
    assert await doors.run() == ([5], None)
    assert set(doors.asked) == {("prefill-0", "/generate"), ("decode-0", "/generate")}
    assert (len(doors.rooms), doors.aborts()) == (1, set())


@pytest.mark.parametrize(("status", "code"), [(409, "request_id_in_use"), (400, "invalid_body"), (500, "worker_error")])
async def test_what_prefills_door_refuses_decode_is_told_and_the_client_hears_prefill(doors, status, code):
    doors.prefill = lambda request: asyncio.sleep(0, error(status, code))
    doors.decode = doors.streaming(doors.aborted.wait, failed(499, "aborted"))
    _, refusal = await doors.run()
    assert (refusal.status, refusal.code, refusal.message) == (status, code, f"{code} it is")
    assert doors.aborts() == {"decode-0"}


async def test_what_prefill_itself_tells_decode_is_told_once(doors):
    doors.prefill = lambda request: asyncio.sleep(0, error(400, "prompt_exceeds_pool"))
    doors.decode = doors.streaming(lambda: asyncio.sleep(0.01), failed(400, "prompt_exceeds_pool"))
    _, refusal = await doors.run()
    assert (refusal.status, refusal.code) == (400, "prompt_exceeds_pool")


async def test_prefills_refusal_is_not_hidden_by_decodes_loss(doors):
    doors.prefill = lambda request: asyncio.sleep(0, error(400, "prompt_exceeds_pool"))
    doors.decode = doors.streaming(lambda: asyncio.sleep(0.01), httpx.ReadError("gone"))
    _, refusal = await doors.run()
    assert refusal.code == "prompt_exceeds_pool"


async def test_a_prefill_that_cannot_be_reached_is_lost_and_decode_told_once_it_has_the_request(doors):
    async def refuse(request):
        raise httpx.ConnectError("refused")

    entered, let_in = asyncio.Event(), asyncio.Event()

    async def late(request):
        entered.set()
        await let_in.wait()
        return await doors.streaming(doors.aborted.wait, failed(499, "aborted"))(request)

    doors.prefill, doors.decode = refuse, late
    running = asyncio.create_task(doors.run())
    await entered.wait()
    for _ in range(20):
        await asyncio.sleep(0)
    assert doors.aborts() == set()  # an abort now would overtake the request
    let_in.set()
    found, refusal = await running
    assert (found, refusal.status, refusal.code) == ([], 502, "worker_lost")
    assert "prefill" in refusal.message
    assert doors.aborts() == {"decode-0"}
    assert doors.up() == ["prefill-1", "decode-0", "decode-1"]


async def test_no_token_leaves_once_prefill_is_lost(doors):
    async def lose(request):
        raise httpx.ReadError("gone")

    doors.prefill = lose
    doors.decode = doors.streaming(doors.aborted.wait, event(5), DONE)  # the abort came too late
    found, refusal = await doors.run()
    assert (found, refusal.code) == ([], "worker_lost")


async def test_a_prefill_that_is_lost_behind_the_first_token_harms_nobody(doors):
    begun = asyncio.Event()

    async def lose(request):
        await begun.wait()
        raise httpx.ReadError("gone")

    async def first_token_out():
        begun.set()
        while "prefill-0" in doors.up():
            await asyncio.sleep(0)

    doors.prefill = lose
    doors.decode = doors.streaming(event(5), first_token_out, event(6), DONE)
    assert await doors.run() == ([5, 6], None)
    assert doors.aborts() == set()


@pytest.mark.parametrize("parts", [(httpx.ReadError("gone"),), (httpx.RemoteProtocolError("cut"),), ()])
async def test_a_decode_that_is_lost_in_an_answer_ends_it_and_prefill_is_told(doors, parts):
    doors.prefill = doors.waiting
    doors.decode = doors.streaming(event(5), event(6), *parts)
    found, refusal = await doors.run()
    assert (found, refusal.status, refusal.code) == ([5, 6], 502, "worker_lost")
    assert "decode" in refusal.message
    assert doors.aborts() == {"prefill-0"}  # the other half; who is lost is not asked
    assert doors.up() == ["prefill-0", "prefill-1", "decode-1"]


async def test_a_decode_that_is_lost_behind_its_last_token_harms_nobody(doors):
    doors.decode = doors.streaming(event(5), DONE, httpx.ReadError("gone"))
    assert await doors.run() == ([5], None)
    assert "decode-0" not in doors.up()


async def test_a_refusal_at_decodes_door_is_the_clients_and_harms_no_namesake(doors):
    doors.prefill = doors.waiting
    doors.decode = lambda request: asyncio.sleep(0, error(409, "request_id_in_use"))
    _, refusal = await doors.run()
    assert (refusal.status, refusal.code) == (409, "request_id_in_use")
    assert doors.aborts() == {"prefill-0"}  # what decode has under this id is another's


async def test_a_worker_that_does_not_know_this_gateway_is_no_fault_of_the_client(doors):
    doors.decode = lambda request: asyncio.sleep(0, error(401, "unauthorized"))
    assert ((await doors.run())[1].status) == 502


async def test_words_that_are_no_json_are_an_error_all_the_same(doors):
    doors.decode = lambda request: asyncio.sleep(0, httpx.Response(500, text="Internal Server Error"))
    _, refusal = await doors.run()
    assert (refusal.status, refusal.code) == (500, "worker_error")


async def test_a_reader_who_leaves_stops_both_sides(doors):
    doors.prefill = doors.waiting
    doors.decode = doors.streaming(event(5), event(6), lambda: asyncio.Event().wait())
    tokens = doors.tokens()
    assert await anext(tokens) == 5
    await tokens.aclose()
    await doors.relay.close()
    assert doors.aborts() == {"prefill-0", "decode-0"}
    assert [worker.live for worker in doors.fleet.workers] == [0, 0, 0, 0]


@pytest.mark.parametrize("role", ["prefill", "decode"])
async def test_without_a_worker_of_a_role_nobody_is_asked(doors, role):
    for worker in doors.fleet.workers:
        worker.epoch = 0 if worker.address.role == role else 1
    found, refusal = await doors.run()
    assert (found, refusal.status, refusal.code) == ([], 503, "no_worker")
    assert role in refusal.message
    assert doors.asked == []


async def test_the_worker_with_the_fewest_requests_is_next_and_the_first_of_equals(doors):
    doors.prefill = doors.waiting
    doors.decode = doors.streaming(event(5), lambda: asyncio.Event().wait())
    running = [doors.tokens() for _ in range(4)]
    for tokens in running:
        await anext(tokens)
    for role in ("prefill", "decode"):
        assert [host[-1] for host, _ in doors.asked if host.startswith(role)] == ["0", "1", "0", "1"]
    await running[1].aclose()
    while [worker.live for worker in doors.fleet.workers] != [2, 1, 2, 1]:
        await asyncio.sleep(0)
    doors.asked.clear()
    running.append(doors.tokens())
    await anext(running[-1])
    assert {host for host, path in doors.asked if path == "/generate"} == {"prefill-1", "decode-1"}
    for tokens in running:
        await tokens.aclose()
    await doors.relay.close()
