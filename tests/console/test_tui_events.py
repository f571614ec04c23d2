"""The Events screen: as text at two sizes and in every state; sliding, following, opening."""

from pathlib import Path

import pytest
from pilots import SIZES, app_of, around, opened, typed, until
from scripted_ledger import ACME, BRIO, Scene, ordinary, short_handoff
from text_snapshot import screen_lines, screen_text

import console.core.source as source_module
from console.core.event_window import MOST_ROWS
from console.core.places import Place
from console.core.source import LedgerSource
from console.core.view import View
from console.tui import event_lines
from console.tui.app import ConsoleApp
from console.tui.event_lines import key_of_text
from console.tui.incident_screen import IncidentScreen
from console.tui.line_list import LineList

STORM = Path(__file__).parents[2] / "sample_logs" / "abort-storm" / "ledger"
EVENTS = View(place=Place.EVENTS)


def rows_of(app: ConsoleApp) -> LineList:
    return app.screen.query_one("#event-rows", LineList)


async def ordered(pilot, app: ConsoleApp) -> None:
    """Wait until the events are drawn."""
    await until(pilot, lambda: app.screen._found is not None and not app.screen.is_computing, "the events")


@pytest.mark.parametrize("size", SIZES, ids=lambda s: f"{s[0]}x{s[1]}")
@pytest.mark.parametrize("state", ["normal", "incident", "filtered", "nothing", "empty", "failed", "loading"])
async def test_events(state, size, here, tmp_path, monkeypatch, text_snapshot):
    path, view = here, EVENTS
    if state == "empty":
        monkeypatch.chdir(tmp_path)
        path = Path("new-ledger")
        Scene(path).flush()
    elif state == "failed":
        monkeypatch.setattr(source_module, "foreign_reads", lambda *_, **__: 1 / 0)
    elif state == "loading":
        monkeypatch.setattr(LedgerSource, "read_if_changed", lambda _: None)
    elif state == "filtered":
        view = View(place=Place.EVENTS, filter="rid:resp-b2 -table:steps")
    elif state == "nothing":
        view = View(place=Place.EVENTS, filter="rid:nobody")
    app = app_of(path, tmp_path, view=view)
    async with app.run_test(size=size) as pilot:
        if state != "loading":
            await opened(pilot, app)
        if state in ("normal", "incident", "filtered", "nothing"):
            await ordered(pilot, app)
        if state == "incident":
            await pilot.press("right_curly_bracket")
            await ordered(pilot, app)
        await pilot.pause()
        assert screen_text(app) == text_snapshot


@pytest.fixture
def long(tmp_path):
    scene = Scene(tmp_path / "ledger")
    for n in range(20):
        ordinary(scene, f"resp-{n:02}", ACME, 1, 4)
    short_handoff(scene, "victim", BRIO, 1, 4)
    scene.beat()
    scene.flush()
    return scene


def live(scene: Scene, kept: Path) -> ConsoleApp:
    source = LedgerSource(scene.directory, now_us=lambda: scene.now, engine="replay")
    return ConsoleApp(source, EVENTS, around=around(kept))


async def test_the_whole_record_is_walked_and_never_more_than_two_hundred_rows_are_held(long, tmp_path):
    app = live(long, tmp_path)
    async with app.run_test(size=(160, 48)) as pilot:
        await opened(pilot, app)
        await ordered(pilot, app)
        seen, total = set(), app.screen._found.window.total
        for _ in range(200):
            lines = rows_of(app)._lines
            assert len(lines) <= MOST_ROWS
            seen |= {line.key for line in lines}
            before = rows_of(app).cursor_key
            await pilot.press("ctrl+u")
            await ordered(pilot, app)
            if rows_of(app).cursor_key == before and app.screen._found.window.earlier is None:
                break
        assert len(seen) == total > MOST_ROWS
        await pilot.press("G")
        await ordered(pilot, app)
        last = rows_of(app).cursor_key
        await pilot.press("g")
        await ordered(pilot, app)
        assert rows_of(app).cursor_key == min(seen, key=key_of_text)
        assert rows_of(app).cursor_key != last


async def test_the_end_is_followed_until_the_cursor_is_moved_up_and_again_after_G(long, tmp_path):
    app = live(long, tmp_path)
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot, app)
        await ordered(pilot, app)

        async def grow(n: int) -> int:
            ordinary(long, f"new-{n}", ACME, 40, 4)
            long.beat()
            long.flush()
            total = app.screen._found.window.total
            await until(pilot, lambda: app.screen._found.window.total > total, "the newer rows")
            return app.screen._found.window.total

        assert "following" in screen_lines(app)[2]
        await grow(1)
        assert rows_of(app).cursor_key == rows_of(app)._lines[-1].key
        await pilot.press("k", "k")
        await pilot.pause()
        here = rows_of(app).cursor_key
        assert "following" not in screen_lines(app)[2]
        await grow(2)
        assert rows_of(app).cursor_key == here
        await pilot.press("G")
        await ordered(pilot, app)
        await grow(3)
        assert rows_of(app).cursor_key == rows_of(app)._lines[-1].key
        long.close()


async def test_a_filter_leaves_its_rows_and_says_what_it_hides(long, tmp_path):
    app = live(long, tmp_path)
    async with app.run_test(size=(160, 48)) as pilot:
        await opened(pilot, app)
        await ordered(pilot, app)
        await pilot.press("slash")
        await typed(pilot, "rid:victim op:receive")
        await pilot.press("enter")
        await until(pilot, lambda: len(app.screen._found.window.rows) == 3, "the three rows")
        assert "hidden by the filter" in screen_lines(app)[2]
        assert {row["rid"] for row in app.screen._found.window.rows.to_pylist()} == {"victim"}


async def test_a_response_of_an_incident_is_opened_from_its_event(here, tmp_path):
    app = app_of(here, tmp_path, view=View(place=Place.EVENTS, filter="rid:resp-b1"))
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot, app)
        await ordered(pilot, app)
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, IncidentScreen), "the incident")
        assert app.desk.reading.rid == "resp-b1"


async def test_an_event_points_all_screens_at_its_moment(here, tmp_path):
    app = app_of(here, tmp_path, view=EVENTS)
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot, app)
        await ordered(pilot, app)
        assert app.desk.view.cursor_us is None
        await pilot.press("k")
        await pilot.pause()
        assert app.desk.view.cursor_us == key_of_text(rows_of(app).cursor_key).t_us


async def test_rows_are_made_as_they_come_in_sight(tmp_path, monkeypatch):
    made, make = [], event_lines.row_text
    monkeypatch.setattr(event_lines, "row_text", lambda fitted, row: made.append(row["seq"]) or make(fitted, row))
    app = app_of(STORM, tmp_path, view=EVENTS)
    async with app.run_test(size=(120, 40)) as pilot:
        await opened(pilot, app)
        await ordered(pilot, app)
        height = rows_of(app).size.height
        assert len(app.screen._lines) == MOST_ROWS > 4 * height
        assert 0 < len(made) <= 2 * height
        seen = len(made)
        await pilot.press("k")
        assert len(made) <= seen + 1
