"""Several ledgers in a browser: each under its name, all of them at once, and nothing written into the wrong book."""

import asyncio
import csv
import html
import io
import re
import shutil
from pathlib import Path

import httpx
import pytest
from pilots import app_of, until

from console.core.ledger_names import ledger_names
from console.core.source import LedgerSource
from console.core.triage import Act, TriageBook
from console.core.view import View
from console.web.gate import Gate, Role
from console.web.several import SeveralLedgers

NOW = 1_790_000_060_000_000
TOKEN = "a-token-for-tests-only"
SAMPLE = Path(__file__).parents[2] / "sample_logs" / "abort-race" / "ledger"


@pytest.fixture
def ledgers(tmp_path, finished_ledger) -> list[Path]:
    """The same ledger twice, so that every incident's id is in both, and a recorded one."""
    for name in ("prod-a", "prod-b"):
        shutil.copytree(finished_ledger, tmp_path / name)
    return [tmp_path / "prod-a", tmp_path / "prod-b", SAMPLE]


@pytest.fixture
async def client(ledgers, tmp_path):
    sources = [LedgerSource(path, now_us=lambda: NOW, steady_s=lambda: 0.0, engine="replay") for path in ledgers]
    several = SeveralLedgers(
        dict(zip(ledger_names(ledgers), sources, strict=True)), Gate({TOKEN: Role.OPERATOR}, can_write=True),
        ("127.0.0.1",), tmp_path / "state", patience_s=60, views=tmp_path / "views.toml",
    )  # fmt: skip
    headers = {"authorization": f"Bearer {TOKEN}"}
    transport = httpx.ASGITransport(several)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=headers) as client:
        yield client


async def page(client, address: str, status: int = 200) -> str:
    answer = await client.get(address)
    assert answer.status_code == status, (address, answer.text)
    return html.unescape(answer.text)


async def table(client, name: str, query: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(await page(client, f"/tables/{name}.csv?{query}"))))


async def test_all_ledgers_stand_together_each_row_with_its_source(client):
    alone = {n: await table(client, "incidents", f"ledger={n}") for n in ("prod-a", "prod-b", "ledger")}
    rows = await table(client, "incidents", "ledger=all")
    assert sorted((row["source"], row["id"]) for row in rows) == sorted(
        (name, row["id"]) for name, found in alone.items() for row in found
    )
    only = await table(client, "incidents", "ledger=all&q=source:prod-b")
    assert [row["id"] for row in only] == [row["id"] for row in alone["prod-b"]]
    events = await table(client, "events", "ledger=all")
    assert len(events) == sum([len(await table(client, "events", f"ledger={name}")) for name in alone])
    assert [(row["t"], row["source"]) for row in events] == sorted((row["t"], row["source"]) for row in events)
    for screen in ("overview", "incidents", "events"):
        text = await page(client, f"/{screen}?ledger=all")
        assert "prod-a FINISHED" in text
        assert "3 LEDGERS" in text
        assert f'href="/{screen}?ledger=prod-b"' in text
        assert "chart-" not in text
    twice = alone["prod-a"][0]["id"]
    text = await page(client, "/incidents?ledger=all")
    assert all(f'href="/incidents/{twice}?ledger={name}"' in text for name in ("prod-a", "prod-b"))
    assert "Held is of one ledger" in await page(client, "/held?ledger=all", 404)
    assert "there is no ledger west here; there are: prod-a, prod-b, ledger, all" in await page(
        client, "/overview?ledger=west", 400
    )


async def test_events_of_all_ledgers_go_on_page_by_page_by_their_keys(client):
    whole = [(r["source"], r["worker"], r["seq"]) for r in await table(client, "events", "ledger=all")]
    address, seen = "/events?ledger=all", []
    while address:
        text = await page(client, address)
        body = re.search(r'<table id="events">.*?<tbody>(.*?)</tbody>', text, re.S)[1]
        rows = [re.findall(r"<td.*?>(.*?)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", body, re.S)]
        seen = [(row[0], row[2], row[4]) for row in rows] + seen
        earlier = re.search(r'<a href="([^"]+)" rel="prev">', text)
        address = earlier and earlier[1]
    assert seen == whole


