"""How incidents stand is in their table: for filters, orders and files of both skins."""

import csv
import io
import re

import httpx
import pytest
from pilots import NOW_US, app_of, opened
from scripted_ledger import incident_scene
from text_snapshot import screen_text

from console.core.looking import left_of, looking
from console.core.source import LedgerSource
from console.core.standing_rows import with_standing
from console.core.triage import Act, Entry, State, standing
from console.core.view import Sort, View
from console.web.app import create_app
from console.web.gate import Gate, Role

HOUR = 3_600_000_000
TOKEN = "a-token-for-tests"


def said_of(incident, act, **more):
    return Entry(
        incident.id, act, "kl", NOW_US, seen_us=incident.last_seen_us, responses=incident.responses,
        severity=int(incident.severity), **more,
    )  # fmt: skip


def left(known, text, now_us, sort=None):
    view = View(filter=text, sort=sort)
    rows = left_of(known, "incidents", looking(known, view, now_us)).rows
    return rows["id"].to_pylist()


def test_every_standing_is_found_by_its_word(live_scene):
    snapshot = LedgerSource(live_scene.directory, now_us=lambda: NOW_US, engine="replay").read()
    first, second = snapshot.rollup.incidents
    assert first.growing
    entries = [said_of(first, Act.ACK), said_of(second, Act.SILENCE, until_us=NOW_US + HOUR)]
    known = with_standing(snapshot.rollup, entries, NOW_US)
    assert left(known, "state:ack", NOW_US) == left(known, "state:acked by:kl", NOW_US) == [first.id]
    assert left(known, "state:silent", NOW_US) == left(known, "until>2026-09-21T15:00:00Z", NOW_US) == [second.id]
    assert left(known, "state:open", NOW_US) == left(known, "state:ended", NOW_US) == []
    assert left(known, "-state:ack", NOW_US) == [second.id]
    assert left(known, "", NOW_US, Sort("state", descending=True)) == [second.id, first.id]
    later = with_standing(snapshot.rollup, entries, NOW_US + HOUR)
    assert left(later, "state:open", NOW_US) == left(later, "state:back", NOW_US) == [second.id]
    for incident in snapshot.rollup.incidents:
        stands = standing(incident, entries, NOW_US + HOUR)
        assert (stands.state is State.ACKED) is (incident.id in left(later, "state:ack", NOW_US))
    before = with_standing(snapshot.rollup, entries, NOW_US - 1)
    assert left(before, "state:open", NOW_US) == [first.id, second.id]
    assert "state" not in snapshot.rollup.sheets["incidents"].rows.column_names  # nothing is known of it there
    assert with_standing(snapshot.rollup, entries, NOW_US - 1) is before  # what was made of it is kept


@pytest.fixture(scope="module")
def over(tmp_path_factory):
    scene = incident_scene(tmp_path_factory.mktemp("over") / "ledger")
    scene.close()
    return scene.directory


async def test_a_filter_of_standing_holds_in_both_skins_and_in_files(over, tmp_path):
    app = app_of(over, tmp_path)
    async with app.run_test(size=(120, 30)) as pilot:
        await opened(pilot, app)
        first, second = app.known.incidents
        app.book(app.source).ack(first, "mine")
        app.listen()
        app.attempt("go_incidents")
        await pilot.pause()
        app.attempt("filter", "state:open")
        await pilot.pause()
        assert "1 of 2, 1 hidden" in screen_text(app)
        counts = re.findall(r"[▲◆●·](\d+)", screen_text(app).splitlines()[0])
        assert sum(map(int, counts)) == 1
        app.attempt("go_overview")
        await pilot.pause()
        assert "unfiltered" in screen_text(app)
        assert left(app.known, "state:ended", NOW_US) == [first.id, second.id]
    source = LedgerSource(over, now_us=lambda: NOW_US, engine="replay")
    web = create_app(source, Gate({TOKEN: Role.FORENSIC}), ("127.0.0.1",), app.around.state, patience_s=60)
    headers = {"authorization": f"Bearer {TOKEN}"}
    transport = httpx.ASGITransport(web)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=headers) as client:
        page = (await client.get("/incidents?q=state:ack")).text
        assert f'id="open-{first.id}"' in page
        assert f'id="open-{second.id}"' not in page
        (row,) = csv.DictReader(io.StringIO((await client.get("/tables/incidents.csv?q=by:*")).text))
        assert (row["id"], row["by"], row["until"]) == (first.id, app.said[0].who, "")
        assert row["state"].split() == ["ack", "ended"], row["state"]
        status = r'sev-\w+(?: none)?">\S+ (\d+) '
        above = (await client.get("/overview?q=state:ack")).text
        assert (
            sum(map(int, re.findall(status, above[: above.index("</p>")]))) == 1
        )  # of all of the record, the open ones
        assert "None is open; 1 of 2, 1 hidden" in above
        assert f"; {len(first.rids)} in the incidents that are left" in above
        assert "Held, Prefill p5 and Detectors are unfiltered" in above
        assert "in the incidents that are left" not in (await client.get("/overview")).text
        lanes = (await client.get("/api/charts/swimlanes?q=state:open")).text
        assert second.id in lanes
        assert first.id not in lanes
