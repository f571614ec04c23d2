"""The web console's screens, charts and files: what they say, how they fail, and who may write."""

import asyncio
import csv
import html
import io
import json
import re
import threading
from pathlib import Path

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scripted_ledger import ACME, BRIO, CYAN, Scene, incident_scene, ordinary, short_handoff

from console.core.export import FORMATS
from console.core.page_map import MAX_MARKERS, Area, Marker, thinned
from console.core.rollup_store import RollupStore
from console.core.source import LedgerSource
from console.web import feed as feed_module
from console.web import pages as pages_module
from console.web.app import create_app
from console.web.asked import ask
from console.web.feed import Feed
from console.web.gate import Gate, Role
from console.web.table_pages import stretch
from console.web.tables import PLACES

NOW = 1_790_000_060_000_000
STORM = Path(__file__).parents[2] / "sample_logs" / "abort-storm" / "ledger"
TOKENS = {"token-of-a-viewer": Role.VIEWER, "token-of-an-operator": Role.OPERATOR, "token-of-forensics": Role.FORENSIC}
VIEWER, OPERATOR, FORENSIC = TOKENS


def app_of(path, state, *, can_write=False, store=None, patience_s=60.0):
    source = LedgerSource(path, now_us=lambda: NOW, engine="replay", store=store)
    return create_app(source, Gate(TOKENS, can_write=can_write), ("127.0.0.1",), state, patience_s=patience_s)


def client_of(app, token: str | None = FORENSIC) -> httpx.AsyncClient:
    headers = {"authorization": f"Bearer {token}"} if token else {}
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1", headers=headers)


@pytest.fixture
def client(finished_ledger, tmp_path):
    return client_of(app_of(finished_ledger, tmp_path))


@pytest.fixture(scope="module")
def storm(tmp_path_factory):
    """A record with gauges and prefill times; read once."""
    return app_of(STORM, tmp_path_factory.mktemp("state"))


async def test_a_view_is_what_its_address_says(client, finished):
    m1, m3 = sorted(finished.incidents, key=lambda i: i.cause)
    async with client:
        text = (await client.get("/incidents?q=cause:M3")).text
        assert m3.id in text
        assert m1.id not in text
        assert "1 of 2, 1 hidden" in text
        text = (await client.get("/incidents?sort=-first")).text
        assert text.index(f"open-{m3.id}") < text.index(f"open-{m1.id}")
        assert 'aria-sort="descending"' in text
        text = (await client.get("/incidents?from=2026-09-21T14:13:20Z&to=2026-09-21T14:13:20.5Z")).text
        assert f"open-{m1.id}" in text
        assert f"open-{m3.id}" not in text
        # Another screen keeps the range and the filter.
        assert "/held?from=2026-09-21T14:13:20Z&amp;to=2026-09-21T14:13:20.5Z" in text
        assert "FIXED RANGE" in text


async def test_charts_and_files_are_of_the_range(storm):
    of = "from=2026-09-14T09:00:30Z&to=2026-09-14T09:00:50Z"
    async with client_of(storm) as client:
        held = (await client.get(f"/api/charts/held?{of}")).json()
        assert len(held["data"][0]["x"]) == 20
        whole, part = [
            list(csv.DictReader(io.StringIO((await client.get(f"/tables/latency.csv{q}")).text)))
            for q in ("", f"?{of}")
        ]
        assert 0 < sum(int(r["requests"]) for r in part) < sum(int(r["requests"]) for r in whole)
        panels = (await client.get(f"/api/charts/latency?{of}")).json()
        assert {x[11:16] for one in panels["data"] for x in one["x"]} == {"09:00"}
        assert "and Detectors are of the whole record" in (await client.get(f"/overview?{of}")).text


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("/incidents?q=sev:", "has no value"), ("/held?from=yesterday", "cannot read"), ("/events?colour=red", "knows no colour"),
        ("/pages?rows=all", "two page numbers"), ("/held?what_if.rate=fast", "has to be a number"),
        ("/events?before=x", "a place in the list"),
        ("/latency?around=I-0000±2m", "there is no incident"), ("/api/charts/held?from=now-1", "cannot read"),
        ("/tables/incidents.csv?q=%22open", "the quote is not closed"),
    ],
)  # fmt: skip
async def test_an_address_that_cannot_be_read_is_refused_in_words(storm, address, words):
    async with client_of(storm) as client:
        answer = await client.get(address)
        assert answer.status_code == 400
        assert words in answer.text