async def test_an_ack_is_written_into_the_book_of_its_own_ledger(client, ledgers, tmp_path):
    twice = (await table(client, "incidents", "ledger=prod-b"))[0]["id"]
    text = await page(client, f"/incidents/{twice}?ledger=prod-b")
    action = re.search(r'method="post" action="([^"]+)"', text)[1]
    assert action == f"/incidents/{twice}/triage?ledger=prod-b"
    word = re.search(r'data-word="([^"]+)"', text)[1]
    answer = await client.post(action, data={"word": word, "act": "ack"})
    assert (answer.status_code, answer.headers["location"]) == (303, f"/incidents/{twice}?ledger=prod-b")
    for unnamed in (f"/incidents/{twice}/triage", f"/incidents/{twice}/triage?ledger=all"):
        assert (await client.post(unnamed, data={"word": word, "act": "ack"})).status_code in (400, 404, 405)
    books = [TriageBook(tmp_path / "state", path, who="", now_us=lambda: NOW) for path in ledgers]
    assert [[(e.incident, e.act) for e in book.entries()] for book in books] == [[], [(twice, Act.ACK)], []]
    cells = re.findall(
        r'<td class="id">(prod-.)</td><td class="sev.*?</td>\s*<td>(\w+).*?</td>\s*<td class="id"><a id="open-prod-.:(\S+)"',
        await page(client, "/incidents?ledger=all"), re.S,
    )  # fmt: skip
    assert {source: state for source, state, incident in cells if incident == twice} == {
        "prod-a": "open",
        "prod-b": "ack",
    }
    rows = await table(client, "incidents", "ledger=all&q=state:ack")
    assert [(row["source"], row["id"]) for row in rows] == [("prod-b", twice)]


async def test_commands_and_links_keep_the_ledger_and_a_link_of_the_terminal_opens(client, ledgers, tmp_path):
    async def leads(at: str, command: str) -> str:
        answer = await client.get("/api/address", params={"at": at, "command": command})
        return answer.json().get("address") or answer.json()["error"]["message"]

    assert await leads("/incidents?ledger=prod-b", ":filter cause:M3") == "/incidents?q=cause:M3&ledger=prod-b"
    assert await leads("/held?ledger=prod-b", ":ledger all") == "/overview?ledger=all"
    assert await leads("/events?q=rid:x&ledger=all", ":ledger prod-a") == "/events?q=rid:x&ledger=prod-a"
    assert "Held is of one ledger" in await leads("/events?ledger=all", ":held")
    twice = (await table(client, "incidents", "ledger=prod-b"))[0]["id"]
    assert await leads("/incidents?ledger=all", f":incident prod-b:{twice}") == f"/incidents/{twice}?ledger=prod-b"
    app = app_of(ledgers[0], tmp_path / "kept", others=ledgers[1:], view=View(ledger="all"))
    async with app.run_test(size=(160, 48)) as pilot:
        await until(pilot, lambda: app.desk.merged is not None and len(app.desk.merged.records) == 3, "all ledgers")
        for key, words in (("1", "Overview of all ledgers"), ("2", "gravest first"), ("7", "Rows of all tables")):
            await pilot.press(key, "y")
            await pilot.pause()
            assert words in await page(client, app.clipboard.splitlines()[0])


async def test_figures_for_prometheus_say_of_which_ledger_and_one_that_is_gone_hides_no_other(client, ledgers):
    text = await page(client, "/metrics")
    assert 'kvwitness_console_readable{ledger="prod-b"} 1.0' in text
    assert 'kvwitness_record_responses{ledger="prod-a",verdict="contaminated"}' in text
    assert text.count("# TYPE kvwitness_record_writing gauge") == 1
    before = len(await table(client, "incidents", "ledger=all"))
    shutil.rmtree(ledgers[1])
    async with asyncio.timeout(30):
        while "! prod-b STALE" not in (text := await page(client, "/incidents?ledger=all")):
            await asyncio.sleep(0.05)
    assert "prod-b: The last reading failed; what follows is older" in text
    assert "prod-a FINISHED" in text
    assert len(await table(client, "incidents", "ledger=all")) == before


async def test_a_pause_names_its_moment_in_one_ledger_and_none_in_all(client):
    for ledger, has_moment in (("prod-a", True), ("all", False)):
        asked = {"at": f"/incidents?ledger={ledger}", "action": "pause"}
        address = (await client.get("/api/address", params=asked)).json()["address"]
        assert "mode=paused" in address and f"ledger={ledger}" in address
        assert ("as_of=" in address) == has_moment
        await page(client, address)
    refused = await client.get("/incidents?ledger=all&mode=paused&as_of=2026-09-21T14:13:21Z")
    assert refused.status_code in (400, 422)
    assert "is of one ledger" in refused.text
