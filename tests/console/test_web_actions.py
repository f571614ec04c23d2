"""The action table in a browser: what leads to another address, and that everything which is said to work does."""

import json
import re
from pathlib import Path

import httpx
import pytest

from console.core.actions import ACTIONS
from console.core.places import Place
from console.core.source import LedgerSource
from console.web.app import create_app
from console.web.gate import Gate, Role
from console.web.moves import IN_PAGE, MOVES
from console.web.shortcuts import shortcuts

NOW = 1_790_000_060_000_000
TOKEN = "a-token-for-tests-only"
OTHERS = {"export", "view", "ledger"}
"""Their addresses are no view of the record that is made of the one before."""


@pytest.fixture(scope="module")
def client(finished_ledger, tmp_path_factory):
    state = tmp_path_factory.mktemp("state")
    source = LedgerSource(finished_ledger, now_us=lambda: NOW, engine="replay")
    views = state / "views.toml"
    views.write_text('[views]\n"on-call" = "/incidents?q=severity:critical"\nbroken = "/nowhere"\n')
    app = create_app(source, Gate({TOKEN: Role.OPERATOR}), ("127.0.0.1",), state, patience_s=60.0, views=views)

    def opened():
        headers = {"authorization": f"Bearer {TOKEN}"}
        return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1", headers=headers)

    return opened


def test_what_is_said_to_work_in_a_browser_is_done_by_an_address_or_by_the_page():
    said = {action.id for action in ACTIONS if action.web}
    assert said == IN_PAGE | set(MOVES) | OTHERS
    script = (Path(__file__).parents[2] / "console/web/static/actions.js").read_text()
    done = set(
        re.findall(r"^  (\w+): ", script[script.index("const IN_PAGE") : script.index("function perform")], re.M)
    )
    assert done == IN_PAGE | {"pause", "share"}
    for place in Place:
        keys = [key for one in shortcuts(place) if one["here"] for key in one["keys"]]
        assert len(set(keys)) == len(keys), place


@pytest.mark.parametrize(
    ("at", "command", "address"),
    [
        ("/overview", "held", "/held"),
        ("/overview?q=cause:M3&mode=paused&at=2026-09-21T14:13:21Z", "events", "/events?at=2026-09-21T14:13:21Z&q=cause:M3&mode=paused"),
        ("/incidents", "range -15m", "/incidents?from=-15m"), ("/held", ":filter cause:M3", "/held?q=cause:M3"),
        ("/incidents", "at 2026-09-21T14:13:21Z", "/incidents?at=2026-09-21T14:13:21Z"),
        ("/incidents", "sort first", "/incidents?sort=first"), ("/incidents?sort=first", "sort first", "/incidents?sort=-first"),
        ("/held", "what-if rate=2", "/held?what_if.rate=2"), ("/incidents", "view on-call", "/incidents?q=severity:critical"),
        ("/incidents?q=cause:M3", "export csv", "/tables/incidents.csv?q=cause:M3"), ("/held", "page 31", "/pages?page=31&rows=31-31"),
        ("/held?at=2026-09-21T14:13:21Z", "mark", "/held?at=2026-09-21T14:13:21Z&mark=2026-09-21T14:13:21Z"),
        (
            "/held?at=2026-09-21T14:13:20Z&mark=2026-09-21T14:13:21Z", "mark",
            "/held?from=2026-09-21T14:13:20Z&to=2026-09-21T14:13:21.000001Z&at=2026-09-21T14:13:20Z",
        ),
        ("/events?from=-1s&mode=paused", "follow", "/events?from=-1s"),
    ],
)  # fmt: skip
async def test_a_command_is_an_address(client, at, command, address):
    async with client() as asked:
        assert (await asked.get("/api/address", params={"at": at, "command": command})).json() == {"address": address}