async def test_a_filter_that_cannot_be_read_stays_as_it_was_typed_with_its_fault_marked(storm):
    async with client_of(storm) as client:
        text = (await client.get("/incidents", params={"q": 'sev:high "open', "from": "-6h"})).text
        assert 'name="q" value="sev:high &#34;open"' in text
        assert 'aria-invalid="true" aria-describedby="fault" autofocus' in text
        assert 'name="range" value="-6h"' in text
        assert "sev:high &#34;open\n         ^</pre>" in text
        assert "the quote is not closed (at character 10)" in text
        assert 'name="at" value="/incidents"' in text
        assert '<a href="/incidents">back</a>' in text


@pytest.mark.parametrize(
    ("params", "range_text", "back"),
    [
        ({"at": "/held?pool=x", "range": "yesterday", "q": "sev:high"}, "yesterday", "/held?pool=x"),
        ({"at": "/held?from=nonsense", "range": "-6x", "q": "sev:high"}, "-6x", "/held"),
        ({"at": "https://evil.example/x", "range": "<b>", "q": "sev:high"}, "&lt;b&gt;", "/overview"),
    ],
)
async def test_a_time_that_cannot_be_read_stays_as_it_was_typed(storm, params, range_text, back):
    async with client_of(storm) as client:
        answer = await client.get("/go", params=params)
        assert answer.status_code == 400
        assert f'name="range" value="{range_text}" aria-invalid="true"' in " ".join(answer.text.split()).replace(
            'placeholder="all, -15m, A..B, I-98584c01±2m" size="34" ', ""
        )
        assert 'name="q" value="sev:high"' in answer.text
        assert f'name="at" value="{back}"' in answer.text


async def test_now_of_a_record_that_nobody_writes_is_its_end_and_is_said(client):
    for path in ("/incidents", "/events", "/overview", "/held"):
        text = (await client.get(f"{path}?from=-15m")).text
        assert "-15m: now = 14:13:21Z, the record&#39;s end" in text, path
        assert "now =" not in (await client.get(path)).text
    assert "no event" not in (await client.get("/events?from=-1s")).text.lower()


async def test_what_somebody_types_becomes_the_address(client):
    async with client:
        for given, location in (
            ({"range": "-15m", "q": " cause:M3 "}, "/held?from=-15m&q=cause:M3&pool=decode-0:kv"),
            ({"range": "", "q": ""}, "/held?pool=decode-0:kv"),
            ({"range": "all", "q": ""}, "/held?pool=decode-0:kv"),
        ):
            answer = await client.get("/go", params={"at": "/held?pool=decode-0:kv&from=-1h", **given})
            assert (answer.status_code, answer.headers["location"]) == (303, location)
        answer = await client.get("/incidents?from=-1s&share=abs")
        assert (
            answer.headers["location"] == "/incidents?from=2026-09-21T14:13:20.370701Z&to=2026-09-21T14:13:21.370701Z"
        )


async def test_held_capacity_is_drawn_with_its_limit_and_what_if_changes_the_forecast_alone(storm):
    async with client_of(storm) as client:
        text = (await client.get("/held")).text
        assert "0.667/s × 9.96 s × 100 pages = 664" in text
        figure = (await client.get("/api/charts/held")).json()
        named = {trace["name"]: trace for trace in figure["data"]}
        assert set(named) == {"held", "quarantined", "in transfer", "forecast, lower", "forecast", "limit"}
        assert named["limit"]["y"] == [10_001, 10_001]
        assert max(named["held"]["y"]) > 3000
        tried = (await client.get("/api/charts/held?what_if.rate=3")).json()
        assert tried["data"][:3] == figure["data"][:3]
        before, after = (max(f["data"][4]["y"]) for f in (figure, tried))
        assert 2 * before < after < 3.1 * before
        assert (await client.get("/held?pool=nowhere:kv")).status_code == 404


