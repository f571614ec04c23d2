"""Overview, Held and Latency as text: two sizes, every state."""

from pathlib import Path

import pytest
from pilots import SIZES, app_of, opened, place_of, until, worked_out
from text_snapshot import screen_lines, screen_text

import console.core.source as source_module
from console.core.places import Place
from console.core.view import View

PLACES = [Place.OVERVIEW, Place.HELD, Place.LATENCY]
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("size", SIZES, ids=lambda s: f"{s[0]}x{s[1]}")
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("state", ["normal", "filtered", "empty", "none", "failed", "stale", "loading"])
async def test_screens(state, place, size, here, tmp_path, monkeypatch, text_snapshot):
    path, _writer = place_of(state, here, tmp_path, monkeypatch)
    kept = tmp_path / "kept"
    view = View(place=place, filter="cause:M3 pages>=1" if state == "filtered" else "")
    app = app_of(path, kept, view=view)
    async with app.run_test(size=size) as pilot:
        if state == "loading":
            await pilot.pause()
        else:
            await opened(pilot, app)
        if state == "stale":
            app.take(source_module.Failure("the disk is gone", "look at the disk", app.now_us()))
        await pilot.pause()
        assert screen_text(app) == text_snapshot


@pytest.mark.parametrize("size", SIZES, ids=lambda s: f"{s[0]}x{s[1]}")
@pytest.mark.parametrize("place", PLACES)
async def test_a_storm_of_holds(place, size, tmp_path, text_snapshot):
    """The sample whose pool fills with held pages: bars, holders' panel and lengths have something to draw."""
    app = app_of(ROOT / "sample_logs" / "abort-storm", tmp_path, view=View(place=place))
    async with app.run_test(size=size) as pilot:
        await opened(pilot, app)
        await pilot.pause()
        assert screen_text(app) == text_snapshot


@pytest.mark.parametrize("place", [*PLACES, Place.INCIDENTS])
@pytest.mark.parametrize("size", [(59, 24), (80, 17), (1, 1), (60, 18), (100, 30), (139, 40), (140, 40), (250, 80)])
async def test_every_size_is_drawn_or_refused_in_words(place, size, here, tmp_path):
    app = app_of(here, tmp_path, view=View(place=place))
    async with app.run_test(size=size) as pilot:
        await opened(pilot, app)
        await pilot.pause()
        lines = screen_lines(app)
        assert {len(line) for line in lines} == {size[0]}
        small = size[0] < 60 or size[1] < 18
        assert ("needs 60×18" in "\n".join(lines)) == (small and size[0] >= 20)
        assert any(f"[{place.value.capitalize()}]"[1:] in line for line in lines) == (not small)


async def test_what_if_is_tried_and_taken_back(tmp_path):
    app = app_of(ROOT / "sample_logs" / "abort-storm", tmp_path, view=View(place=Place.HELD))
    async with app.run_test(size=(100, 30)) as pilot:
        await opened(pilot, app)
        await pilot.pause()
        measured = app.known.held[0].forecast.words
        assert measured == "never full"
        await pilot.press("colon", *"what-if", "space", *"rate=900", "enter")
        await until(pilot, lambda: "what if rate=900" in screen_text(app), "what is tried")
        assert "full in" in screen_text(app)
        assert "not as measured" in screen_text(app)
        await pilot.press("w")
        await until(pilot, lambda: "what if rate" not in screen_text(app), "what was measured")
        assert "never full" in screen_text(app)


async def test_an_incident_opens_from_the_overview_and_escape_leads_back_there(here, tmp_path):
    app = app_of(here, tmp_path, view=View())
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot, app)
        await pilot.press("enter")
        await worked_out(pilot)
        assert "VICTIM" in screen_text(app)
        await pilot.press("escape")
        await until(pilot, lambda: app.desk.view.place is Place.OVERVIEW, "the overview")
        assert "[1 Overview]" in screen_text(app)
