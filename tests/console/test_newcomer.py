"""Somebody who has never seen the console finds a contaminated response and its donors with the keys that are on the screen."""

from pilots import app_of, opened, until, worked_out
from text_snapshot import screen_lines, screen_text

from console.core.places import Place
from console.core.rollup_store import RollupStore
from console.core.view import View
from console.tui.incident_screen import IncidentScreen


async def press_shown(pilot, app, key: str, hint: str) -> None:
    """Press a key that the footer or the tab line names."""
    lines = screen_lines(app)
    assert hint in lines[1] or hint in lines[-1], (hint, lines[1], lines[-1])
    await pilot.press(key)
    await pilot.pause()


async def test_from_a_cold_start(here, tmp_path, finished):
    app = app_of(here, tmp_path, view=View())
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot, app)
        gravest = finished.incidents[0]
        assert f"▲P1 {gravest.id} ✗ 1" in screen_text(app)
        await press_shown(pilot, app, "enter", "↵ open")
        await worked_out(pilot)
        text = screen_text(app)
        assert "VICTIM resp-b1" in text
        assert "contaminated (proved)" in text
        assert "◂━━━━━  a  resp-a1" in text
        assert "»✗" in text
        await press_shown(pilot, app, "escape", "esc back")
        await until(pilot, lambda: app.desk.view.place is Place.OVERVIEW, "the overview")


async def test_before_the_record_is_read_again(here, tmp_path, finished, monkeypatch):
    """The first picture is remembered: it names responses and donors, and an incident opens when the reading is done."""
    store = RollupStore(tmp_path / "rollups")
    first = app_of(here, tmp_path, store=store)
    async with first.run_test(size=(80, 24)) as pilot:
        await opened(pilot, first)
    app = app_of(here, tmp_path, view=View(), store=store)
    reading = app.source.read_if_changed
    monkeypatch.setattr(app.source, "read_if_changed", lambda: None)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await until(pilot, lambda: "REMEMBERED" in screen_lines(app)[0], "the remembered picture")
        assert f"▲P1 {finished.incidents[0].id} ✗ 1" in screen_text(app)
        await press_shown(pilot, app, "2", "2 Incidents")
        await until(pilot, lambda: "resp-b1 ← resp-a1" in screen_text(app), "the facts")
        await press_shown(pilot, app, "enter", "↵ open")
        assert any("it opens as soon as the record has been read" in n.message for n in app._notifications)
        monkeypatch.setattr(app.source, "read_if_changed", reading)
        await until(pilot, lambda: isinstance(app.screen, IncidentScreen), "the incident")
        await worked_out(pilot)
        assert "VICTIM resp-b1" in screen_text(app)
