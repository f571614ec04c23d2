"""A moment that is marked, and the range that a second mark makes."""

from dataclasses import replace

import httpx
from pilots import app_of, opened, toasts, until, worked_out
from text_snapshot import screen_lines, screen_text

from console.core.places import Place
from console.core.source import LedgerSource
from console.core.time_moves import marked
from console.core.time_range import Span
from console.core.view import Mode, View
from console.tui.charts import pointed
from console.web.app import create_app
from console.web.gate import Gate, Role

AT = 1_790_000_000_000_000


def test_two_marks_make_a_range_whichever_comes_first_and_one_twice_makes_none():
    for first, second in ((AT, AT + 5_000_000), (AT + 5_000_000, AT)):
        view = marked(marked(View(), first), second)
        assert view.range.resolve(AT, lambda _: None) == Span(AT, AT + 5_000_001)
        assert (view.mark_us, view.mode) == (None, Mode.PAUSED)
    assert marked(marked(View(), AT), AT) == View()


async def test_m_drops_a_dated_line_and_m_again_makes_the_range(here, tmp_path, finished):
    app = app_of(here, tmp_path, view=View(place=Place.EVENTS))
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await opened(pilot, app)
        await until(pilot, lambda: app.screen.pointed_us() is not None, "the events")
        await pilot.press(*["k"] * 9)
        at = app.screen.pointed_us()
        await pilot.press("m")
        assert app.desk.view.mark_us == at
        await until(pilot, lambda: "── m 2026-09-21 14:13:2" in screen_text(app), "the dated line")
        assert "  m 14:13:2" in screen_lines(app)[2]
        await pilot.press("escape")
        await until(pilot, lambda: "── m 2026" not in screen_text(app), "no mark")
        assert app.desk.view.mark_us is None
        await pilot.press("m", *["k"] * 20)
        before = app.screen.pointed_us()
        await pilot.press("m")
        await worked_out(pilot)
        assert app.looking().span == Span(before, at + 1)
        await until(pilot, lambda: len(app.screen._found.window.rows) < 60, "the events between")
        assert set(app.screen._found.window.rows["t"].cast("int64").to_pylist()) <= set(range(before, at + 1))
        app.change(replace(app.desk.view, cursor_us=None))
        await pilot.press("4", "m")
        assert "nothing is pointed at" in toasts(app)


def test_points_stand_under_a_chart_where_they_lie_and_nowhere_else():
    points = [(50, "▲"), (50, "m"), (100, "m"), (None, "x"), (101, "x"), (-1, "x")]
    assert pointed("0123456789", 0, 100, points) == "01234▲678m"


async def test_a_browser_draws_the_mark_over_its_charts_and_says_it(finished_ledger, tmp_path):
    source = LedgerSource(finished_ledger, now_us=lambda: AT + 60_000_000, engine="replay")
    app = create_app(source, Gate({"word": Role.VIEWER}), ("127.0.0.1",), tmp_path, patience_s=60.0)
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(
        transport=transport, base_url="http://127.0.0.1", headers={"authorization": "Bearer word"}
    ) as client:
        mark = "mark=2026-09-21T14:13:20Z"
        page = (await client.get(f"/held?{mark}")).text
        assert 'id="mark">marked <time>2026-09-21 14:13:20.000Z' in page
        assert f"/latency?{mark}" in page
        shapes = (await client.get(f"/api/charts/swimlanes?{mark}")).json()["layout"]["shapes"]
        assert [s["x0"] for s in shapes if s.get("name") == "marked"] == ["2026-09-21 14:13:20.000000"]
