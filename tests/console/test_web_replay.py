"""Replays in a browser: the address is the moment, nothing knows what came later, nothing is written from one."""

import asyncio
import re
import time
from urllib.parse import parse_qsl, urlsplit

import httpx
import pytest
from browsers import ready
from scripted_ledger import ACME, CYAN, incident_scene, ordinary, short_handoff

from console.core.as_it_was import snapshot_at
from console.core.source import LedgerSource
from console.core.time_range import moment_us, rfc3339
from console.core.view_link import from_link, to_link
from console.web import past as past_module
from console.web.app import create_app
from console.web.feed import Feed
from console.web.gate import Gate, Role

TOKEN = "a-token-for-tests-only"
NOW = 1_790_000_060_000_000


def app_of(path, state, *, patience_s=60.0):
    source = LedgerSource(path, now_us=lambda: NOW, engine="replay")
    return create_app(
        source, Gate({TOKEN: Role.FORENSIC}, can_write=True), ("127.0.0.1",), state, patience_s=patience_s
    )


def client_of(app) -> httpx.AsyncClient:
    headers = {"authorization": f"Bearer {TOKEN}"}
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1", headers=headers)


@pytest.fixture(scope="module")
def app(finished_ledger, tmp_path_factory):
    return app_of(finished_ledger, tmp_path_factory.mktemp("state"))


def at(us: int, speed: str = "1") -> str:
    return f"at={rfc3339(us)}&mode=replay&speed={speed}"


def links_of(text: str) -> dict[str, str]:
    found = re.findall(r'<a id="replay-(\w+)"(?: class="leave")? href="([^"]+)"', text)
    return {name: link.replace("&amp;", "&") for name, link in found}


async def test_a_page_shows_what_was_known_at_the_moment_and_says_replay(app, finished):
    first, second = sorted(finished.incidents, key=lambda i: i.first_seen_us)
    between = second.first_seen_us - 1
    async with client_of(app) as client:
        text = (await client.get(f"/incidents?{at(between)}")).text
        assert '<b class="mode replay">REPLAY ×1 playing</b>' in text
        assert "FINISHED" not in text
        assert first.id in text
        assert second.id not in text
        was = snapshot_at(finished, between)
        assert f"{len(was.reads.responses)} responses" in text
        csv = (await client.get(f"/tables/incidents.csv?{at(between)}")).text
        assert first.id in csv
        assert second.id not in csv
        lanes = (await client.get(f"/api/charts/swimlanes?{at(between)}")).text
        assert second.id not in lanes
        events = (await client.get(f"/events?{at(between)}")).text
        assert f"data up to <time>{moment_text(was.data_us)}" in events
        end = (await client.get(f"/incidents?{at(finished.data_us, '4,standing')}")).text
        assert second.id in end
        assert "REPLAY ×4 standing" in end


def moment_text(us: int) -> str:
    text = rfc3339(us).replace("T", " ").removesuffix("Z")
    return f"{text[:19]}.{(text[20:] or '000')[:3]}Z"


async def test_every_screen_goes_along_and_what_is_not_there_yet_is_no_fault(app, finished):
    beginning = finished.first_us
    last = max(finished.incidents, key=lambda i: i.first_seen_us)
    async with client_of(app) as client:
        for path in ("overview", "incidents", "pages", "held", "latency", "runs", "events", f"incidents/{last.id}"):
            answer = await client.get(f"/{path}?{at(beginning)}")
            assert answer.status_code == 200, path
            assert "REPLAY ×1 playing" in answer.text, path
            assert 'src="/static/replay.js"' in answer.text
            tabs = re.search(r"<nav.*?</nav>", answer.text, re.S)[0]
            assert tabs.count("mode=replay") == 7
        assert "Not there at this moment" in answer.text
        there = (await client.get(f"/incidents/{last.id}?{at(finished.data_us - 1)}")).text
        assert "Not there" not in there
        assert all("mode=replay" in link for link in re.findall(rf'href="(/incidents/{last.id}\?[^"]*)"', there))


async def test_nothing_is_written_from_a_replay(app, finished):
    incident, moment = finished.incidents[0], at(finished.data_us)
    async with client_of(app) as client:
        for path in (f"/incidents/{incident.id}", "/runs"):
            assert '<form class="triage"' in (await client.get(path)).text or path == "/runs"
            replayed = (await client.get(f"{path}?{moment}")).text
            assert 'method="post"' not in replayed
            assert "Nothing can be said of incidents, and no runbook run, from a replay" in replayed
            assert "read only" in replayed
        word = re.search(r'name="word" value="([^"]+)"', (await client.get(f"/incidents/{incident.id}")).text)[1]
        form = {"word": word, "act": "note", "words": "then"}
        for path in (f"/incidents/{incident.id}/triage", "/runs"):
            for asked, sent_from in (
                (f"{path}?{moment}", {}),
                (path, {"referer": f"http://127.0.0.1/incidents?{moment}"}),
            ):
                refused = await client.post(asked, data=form, headers=sent_from)
                assert refused.status_code == 409, asked
                assert "sent from a replay" in refused.text
        assert '<ul class="notes">' not in (await client.get(f"/incidents/{incident.id}")).text
        assert (await client.post(f"/incidents/{incident.id}/triage", data=form)).status_code == 303


