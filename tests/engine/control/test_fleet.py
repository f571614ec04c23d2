"""Which workers the gateway knows to be up: real sockets, scripted doors."""

import asyncio
import json

import httpx
import pytest

from engine.config import WorkerAddress
from engine.fleet import Fleet


class Door:
    """Answers every request with `/server_info` of a worker's life; `die` closes it as the end of a process does."""

    def __init__(self, name="decode-0"):
        self.name, self.port, self._open = name, 0, []

    async def live(self, epoch):
        self.epoch = epoch
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _serve(self, reader, writer):
        self._open.append(writer)
        while await reader.readline():
            while (await reader.readline()).strip():
                pass
            body = json.dumps({"worker": self.name, "epoch": self.epoch, "max_total_num_tokens": 512}).encode()
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
            await writer.drain()

    async def die(self):
        self._server.close()
        for writer in self._open:
            writer.transport.abort()
        self._open.clear()

    @property
    def connections(self):
        return sum(not writer.transport.is_closing() for writer in self._open)


@pytest.fixture
async def door():
    made = Door()
    await made.live(epoch=1)
    yield made
    await made.die()


@pytest.fixture
async def fleet(door):
    """A fleet of the one worker; `fleet.lives` lists the epochs in which it was seen to come up."""
    async with httpx.AsyncClient() as http:
        address = WorkerAddress("decode-0", "decode", f"http://127.0.0.1:{door.port}", 1)
        made = Fleet([address], http, lambda worker: made.lives.append(worker.epoch))
        made.lives = []
        await made.start()
        yield made
        await made.close()


async def until(condition):
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.005)


async def test_a_worker_is_up_once_it_said_who_it_is(fleet):
    (worker,) = fleet.workers
    assert (worker.epoch, worker.pool_tokens, fleet.lives) == (1, 512, [1])
    assert worker.state()["up"] is True
    seat = fleet.take("decode")
    assert (seat.worker, worker.live) == (worker, 1)
    seat.leave()
    seat.leave()
    assert worker.live == 0
    assert fleet.take("prefill") is None


async def test_the_end_of_its_process_is_seen_without_a_request_and_so_is_its_next_life(fleet, door):
    old = fleet.take("decode")
    await door.die()
    await until(lambda: fleet.take("decode") is None)
    await door.live(epoch=2)
    await until(lambda: fleet.workers[0].epoch == 2)
    assert fleet.lives == [1, 2]
    assert not old.there
    fleet.lost(old)  # what failed in the old life says nothing about the new one
    assert fleet.workers[0].epoch == 2


async def test_a_worker_that_failed_a_request_is_asked_again_before_it_gets_another(fleet, door):
    seat = fleet.take("decode")
    fleet.lost(seat)
    assert fleet.take("decode") is None
    await until(lambda: fleet.workers[0].epoch == 1)
    assert fleet.take("decode") is not None


async def test_a_dropped_idle_connection_is_made_again(fleet, door):
    await until(lambda: door.connections)
    for writer in door._open:
        writer.transport.abort()
    await until(lambda: door.connections)
    assert fleet.workers[0].epoch == 1
    assert fleet.lives.count(1) == len(fleet.lives)


async def test_somebody_else_at_a_workers_door_is_not_the_worker(fleet, door):
    await door.die()
    door.name = "decode-7"
    await door.live(epoch=5)
    await until(lambda: len(door._open) > 2)
    assert fleet.take("decode") is None
    assert fleet.lives == [1]


async def test_who_is_not_there_at_the_start_is_not_waited_for(door):
    await door.die()
    async with httpx.AsyncClient() as http:
        address = WorkerAddress("decode-0", "decode", f"http://127.0.0.1:{door.port}", 1)
        fleet = Fleet([address], http, lambda worker: None)
        async with asyncio.timeout(5):
            await fleet.start()
        assert fleet.take("decode") is None
        await fleet.close()
    await door.live(epoch=1)
