"""A link that is copied in the terminal opens the same thing in the browser, from every screen."""

import html
from pathlib import Path

import httpx
import pytest
from pilots import app_of, opened, until
from test_tui_pages import drawn

from console.core.places import EVERYWHERE, Place
from console.core.pool_names import pool_name, pool_named
from console.core.source import LedgerSource
from console.core.view import View
from console.web.app import create_app
from console.web.gate import Gate, Role

NOW = 1_790_000_060_000_000
STORM = Path(__file__).parents[2] / "sample_logs" / "abort-storm" / "ledger"


@pytest.fixture(scope="module")
def web(tmp_path_factory):
    source = LedgerSource(STORM, now_us=lambda: NOW, engine="replay")
    return create_app(source, Gate({"a-token-for-tests": Role.VIEWER}), ("127.0.0.1",), tmp_path_factory.mktemp("s"))


async def page(web, link: str) -> str:
    headers = {"authorization": "Bearer a-token-for-tests"}
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(web), base_url="http://127.0.0.1", headers=headers
    ) as client:
        answer = await client.get(link)
    assert answer.status_code == 200, (link, answer.text)
    return html.unescape(answer.text)


async def test_a_link_copied_on_any_screen_opens_in_the_browser_what_was_seen(web, tmp_path):
    app = app_of(STORM, tmp_path)
    async with app.run_test(size=(100, 30)) as pilot:
        await opened(pilot, app)
        for start in (None, "p"):  # the pool that is chosen for us, then another one, which every screen after it keeps
            for place in EVERYWHERE:
                if place is Place.INCIDENT:
                    app.attempt("incident", app.known.incidents[0].id)
                else:
                    app.go(place)
                await pilot.pause()
                if place is Place.PAGES:
                    await drawn(pilot, app)
                    if start:
                        before = app.screen._picture
                        await pilot.press(start)
                        await until(pilot, lambda old=before: app.screen._picture is not old, "the next pool")
                await pilot.press("y")
                await pilot.pause()
                link = app.clipboard.splitlines()[0]
                text = await page(web, link)
                if place is Place.PAGES:
                    area = app.screen._picture.drawn.area
                    assert f"<h1>Page ownership of {pool_name(area.key[0], area.pool, area.key[1])}</h1>" in text, link
                    assert f"pages {area.first_page}–{area.last_page}." in text
                elif place is Place.HELD:
                    assert f"Held capacity of {app.screen.query_one('#pools').cursor_key}" in text, link
                elif place is Place.INCIDENT:
                    assert app.desk.incident.id in text
                    assert app.desk.reading is None or app.desk.reading.rid in text


async def test_every_spelling_of_a_pool_opens_it_in_both(web, tmp_path):
    for name in ("prefill-0:kv", "prefill-0:1:kv", "prefill-0/kv"):
        assert "Page ownership of prefill-0:1:kv" in await page(web, f"/pages?pool={name}")
        assert "Held capacity of prefill-0:kv" in await page(web, f"/held?pool={name}")
    app = app_of(STORM, tmp_path, view=View(place=Place.HELD, pool="prefill-0:1:kv"))
    async with app.run_test(size=(100, 30)) as pilot:
        await opened(pilot, app)
        await pilot.pause()
        assert app.screen.query_one("#pools").cursor_key == "prefill-0:kv"


async def test_a_pool_without_gauges_is_said_in_the_terminal_and_its_link_is_of_the_pool_that_is_shown(web, tmp_path):
    app = app_of(STORM, tmp_path, view=View(place=Place.HELD, pool="nowhere:kv"))
    async with app.run_test(size=(100, 30)) as pilot:
        await opened(pilot, app)
        await pilot.pause()
        said = "no pool nowhere:kv has gauges; these have: "
        assert any(each.message.startswith(said) for each in app._notifications)
        await pilot.press("y")
        await pilot.pause()
        link, shown = app.clipboard.splitlines()[0], app.screen.query_one("#pools").cursor_key
    assert f"Held capacity of {shown}" in await page(web, link)


def test_a_name_means_the_pool_that_it_names_exactly_else_the_latest_life_of_its_worker():
    known = [("w", 1, "kv"), ("w", 2, "kv"), ("w:1", 7, "kv"), ("h:30000", 1, "kv")]
    assert [known[n] for n in (pool_named(pool_name(*each[::2], each[1]), known) for each in known)] == known
    assert [pool_named(name, known) for name in ("w:kv", "w/kv", "h:30000:kv", "w:3:kv", "x:kv", None)] == [
        1, 1, 3, None, None, None,
    ]  # fmt: skip
    of_all = [("w", None, "kv"), ("w:1", None, "kv")]
    assert [pool_named(name, of_all) for name in ("w:kv", "w:1:kv", "w:2:kv", "w:1:7:kv")] == [0, 1, 0, 1]