async def test_the_address_is_the_replay_and_its_steps_are_the_cores(app, finished):
    first, last = finished.first_us, finished.data_us
    middle = (first + last) // 2
    seen = sorted(i.first_seen_us for i in finished.incidents)
    async with client_of(app) as client:
        links = links_of((await client.get(f"/events?q=op:read&{at(middle, '4')}")).text)
        views = {name: from_link(link) for name, link in links.items()}
        assert all(to_link(view) == links[name] for name, view in views.items())
        assert all(view.filter == "op:read" for view in views.values())
        assert (views["slower"].replay.speed, views["faster"].replay.speed) == (2.0, 8.0)
        assert not views["pause"].replay.is_playing
        assert views["later"].cursor_us - middle == middle - views["earlier"].cursor_us == (last - first) // 20
        assert views["next_incident"].cursor_us == next(t for t in seen if t > middle)
        assert views["previous_incident"].cursor_us == max(t for t in seen if t < middle)
        assert (views["follow"].replay, views["follow"].cursor_us) == (None, None)
        over = links_of((await client.get(f"/events?{at(last, '4,standing')}")).text)
        assert from_link(over["pause"]).cursor_us == first
        assert from_link(over["pause"]).replay.is_playing
        started = re.search(r'href="([^"]+)" data-action="replay"', (await client.get("/held")).text)[1].replace(
            "&amp;", "&"
        )
        assert dict(parse_qsl(urlsplit(started).query)) == {"at": rfc3339(first), "mode": "replay", "speed": "1"}


async def test_a_moment_that_takes_long_shows_an_earlier_one_and_never_a_later(
    finished_ledger, tmp_path, finished, monkeypatch
):
    app = app_of(finished_ledger, tmp_path)
    feed: Feed = app.state.feed
    moments = [finished.first_us + n * 100_000 for n in (1, 2, 3)]
    async with client_of(app) as client:
        assert "as it was at" in (await client.get(f"/overview?{at(moments[1])}")).text
        feed.past._patience_s, let = 0.05, asyncio.Event()
        loop = asyncio.get_running_loop()

        def slow(*known: object) -> object:
            asyncio.run_coroutine_threadsafe(let.wait(), loop).result()
            return snapshot_at(*known)

        monkeypatch.setattr(past_module, "snapshot_at", slow)
        later = (await client.get(f"/overview?{at(moments[2])}")).text
        assert f"as it was at <time>{moment_text(moments[1])}</time>; later is being judged" in later
        assert 'data-behind="yes"' in later
        none = (await client.get(f"/overview?{at(moments[0])}")).text
        assert f"as it was at <time>{moment_text(moments[0])}</time> is being judged" in none
        assert "Reading the ledger" in none
        let.set()
        deadline = time.monotonic() + 30
        while 'data-behind="no"' not in (await client.get(f"/overview?{at(moments[2])}")).text:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)


async def test_what_cannot_be_judged_is_said(finished_ledger, tmp_path, finished, monkeypatch):
    monkeypatch.setattr(past_module, "snapshot_at", lambda *_: 1 / 0)
    async with client_of(app_of(finished_ledger, tmp_path)) as client:
        answer = await client.get(f"/overview?{at(finished.first_us)}")
        assert answer.status_code == 500
        assert "could not be judged: division by zero" in answer.text


async def two_more(scene, client):
    """Two responses come in, and pages that follow show them."""
    ordinary(scene, "new", ACME, 40, 4)
    short_handoff(scene, "newer", CYAN, 40, 4)
    scene.beat()
    scene.flush()
    deadline = time.monotonic() + 30
    while "8 responses" not in (await client.get("/incidents")).text:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)


async def test_what_comes_in_is_not_shown_as_what_was(live_scene, tmp_path):
    moment = live_scene.now - 100_000
    async with client_of(app_of(live_scene.directory, tmp_path)) as client:
        before = (await client.get(f"/incidents?{at(moment)}")).text
        await two_more(live_scene, client)
        after = (await client.get(f"/incidents?{at(moment)}")).text
        count = r"(\d+ responses)"
        assert re.search(count, after)[1] == re.search(count, before)[1] != "8 responses"