@pytest.mark.parametrize(
    ("at", "command", "words"),
    [
        ("/held", "hold", "did you mean :held?"), ("/held", "quit", "works in the terminal only"),
        ("/events", "what-if rate=2", "this works on Held"),
        ("/held", "range yesterday", "cannot read"), ("/incidents", "sort nonsense", "there is no column nonsense"),
        ("/incidents", "incident I-0", "there is no incident I-0"), ("/incidents", "view broken", "cannot be opened"),
        ("/incidents", "at 2020-01-01T00:00:00Z", "outside of what is looked at"), ("/incidents", "export pdf", "there is no format pdf"),
        ("/held", "mark", "nothing is pointed at"), ("/incidents", "mark", "this works on Overview or Pages"),
        ("/nowhere", "held", "there is no screen"), ("/held", "filter sev:", "has no value"), ("/incidents", "help", "has no address"),
    ],
)  # fmt: skip
async def test_a_command_that_cannot_be_done_says_why(client, at, command, words):
    async with client() as asked:
        answer = await asked.get("/api/address", params={"at": at, "command": command})
        assert answer.status_code == 400
        assert words in answer.json()["error"]["message"]


async def test_keys_move_over_time_incidents_responses_and_pages(client, finished):
    m1, m3 = sorted(finished.incidents, key=lambda i: i.cause)

    async def after(at: str, action: str) -> str:
        answer = await asked.get("/api/address", params={"at": at, "action": action})
        assert answer.status_code == 200, answer.text
        return answer.json()["address"]

    async with client() as asked:
        first = await after("/overview", "next_incident")
        assert f"incident={m1.id}" in first
        assert f"incident={m3.id}" in await after(first, "next_incident")
        assert f"incident={m1.id}" in await after(await after(first, "next_incident"), "next_incident")
        assert f"/incidents/{m3.id}" == await after(f"/incidents/{m1.id}", "next_incident")
        rids = [r.rid for r in finished.readings(m1)]
        seen, at = [], f"/incidents/{m1.id}"
        for _ in rids:
            at = await after(at, "next_response")
            seen.append(re.search("resp=([^&]+)", at)[1])
        assert sorted(seen) == sorted(rids)
        at = await after(f"/incidents/{m3.id}", "next_found")
        assert "page=" in at
        marked, marks = "/pages", set()
        for _ in range(3):
            marked = await after(marked, "next_found")
            marks.add(marked)
            assert (await asked.get(marked)).status_code == 200
        assert len(marks) == 3
        inside = await after("/held", "zoom_in")
        assert inside.startswith("/held?from=")
        assert await after(inside, "zoom_fit") == "/held?mode=paused"
        paused = await after("/held", "pause")
        assert paused == "/held?at=2026-09-21T14:13:21.370700Z&mode=paused&as_of=2026-09-21T14:13:21.370700Z"
        assert await after(paused, "pause") == "/held"
        earlier = await after(paused, "earlier")
        assert earlier < paused
        shapes = (await asked.get(earlier.replace("/held", "/api/charts/swimlanes"))).json()["layout"]["shapes"]
        assert [shape["x0"][:19] for shape in shapes] == ["2026-09-21 14:13:21"]


async def test_a_view_that_is_paused_stays_so_from_screen_to_screen(client, finished):
    async with client() as asked:
        text = (await asked.get("/incidents?mode=paused&at=2026-09-21T14:13:21Z")).text
        assert 'data-stands="paused"' in text
        assert "pointing at" in text
        for link in re.findall(r'<a href="(/[^"#]*)"', text):
            if not link.startswith(("/tables", "/go", "/login")) and "mode=replay" not in link:
                assert "mode=paused" in link and "at=2026-09-21T14:13:21Z" in link.replace("&amp;", "&"), link
        held = (await asked.get(f"/incidents/{finished.incidents[0].id}")).text
        assert 'data-stands="held"' in held
        latest = (await asked.get("/events?mode=paused&at=2026-09-21T14:13:20.1Z")).text
        times = re.findall(r"2026-09-21 14:13:(\d\d\.?\d*)", latest[latest.index("<tbody>") :])
        assert times
        assert max(times) <= "20.100"


def test_the_page_carries_the_table_and_the_help_says_the_same(finished):
    assert {one["id"] for one in shortcuts(Place.HELD)} == {action.id for action in ACTIONS if action.web}
    json.dumps(shortcuts(Place.HELD))
