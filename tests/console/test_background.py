"""What a screen computes beside the event loop: when it is announced, which of several is drawn, what is said where it fails."""

import threading

from pilots import app_of, opened, until, worked_out
from scripted_ledger import ACME, BRIO, Scene, ordinary, short_handoff
from text_snapshot import screen_text

import console.core.desk as desk_module
import console.tui.background as background_module
from console.tui.incident_screen import IncidentScreen
from console.tui.line_list import LineList


def held_back(monkeypatch, gate: threading.Event) -> list[str]:
    """Lineages are worked out once the gate is open; gives the responses that were asked for."""
    made, asked = desk_module.lineage, []

    def later(snapshot, reading):
        asked.append(reading.rid)
        assert threading.current_thread() is not threading.main_thread()
        assert gate.wait(30)
        return made(snapshot, reading)

    monkeypatch.setattr(desk_module, "lineage", later)
    return asked


async def test_what_is_on_its_way_is_said_after_a_while_and_gives_way_to_the_picture(here, tmp_path, monkeypatch):
    gate = threading.Event()
    held_back(monkeypatch, gate)
    app = app_of(here, tmp_path)
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot, app)
        monkeypatch.setattr(background_module, "LOADING_AFTER_S", 3600)
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, IncidentScreen), "the incident")
        assert "Working out its pages" not in screen_text(app)
        await pilot.press("escape")
        monkeypatch.setattr(background_module, "LOADING_AFTER_S", 0.01)
        await pilot.press("enter")
        await until(pilot, lambda: "Working out its pages" in screen_text(app), "the words")
        gate.set()
        await worked_out(pilot)
        assert "VICTIM resp-b1" in screen_text(app)
        assert "Working out its pages" not in screen_text(app)
        # Nothing has taken the cursor away meanwhile.
        await pilot.press("j")
        await until(pilot, lambda: app.screen.query_one("#pages", LineList).cursor_key == "2", "the next page")


async def test_what_nobody_looks_at_any_more_is_not_drawn_and_keys_wait_for_the_picture(tmp_path, monkeypatch):
    scene = Scene(tmp_path / "ledger")
    for victim in ("victim-1", "victim-2"):
        ordinary(scene, f"donor-{victim}", ACME, 1, 3)
        short_handoff(scene, victim, BRIO, 1, 3)
    scene.close()
    gate = threading.Event()
    asked = held_back(monkeypatch, gate)
    app = app_of(scene.directory, tmp_path)
    drawn = []
    take = IncidentScreen._draw_story
    monkeypatch.setattr(
        IncidentScreen,
        "_draw_story",
        lambda self, told, *rest: drawn.append(told.known.reading.rid) or take(self, told, *rest),
    )
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot, app)
        await pilot.press("enter")
        await until(pilot, lambda: asked == ["victim-1"], "the first question")
        await pilot.press("full_stop", "n", "n")
        assert app.desk.reading.rid == "victim-2"
        gate.set()
        await worked_out(pilot)
        await until(pilot, lambda: app.screen.query_one("#pages", LineList).cursor_key == "3", "two pages on")
        assert set(drawn) == {"victim-2"}


async def test_what_cannot_be_worked_out_is_said_in_its_place_and_the_next_is_tried(here, tmp_path, monkeypatch):
    made = desk_module.lineage
    monkeypatch.setattr(desk_module, "lineage", lambda *_: 1 / 0)
    app = app_of(here, tmp_path)
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot, app)
        await pilot.press("enter")
        await until(pilot, lambda: "This could not be drawn" in screen_text(app), "the words")
        assert "division by zero" in screen_text(app)
        monkeypatch.setattr(desk_module, "lineage", made)
        await pilot.press("right_curly_bracket")
        await worked_out(pilot)
        assert "VICTIM" in screen_text(app)