async def test_what_is_paused_is_of_its_moment_on_every_screen(live_scene, tmp_path):
    read = LedgerSource(live_scene.directory, now_us=lambda: NOW, engine="replay").read
    incident = next(i for i in read().incidents if i.cause == "M1")
    paths = ("overview", "incidents", "held", "latency", "events", "pages", f"incidents/{incident.id}")
    app = app_of(live_scene.directory, tmp_path)
    async with client_of(app) as client:
        await client.get("/incidents")
        asked = {"at": "/incidents", "action": "pause"}
        paused = (await client.get("/api/address", params=asked)).json()["address"]
        query = paused.partition("?")[2]
        assert "as_of=" in query
        before = {path: body_of((await client.get(f"/{path}?{query}")).text) for path in paths}
        tables = ("incidents", "events", "detections", "latency")
        files = {name: (await client.get(f"/tables/{name}.csv?{query}")).content for name in tables}
        await two_more(live_scene, client)
        for path in paths:
            text = (await client.get(f"/{path}?{query}")).text
            assert body_of(text) == before[path], path
            assert 'data-stands="paused"' in text or path.startswith("incidents/")
            links = re.findall(r'href="(/(?:held|events|latency|incidents)[^"]*)"', text)
            assert all("as_of=" in link for link in links if "mode=replay" not in link), path
        for name, content in files.items():
            assert (await client.get(f"/tables/{name}.csv?{query}")).content == content, name
        assert "the record goes on for" in (await client.get(f"/held?{query}")).text
        grown = read().incident(incident.id)
        assert grown.responses > incident.responses
        sent = {"act": "ack", "word": re.search(r'data-word="([^"]+)"', (await client.get("/incidents")).text)[1]}
        for address, responses in ((paused, incident.responses), ("/incidents", grown.responses)):
            page = {"referer": f"http://127.0.0.1{address}"}
            await client.post(f"/incidents/{incident.id}/triage", data=sent, headers=page)
            assert app.state.feed.entries()[-1].responses == responses  # what was seen is acknowledged
        followed = (await client.get("/api/address", params={"at": paused, "action": "pause"})).json()["address"]
        assert followed == "/incidents"
    async with client_of(app_of(live_scene.directory, tmp_path)) as later:  # a server that kept nothing
        await later.get("/incidents")
        text = (await later.get(f"/incidents?{query}")).text
        assert "6 responses" in text
        assert "8 responses" not in text


def body_of(text: str) -> str:
    """What a page shows below its status line, without the forms' words."""
    return re.sub(r'name="word" value="[^"]*"', "", text[text.index("<h1") : text.rindex("</main>")])


@pytest.mark.browser
def test_it_plays_stands_scrubs_and_goes_to_the_next_incident(tmp_path, finished, served, watch):
    scene = incident_scene(tmp_path / "ledger")
    scene.wait(600_000)
    ordinary(scene, "long-after", ACME, 40, 4)
    scene.close()
    console, watched = served(scene.directory), watch()
    page = watched.page
    page.goto(f"{console.url}incidents?token={console.token}")
    page.locator(".mode", has_text="FINISHED").wait_for()
    page.keyboard.press("R")
    page.locator(".mode", has_text="REPLAY ×1 playing").wait_for()
    began = cursor(page)
    page.wait_for_function("(began) => Number(document.getElementById('live').dataset.at) > began", arg=began)
    page.keyboard.press(" ")
    page.locator(".mode", has_text="REPLAY ×1 standing").wait_for()
    assert "standing" in page.url
    page.keyboard.press("<")
    page.locator(".mode", has_text="REPLAY ×0.5 standing").wait_for()
    page.locator("#scrub").fill("0")
    page.wait_for_function(
        "(first) => Number(document.getElementById('live').dataset.at) === first", arg=finished.first_us
    )
    page.locator("#incidents tbody tr").wait_for(state="detached")
    page.keyboard.press("}")
    first = min(i.first_seen_us for i in finished.incidents)
    page.wait_for_function("(at) => Number(document.getElementById('live').dataset.at) === at", arg=first)
    page.keyboard.press("7")
    page.locator("#events").wait_for()
    assert "mode=replay" in page.url
    ready(page)
    page.keyboard.press("F")
    page.locator(".mode", has_text="FINISHED").wait_for()
    assert "mode=" not in page.url
    watched.check(console.url)


@pytest.mark.browser
def test_it_stands_where_motion_is_not_wanted(finished_ledger, served, watch):
    console, watched = served(finished_ledger), watch(reduced_motion="reduce")
    page = watched.page
    page.goto(f"{console.url}incidents?mode=replay&speed=1&token={console.token}")
    page.locator("#still", has_text="reduced motion").wait_for()
    began = cursor(page)
    page.evaluate("async () => { movedAt -= 5000; await tick(); }")
    assert cursor(page) == began
    page.keyboard.press("]")
    page.wait_for_function("(began) => Number(document.getElementById('live').dataset.at) > began", arg=began)
    assert moment_us(dict(parse_qsl(urlsplit(page.url).query))["at"]) == cursor(page)
    watched.check(console.url)


def cursor(page) -> int:
    page.locator("#replay").wait_for()
    return page.evaluate("() => Number(document.getElementById('live').dataset.at)")
