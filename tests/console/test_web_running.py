"""What happens to the ledger while the web console serves it: every page says so, and it carries on."""

import asyncio
import threading

import httpx
import pytest
from scripted_ledger import ACME, CYAN, Scene, ordinary, short_handoff

from console.core.looks import OVERDUE_S
from console.core.source import LedgerSource
from console.web import feed as feed_module
from console.web.app import create_app
from console.web.feed import Feed
from console.web.gate import Gate, Role

TOKEN = "a-token-for-tests-only"
PAGES = ("/overview", "/incidents", "/pages", "/held", "/latency", "/runs", "/events")
DEADLINE_S = 30


class Clocks:
    """The wall's and a steady one, which a test moves."""

    def __init__(self, wall_us: int) -> None:
        self.wall_us, self.steady_s = wall_us, 100.0


def app_on(path, clocks: Clocks, state, *, patience_s: float = 0.05):
    source = LedgerSource(path, now_us=lambda: clocks.wall_us, steady_s=lambda: clocks.steady_s, engine="replay")
    app = create_app(source, Gate({TOKEN: Role.OPERATOR}), ("127.0.0.1",), state, patience_s=patience_s)
    client = httpx.AsyncClient(
        transport=httpx.ASGITransport(app), base_url="http://127.0.0.1", headers={"authorization": f"Bearer {TOKEN}"}
    )
    return source, app, client


async def later(client: httpx.AsyncClient, *words: str, path: str = "/overview", without: str = "\0") -> str:
    """A page, as soon as it says all `words`."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            text = (await client.get(path)).text
            if all(each in text for each in words) and without not in text:
                return text
            await asyncio.sleep(0.02)


@pytest.fixture(autouse=True)
def eager(monkeypatch):
    """No rest between looks."""
    monkeypatch.setattr(feed_module, "POLL_SECONDS", 0.02)
    monkeypatch.setattr(feed_module, "REST_FACTOR", 0)


class Hanging:
    """Lets every look at a source wait until it is let go."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch, self._freed, self._waiting = patch, threading.Event(), 0

    async def begin(self, source: LedgerSource, feed: Feed) -> None:
        """From here on; both kinds of look wait already."""
        self._patch.setattr(source, "fingerprint", self._wait)
        self._patch.setattr(source._follower, "look", self._wait)
        async with asyncio.timeout(DEADLINE_S):
            while self._waiting < 2:
                await feed.fresh()
                await asyncio.sleep(0.02)

    def _wait(self, *_: object) -> None:
        self._waiting += 1
        self._freed.wait(DEADLINE_S)
        raise OSError("let go")

    def end(self) -> None:
        """What waits fails, what comes then works."""
        self._patch.undo()
        self._freed.set()


@pytest.fixture
def hang():
    """See `Hanging`; its own patches."""
    with pytest.MonkeyPatch.context() as patch:
        hanging = Hanging(patch)
        yield hanging
        hanging.end()


async def test_a_ledger_that_hangs_is_stale_on_every_page_and_in_the_metrics(live_scene, tmp_path, hang):
    clocks = Clocks(live_scene.now)
    source, app, client = app_on(live_scene.directory, clocks, tmp_path / "state")
    async with client:
        await later(client, "LIVE")
        await hang.begin(source, app.state.feed)
        clocks.steady_s += OVERDUE_S
        assert "STALE" not in (await client.get("/overview")).text
        clocks.steady_s += 27
        for path in PAGES:
            text = (await client.get(path)).text
            assert '<b class="mode stale">STALE</b> <span>last look 42 s ago</span>' in text, path
            assert "no look at the ledger has come back for 42 s" in text
            assert "LIVE" not in text
        assert "kvwitness_console_look_age_seconds 42.0" in (await client.get("/metrics")).text
        hang.end()
        await later(client, "LIVE", without="STALE")
        # What hung has come back without having seen the ledger: the next look does.
        await later(client, "kvwitness_console_look_age_seconds 0.0", path="/metrics")


async def test_open_pages_hear_that_it_hangs_and_how_its_age_moves_on(live_scene, tmp_path, hang):
    clocks = Clocks(live_scene.now)
    source, app, client = app_on(live_scene.directory, clocks, tmp_path / "state")
    feed: Feed = app.state.feed
    async with client:
        await later(client, "LIVE")
        await hang.begin(source, feed)
        before = feed.mark
        await feed._tell_of_age()
        assert feed.mark == before
        clocks.steady_s += OVERDUE_S + 1
        await feed._tell_of_age()
        assert feed.mark != before
        told = feed.mark
        await feed._tell_of_age()
        assert feed.mark == told
        feed._told_stale -= 60
        await feed._tell_of_age()
        assert feed.mark != told
        hang.end()


async def test_a_writer_that_starts_again_is_followed(live_scene, tmp_path):
    clocks = Clocks(live_scene.now)
    _, _, client = app_on(live_scene.directory, clocks, tmp_path / "state")
    async with client:
        await later(client, "LIVE", "6 responses", path="/incidents")
        live_scene.close()
        await later(client, "FINISHED", "6 responses", path="/incidents")
        again = Scene(live_scene.directory, start_us=live_scene.now + 5_000_000)
        ordinary(again, "again-1", ACME, 40, 4)
        short_handoff(again, "again-2", CYAN, 40, 4)
        again.beat()
        again.flush()
        clocks.wall_us = again.now
        await later(client, "LIVE", "8 responses", path="/incidents", without="FINISHED")
        assert "again-2" in (await client.get("/events")).text
        again.close()


async def test_a_clock_that_jumps_is_said_on_every_page_and_nothing_ends(live_scene, tmp_path):
    clocks = Clocks(live_scene.now)
    _, _, client = app_on(live_scene.directory, clocks, tmp_path / "state")
    async with client:
        await later(client, "LIVE")
        clocks.wall_us -= 3_600_000_000
        for path in PAGES:
            text = (await client.get(path)).text
            assert "clock is 1h 00m behind the record" in text, path
            assert "LIVE" in text
            assert "STALE" not in text
        clocks.wall_us += 2 * 3_600_000_000
        text = await later(client, "LIVE", without="behind the record")
        assert "STALE" not in text
        ordinary(live_scene, "afterwards", ACME, 40, 4)
        live_scene.flush()
        await later(client, "7 responses", path="/incidents")