async def test_latency_has_a_panel_for_every_length(storm):
    async with client_of(storm) as client:
        figure = (await client.get("/api/charts/latency?theme=light")).json()
        labels = [
            note["text"].split(" tokens")[0].removeprefix("<b>")
            for note in figure["layout"]["annotations"]
            if "name" not in note
        ]
        assert labels == ["128–256", "256–512", "512–1k", "1–2k", "2–4k", "4–8k"]
        assert "too few to tell" in figure["layout"]["annotations"][0]["text"]
        assert [trace["name"] for trace in figure["data"][:5]] == ["p5", "p50", "p95", "baseline p5", "floor"]
        assert figure["layout"]["yaxis6"]["type"] == "log"
        bands = {trace["yaxis"]: trace["y"] for trace in figure["data"] if trace["name"] == "baseline p10 to p90"}
        assert bands
        assert all(low == also <= high for low, also, high, _ in bands.values())
        ranged = (await client.get("/api/charts/latency?from=2026-09-14T09:01:00Z&to=2026-09-14T09:02:00Z")).json()
        assert ranged["layout"]["xaxis"]["range"] == ["2026-09-14 09:01:00.000000", "2026-09-14 09:02:00.000000"]


async def test_a_length_alone_is_drawn_and_one_that_is_not_there_is_refused(storm):
    async with client_of(storm) as client:
        rows = (await client.get("/tables/latency.jsonl")).text.splitlines()
        length = json.loads(rows[-1])["bucket_tokens"]
        whole = (await client.get("/api/charts/latency")).json()
        alone = (await client.get(f"/api/charts/latency?bucket={length}")).json()
        panels = [{name for name in chart["layout"] if name.startswith("yaxis")} for chart in (whole, alone)]
        assert len(panels[0]) > len(panels[1]) == 1
        page = (await client.get(f"/latency?bucket={length}")).text
        assert "tokens alone" in page
        for address in ("/latency?bucket=7", "/api/charts/latency?bucket=NONSENSE"):
            refused = await client.get(address)
            assert refused.status_code == 404
            assert "o request has a length that begins with" in refused.text


async def test_swimlanes_and_flows_draw_what_their_tables_say(client, finished):
    async with client:
        lanes = (await client.get("/api/charts/swimlanes")).json()["data"]
        assert {i for trace in lanes for i in trace["customdata"] if i} == {i.id for i in finished.incidents}
        one = (await client.get("/api/charts/swimlanes?q=cause:M3")).json()["data"]
        assert len({i for trace in one for i in trace["customdata"] if i}) == 1
        for incident in finished.incidents:
            figure = (await client.get(f"/api/charts/flows?incident={incident.id}")).json()["data"][0]
            table = (await client.get(f"/tables/flows.csv?incident={incident.id}")).text
            rows = list(csv.DictReader(io.StringIO(table)))
            assert figure["link"]["value"] == [int(row["pages"]) for row in rows]
            assert sum(figure["link"]["value"]) == sum(r.pages for r in finished.readings(incident))
            assert {row["donor_rid"] for row in rows} == set(incident.donors)


async def test_a_short_foreign_read_stays_visible_at_every_zoom(tmp_path):
    scene = Scene(tmp_path / "ledger")
    ordinary(scene, "donor", ACME, 1, 4)
    short_handoff(scene, "victim", BRIO, 1, 4)
    scene.wait(86_400_000)
    ordinary(scene, "later", CYAN, 20, 4)
    scene.close()
    async with client_of(app_of(scene.directory, tmp_path)) as client:
        whole = (await client.get("/api/charts/pages")).json()
        seen = whole["data"][2]["x"][0]
        assert len(whole["data"][2]["x"]) == 4
        for margin in ("1ms", "1s", "1h", "2h"):
            moment = seen.replace(" ", "T") + "Z"
            part = (await client.get("/api/charts/pages", params={"around": f"{moment}±{margin}"})).json()
            assert part["data"][2]["x"] == whole["data"][2]["x"], margin


def test_marks_beyond_what_can_be_drawn_lose_none_that_stands_alone():
    area = Area(("d", 1), "kv", 0, 1_000_000, 0, 999)
    crowd = [Marker("foreign read", t, t % 40, "r", "d", None, "") for t in range(MAX_MARKERS + 500)]
    alone = Marker("foreign read", 999_000, 990, "r", "d", None, "")
    late = Marker("late write", 10, 3, "r", "d", None, "")
    kept = thinned([*crowd, late, alone], area)
    assert len(kept) <= MAX_MARKERS
    assert {alone, late} < set(kept)
    assert thinned(crowd[:5], area) == tuple(crowd[:5])
    everywhere = [
        Marker(k, 250 * i, i % 1000, "r", "d", None, "") for k in ("foreign read", "late write") for i in range(4000)
    ]
    assert len(thinned(everywhere, area)) <= MAX_MARKERS


