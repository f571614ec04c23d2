"""An incident opens at its own time, and the range from before comes back."""

from dataclasses import replace

import httpx
import pytest
from pilots import app_of, opened, until, worked_out
from text_snapshot import screen_lines

from console.core.own_time import at_own_time, given_back, gone_to, opened_by_address, own_words, swapped
from console.core.places import Place
from console.core.source import LedgerSource
from console.core.time_range import ALL, BadRange, Span, parse_range
from console.core.view import Cue, Mode, View
from console.core.view_link import from_link, to_link
from console.web.app import create_app
from console.web.gate import Gate, Role

AT = 1_790_000_000_000_000
TWO_MINUTES = 120_000_000
INCIDENT = "I-98584c01"


def spans(name):
    return Span(AT, AT + 1_000_000) if name == INCIDENT else None


def opened_from(view: View) -> View:
    inside = replace(view, place=Place.INCIDENT, incident=INCIDENT)
    return at_own_time(inside, spans).on(Cue.OPEN)


@pytest.mark.parametrize("before", ["all", "-15m", "2026-09-21T14:00:00Z..2026-09-21T15:00:00Z"])
def test_the_own_time_is_from_two_minutes_before_to_two_minutes_after_and_gives_back_what_was(before):
    listed = View(place=Place.INCIDENTS).with_range(parse_range(before))
    inside = opened_from(listed)
    assert inside.range.resolve(AT, spans) == Span(AT - TWO_MINUTES, AT + 1_000_000 + TWO_MINUTES + 1)
    assert inside.mode is (Mode.HELD if listed.mode is Mode.LIVE else Mode.PAUSED)
    assert own_words(inside) == f"own time, Z: {before}"
    assert own_words(inside.with_range(parse_range("-1h..-30m"))) == f"Z: {before}"  # somebody has zoomed
    held = gone_to(inside, Place.HELD)
    assert held.range == inside.range
    for left in (given_back(replace(inside, place=Place.INCIDENTS)), gone_to(held, Place.OVERVIEW), given_back(held)):
        assert (left.range, left.back, left.mode) == (listed.range, None, listed.mode)
    once = swapped(inside, spans)
    assert (once.range, once.mode) == (listed.range, inside.mode)
    assert swapped(once, spans) == inside
    with pytest.raises(BadRange, match="no other range"):
        swapped(listed, spans)


def test_an_address_that_holds_a_range_keeps_it_and_one_without_is_at_the_own_time():
    bare = opened_by_address(from_link(f"/incidents/{INCIDENT}"), spans)
    assert bare.range == opened_from(View()).range
    assert to_link(bare) == f"/incidents/{INCIDENT}"
    whole = to_link(swapped(bare, spans))
    assert opened_by_address(from_link(whole), spans).range == ALL
    for link in (
        f"/incidents/{INCIDENT}?from=-6h",
        whole,
        to_link(opened_from(View().with_range(parse_range("-15m")))),
    ):
        assert to_link(opened_by_address(from_link(link), spans)) == link
    assert opened_by_address(from_link("/incidents/I-0"), spans).range == ALL
    replayed = from_link(f"/incidents/{INCIDENT}?at=2026-09-21T14:13:20Z&mode=replay&speed=1")
    assert opened_by_address(replayed, spans) == replayed


async def test_in_the_terminal_it_goes_along_to_the_evidence_and_esc_and_Z_give_back_the_range(here, tmp_path):
    before = "2026-09-21T14:00:00Z..2026-09-21T15:00:00Z"
    app = app_of(here, tmp_path, view=View(place=Place.INCIDENTS).with_range(parse_range(before)))
    async with app.run_test(size=(160, 48)) as pilot:
        await opened(pilot, app)
        await pilot.press("enter")
        await worked_out(pilot)
        incident = app.desk.incident
        assert app.desk.view.range.text == f"{incident.id}±2m"
        assert app.looking().span.start_us == incident.first_seen_us - TWO_MINUTES
        assert f"own time, Z: {before}" in screen_lines(app)[2]
        await pilot.press("4")
        assert app.desk.view.range.text == f"{incident.id}±2m"
        await until(pilot, lambda: f"{incident.id}±2m (own time, Z:" in screen_lines(app)[2], "the words")
        await pilot.press("Z")
        assert app.desk.view.range.text == before
        await pilot.press("2", "enter")
        await worked_out(pilot)
        assert app.desk.view.range.text == f"{incident.id}±2m"
        await pilot.press("escape")
        assert (app.desk.view.place, app.desk.view.range.text, app.desk.view.back) == (Place.INCIDENTS, before, None)


async def test_a_link_with_a_range_keeps_it_in_the_terminal(here, tmp_path, finished):
    incident = finished.incidents[0].id
    app = app_of(here, tmp_path, view=from_link(f"/incidents/{incident}?from=-6h"))
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot, app)
        await worked_out(pilot)
        await until(pilot, lambda: app.desk.view.place is Place.INCIDENT, "the incident")
        assert app.desk.view.range.text == "-6h"


async def test_a_browser_opens_it_so_too_and_says_it(finished_ledger, finished, tmp_path):
    incident = finished.incidents[0].id
    source = LedgerSource(finished_ledger, now_us=lambda: AT + 60_000_000, engine="replay")
    app = create_app(source, Gate({"word": Role.VIEWER}), ("127.0.0.1",), tmp_path, patience_s=60.0)
    headers = {"authorization": "Bearer word"}
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=headers) as client:
        page = (await client.get(f"/incidents/{incident}")).text
        assert f'id="own-time">{incident}±2m: own time, Z: all' in page
        assert f"/held?around={incident}%C2%B12m&amp;back=all" in page
        assert 'href="/incidents" data-action="back"' in page
        kept = (await client.get(f"/incidents/{incident}?from=-6h")).text
        assert "own-time" not in kept

        async def led(at: str, action: str) -> str:
            answer = await client.get("/api/address", params={"at": at, "action": action})
            return answer.json()["address"]

        held = f"/held?around={incident}%C2%B12m&back=-15m"
        assert await led(held, "range_back") == "/held?from=-15m"
        assert await led(f"/incidents/{incident}", "range_back") == f"/incidents/{incident}?back=all"
        assert await led(f"/incidents/{incident}?back=all", "range_back") == f"/incidents/{incident}"
        listed = (await client.get("/incidents?from=-15m")).text
        assert f"/incidents/{incident}?around={incident}%C2%B12m&amp;back=-15m" in listed
