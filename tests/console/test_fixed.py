"""Keys that change words in their places lay no screen out anew, and what stays as it is is not drawn again."""

from pathlib import Path

import pytest
from pilots import app_of, opened, until, worked_out
from rich.text import Text
from textual.screen import Screen

from console.core.places import Place
from console.core.view import View
from console.tui.fixed import Fixed

STORM = Path(__file__).parents[2] / "sample_logs" / "abort-storm" / "ledger"


@pytest.fixture
def layouts(monkeypatch):
    """Screens that were laid out, each time."""
    done, lay_out = [], Screen._refresh_layout

    def counted(self, *at, scroll=False):
        if not scroll:
            done.append(self)
        lay_out(self, *at, scroll=scroll)

    monkeypatch.setattr(Screen, "_refresh_layout", counted)
    return done


@pytest.mark.parametrize(("place", "keys"), [(Place.PAGES, "jljk"), (Place.EVENTS, "kk"), (Place.HELD, "jk")])
async def test_moving_the_cursor_lays_nothing_out(place, keys, layouts, tmp_path):
    app = app_of(STORM, tmp_path, view=View(place=place))
    async with app.run_test(size=(160, 48)) as pilot:
        await opened(pilot, app)
        if place in (Place.PAGES, Place.EVENTS):
            await worked_out(pilot)
        await pilot.press(keys[0])
        await pilot.pause()
        layouts.clear()
        for key in keys[1:]:
            await pilot.press(key)
            await pilot.pause()
            app.redraw_header()
            await pilot.pause()
        assert layouts == []


async def test_the_same_words_are_not_drawn_again(tmp_path, monkeypatch):
    app = app_of(STORM, tmp_path)
    async with app.run_test(size=(160, 48)) as pilot:
        await opened(pilot, app)
        await until(pilot, lambda: bool(app.screen.query("#crumbs")), "the screen")
        line, drawn = app.screen.query_one("#crumbs", Fixed), []
        monkeypatch.setattr(line, "refresh", lambda **more: drawn.append(more))
        for text in (
            Text("one", style="bold"),
            Text("one", style="bold"),
            Text("one"),
            Text("one"),
            Text("two"),
            "",
            "",
        ):
            line.update(text)
        assert len(drawn) == 4