async def test_events_go_on_by_key_and_lose_none(client, finished):
    total = sum(table.num_rows for table in finished.ledger.tables.values())
    seen: list[str] = []
    async with client:
        address = "/events"
        while address:
            text = (await client.get(address)).text
            body = text[text.index("<tbody>") : text.index("</tbody>")]
            seen = [row.split("</tr>")[0] for row in body.split("<tr>")[1:]] + seen
            pager = text[text.index('class="pager"') :]
            before = pager[: pager.index("</p>")].partition('rel="prev"')[0]
            address = (
                before.rpartition('href="')[2].partition('"')[0].replace("&amp;", "&") if "prev" in pager[:400] else ""
            )
    assert len(seen) == total
    assert len(set(seen)) == total


@pytest.mark.parametrize("name", sorted(PLACES))
async def test_every_table_is_a_file_and_names_leave_only_with_a_token_for_them(
    finished_ledger, finished, tmp_path, name, capsys
):
    app = app_of(finished_ledger, tmp_path)
    query = f"?incident={finished.incidents[0].id}"
    async with client_of(app) as client:
        text = (await client.get(f"/tables/{name}.csv{query}")).text
        answer = await client.get(f"/tables/{name}.parquet{query}")
        table = pq.read_table(io.BytesIO(answer.content))
        assert len(list(csv.DictReader(io.StringIO(text)))) == len(table)
        assert json.loads(table.schema.metadata[b"kvwitness"])["table"] == name
        assert answer.headers["content-disposition"] == f'attachment; filename="incident-ledger-{name}.parquet"'
        assert f"took {name}.parquet, {len(table)} rows with names" in capsys.readouterr().err
    for token in (VIEWER, OPERATOR):
        async with client_of(app, token) as client:
            for fmt in FORMATS:
                covered = (await client.get(f"/tables/{name}.{fmt}{query}")).content
                assert not any(word.encode() in covered for word in (ACME, BRIO, CYAN, "resp-")), fmt
    assert capsys.readouterr().err == ""


async def test_what_is_remembered_is_painted_before_the_ledger_has_been_read(
    finished_ledger, finished, tmp_path, monkeypatch
):
    store = RollupStore(tmp_path / "cache")
    LedgerSource(finished_ledger, now_us=lambda: NOW, engine="replay", store=store).read()
    go, read = threading.Event(), LedgerSource.read

    def slow(self):
        go.wait(30)
        return read(self)

    monkeypatch.setattr(LedgerSource, "read", slow)
    app = app_of(finished_ledger, tmp_path, store=store, patience_s=0)
    async with client_of(app) as client:
        for path in (
            "/overview",
            "/incidents",
            "/held",
            "/latency",
            "/events",
            f"/incidents/{finished.incidents[0].id}",
            "/pages",
        ):
            text = (await client.get(path)).text
            assert "REMEMBERED" in text
            assert "being read" in text
        assert finished.incidents[0].id in (await client.get("/overview")).text
        assert len((await client.get("/api/charts/swimlanes")).json()["data"]) == 4
        waiting = await client.get("/api/charts/pages")
        assert (waiting.status_code, waiting.json()["error"]["code"]) == (503, "not_read_yet")
        news = app.state.feed.news(app.state.feed.mark)
        go.set()
        await asyncio.wait_for(anext(news), 30)
        assert "REMEMBERED" not in (await client.get("/overview")).text
        assert (await client.get("/api/charts/pages")).status_code == 200


def damaged(directory: Path) -> Path:
    """A ledger of which one segment of decode's pages has a bit turned round."""
    scene = Scene(directory)
    ordinary(scene, "donor", ACME, 1, 4)
    short_handoff(scene, "victim", BRIO, 1, 4)
    scene.close()
    (segment,) = directory.glob("pages/*/worker=decode-0/*.parquet")
    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 1
    segment.write_bytes(content)
    return directory


async def test_a_damaged_segment_is_said_and_the_rest_is_shown(tmp_path):
    async with client_of(app_of(damaged(tmp_path / "ledger"), tmp_path / "state")) as client:
        text = (await client.get("/overview")).text
        assert "record: no gaps" not in text
        assert "1 problem" in text
        assert "2 unknown" in text
        for path in ("/incidents", "/pages", "/held", "/latency", "/events"):
            assert (await client.get(path)).status_code == 200, path


async def test_a_ledger_that_is_removed_leaves_the_last_picture_and_comes_back(tmp_path):
    scene = Scene(tmp_path / "ledger")
    ordinary(scene, "donor", ACME, 1, 4)
    short_handoff(scene, "victim", BRIO, 1, 4)
    scene.flush()
    app = app_of(scene.directory, tmp_path / "state")
    async with client_of(app) as client:
        assert "LIVE" in (await client.get("/overview")).text
        scene.directory.rename(tmp_path / "gone")
        removed = await later(client, "STALE")
        assert "The last reading failed; what follows is older" in removed
        assert "Incidents over time" in removed
        assert 'class="status older"' in removed
        assert (await client.get("/api/charts/swimlanes")).status_code == 200
        (tmp_path / "gone").rename(scene.directory)
        assert "STALE" not in await later(client, "LIVE")


async def later(client: httpx.AsyncClient, words: str) -> str:
    """The overview, as soon as it says `words`."""
    async with asyncio.timeout(30):
        while words not in (text := (await client.get("/overview")).text):
            await asyncio.sleep(0.05)
    return text


async def test_a_stream_goes_on_after_the_last_event_that_was_heard(finished_ledger):
    source = LedgerSource(finished_ledger, now_us=lambda: NOW, engine="replay")
    feed = Feed(source, patience_s=60)
    first = feed.mark
    await feed.fresh()
    assert await anext(feed.news(first)) == feed.mark != first
    waiting = asyncio.create_task(anext(feed.news(feed.mark)))
    restarted = Feed(LedgerSource(finished_ledger, now_us=lambda: NOW + 1, engine="replay"), patience_s=60)
    await restarted.fresh()
    # As many readings, but another server: what it shows may be something else.
    assert await anext(restarted.news(feed.mark)) == restarted.mark
    assert not waiting.done()
    for _ in range(3):
        feed._take(feed.desk.shown, None)
        await feed.tell()
    assert await asyncio.wait_for(waiting, 10) == feed.mark
    await feed.close()
    assert [mark async for mark in feed.news("")] == []


async def test_too_many_listeners_are_asked_to_come_back(finished_ledger, tmp_path, monkeypatch):
    app = app_of(finished_ledger, tmp_path)
    app.state.feed.subscribers = feed_module.MOST_SUBSCRIBERS
    async with client_of(app) as client:
        answer = await client.get("/api/stream")
        assert "event: full" in answer.text
        assert "retry: 30000" in answer.text


FORM = {"act": "ack", "words": "seen"}


async def test_nothing_is_written_unless_it_is_switched_on_and_the_role_may(finished_ledger, finished, tmp_path):
    path = f"/incidents/{finished.incidents[0].id}/triage"
    for can_write, token in ((False, OPERATOR), (False, FORENSIC), (True, VIEWER)):
        async with client_of(app_of(finished_ledger, tmp_path, can_write=can_write), token) as client:
            assert (await client.post(path, data=FORM)).status_code == 403
            assert '<button name="act"' not in (await client.get(path.removesuffix("/triage"))).text
    assert not list(tmp_path.glob("*.jsonl"))
    async with client_of(app_of(finished_ledger, tmp_path, can_write=True), OPERATOR) as client:
        assert (await client.post(path, data=FORM)).status_code == 303
        assert (await client.post(path, data={"act": "note", "words": "<b>mine</b>"})).status_code == 303
        assert (await client.post(path, data={"act": "note"})).status_code == 400
        assert (await client.post(path, data={"act": "resolve"})).status_code == 400
        assert (await client.post("/incidents/I-0000/triage", data=FORM)).status_code == 404
        text = (await client.get(path.removesuffix("/triage"))).text
        assert "acknowledged by operator-" in text
        assert "&lt;b&gt;mine&lt;/b&gt;" in text
        assert OPERATOR not in text
        assert f"open-{finished.incidents[0].id}" not in (await client.get("/overview")).text


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
async def test_a_form_of_another_origin_is_refused(finished_ledger, finished, tmp_path, headers):
    async with client_of(app_of(finished_ledger, tmp_path, can_write=True), OPERATOR) as client:
        for path in (f"/incidents/{finished.incidents[0].id}/triage", "/login"):
            assert (await client.post(path, data=FORM, headers=headers)).status_code == 403


async def test_a_cookie_alone_writes_nothing(finished_ledger, finished, tmp_path):
    incident = f"/incidents/{finished.incidents[0].id}"
    async with client_of(app_of(finished_ledger, tmp_path, can_write=True), None) as client:
        await client.get(f"/?token={OPERATOR}")
        text = (await client.get(incident)).text
        word = text.partition('name="word" value="')[2].partition('"')[0]
        for given in ({}, {"word": ""}, {"word": word[:-1] + "x"}):
            assert (await client.post(f"{incident}/triage", data=FORM | given)).status_code == 403
        assert not list(tmp_path.glob("*.jsonl"))
        own = {"origin": "http://127.0.0.1", "sec-fetch-site": "same-origin"}
        assert (await client.post(f"{incident}/triage", data=FORM | {"word": word}, headers=own)).status_code == 303
        assert len(list(tmp_path.glob("*.jsonl"))) == 1


async def test_runbooks_are_listed_and_nothing_is_made_for_it(client, tmp_path):
    async with client:
        text = (await client.get("/runs")).text
        assert "RB-01" in text
        assert "None was made by this user yet" in text
    assert not (tmp_path / "runbooks").exists()


async def test_a_range_without_rows_of_a_pool_is_kept_and_it_is_said_where_there_are_some(client):
    async with client:
        answer = await client.get("/pages?from=2026-01-01T00:00:00Z&to=2026-01-02T00:00:00Z&q=cause:M3")
        assert answer.status_code == 200
        assert "Nothing of this pool in that range" in answer.text
        assert "2026-09-21 14:13:20" in answer.text.partition("This pool has rows from")[2][:200]
        assert 'name="range" value="2026-01-01T00:00:00Z..2026-01-02T00:00:00Z"' in answer.text
        assert "/held?from=2026-01-01T00:00:00Z&amp;to=2026-01-02T00:00:00Z&amp;q=cause:M3" in answer.text


@pytest.mark.parametrize("name", ["incidents", "responses", "detections"])
async def test_tables_go_on_by_key_and_lose_no_row(tmp_path, monkeypatch, name):
    monkeypatch.setattr(pages_module, "MOST_ROWS", 1)
    monkeypatch.setattr(pages_module, "MOST_DETECTIONS", 1)
    scene = incident_scene(tmp_path / "ledger")
    for victim in ("more-victim", "most-victim"):
        short_handoff(scene, victim, CYAN, 20, 6)
    scene.close()
    app = app_of(scene.directory, tmp_path)
    async with client_of(app) as client:
        await client.get("/incidents")
        most = max(app.state.feed.desk.rollup.incidents, key=lambda i: len(i.rids)).id
        address: str | None = f"/incidents/{most}" if name == "responses" else "/incidents"
        query = f"?incident={most}" if name == "responses" else ""
        rows, seen = len((await client.get(f"/tables/{name}.csv{query}")).text.splitlines()) - 1, 0
        assert rows > 1
        while address:
            text = (await client.get(address)).text
            seen += 1
            assert f"{seen} to {seen} of {rows}" in text
            more = re.search(rf'<a href="([^"]*)" rel="next">More of {name}</a>', text)
            address = html.unescape(more[1]) if more else None
        assert seen == rows
        assert (await client.get("/incidents?next=incidents,x")).status_code == 400


async def test_a_page_of_holders_goes_on_after_its_row_wherever_that_stands_by_then(storm):
    await storm.state.feed.fresh()
    at_first = await ask(storm.state.feed, "/held?q=x")
    rows = pa.table({"worker": ["d"] * 5, "rid": list("abcde"), "pages": [9, 8, 7, 6, 5]})
    first = stretch("holders", rows, at_first, 2)
    assert (first.start, first.end, first.beginning) == (0, 2, None)
    after = await ask(storm.state.feed, first.later)
    assert stretch("holders", rows, after, 2).start == 2
    grown = pa.table({"worker": ["d"] * 6, "rid": list("xabcde"), "pages": [99, 9, 80, 7, 6, 5]})
    assert stretch("holders", grown, after, 2).start == 3
    left = rows.filter(pa.array([True, False, True, True, True]))
    assert stretch("holders", left, after, 2).start == 2
    assert stretch("incidents", rows, after, 2).start == 0
    assert stretch("holders", rows.slice(0, 1), after, 2).start == 0
