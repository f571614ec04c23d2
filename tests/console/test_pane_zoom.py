"""One pane of a screen alone, and all of them again."""

from pilots import app_of, opened, toasts, until, worked_out
from text_snapshot import screen_text

from console.core.actions import actions_of
from console.core.places import TABS, Place
from console.tui.incident_screen import IncidentScreen
from console.tui.screens import SCREENS


def test_every_screen_has_the_keys_that_zoom_a_pane_and_give_it_back():
    for place in (*TABS, Place.INCIDENT):
        keys = {key for action in actions_of(place) for key in action.keys}
        assert {"f", "escape"} <= keys, place


async def test_f_gives_a_pane_the_whole_screen_and_esc_gives_it_back(here, tmp_path):
    app = app_of(here, tmp_path)
    async with app.run_test(size=(160, 48), notifications=True) as pilot:
        await opened(pilot, app)
        await pilot.press("enter")
        await worked_out(pilot)
        await until(pilot, lambda: "READ" in screen_text(app), "the order of events")
        before = screen_text(app)
        await pilot.press("f")
        await until(pilot, lambda: "ORDER OF EVENTS" not in screen_text(app), "one pane")
        assert "VICTIM resp-b1" in screen_text(app)
        assert "RESPONSES" not in screen_text(app)
        assert "f all panes" in screen_text(app).splitlines()[-1]
        assert app.screen.query_one("#pages").size.height == 48 - 4 - 4  # frame; victim, rank, rule, proof
        assert app.screen.query_one("#pages").size.width == 160
        await pilot.press("escape")
        await until(pilot, lambda: screen_text(app) == before, "what it was")
        await pilot.press("f", "enter")
        await until(pilot, lambda: "VICTIM" not in screen_text(app), "the events alone")
        assert "ORDER OF EVENTS" in screen_text(app)
        await until(pilot, lambda: app.screen.focused is app.screen.query_one("#events"), "the keys there")
        await pilot.press("escape")
        await until(pilot, lambda: "VICTIM" in screen_text(app), "all panes")
        assert isinstance(app.screen, IncidentScreen)
        await pilot.press("escape")
        await until(pilot, lambda: app.desk.view.place is Place.INCIDENTS, "the list")


async def test_each_pane_of_each_screen_can_be_alone_at_any_size(here, tmp_path):
    app = app_of(here, tmp_path)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await opened(pilot, app)
        for place in SCREENS:
            app.go(place)
            await pilot.pause()
            screen = app.screen
            assert screen.PANES, place
            for pane in screen.PANES:
                widget = screen.query_one(f"#{pane}")
                if not widget.is_on_screen:
                    continue  # only a wide terminal has it
                widget.focus()
                await until(pilot, lambda s=screen, w=widget: s.focused is w, f"the keys on {pane}")
                await until(pilot, lambda s=screen: not getattr(s, "is_computing", False), "what it computes")
                before = screen_text(app)
                await pilot.press("f")
                beside = [
                    w for w in screen.query("LineList, PageGrid, Canvas") if w.id in screen.PANES and w is not widget
                ]
                await until(pilot, lambda w=widget: w.size.height >= 24 - 4 - 4, f"{place} {pane} alone")
                await until(pilot, lambda b=beside: not any(w.is_on_screen for w in b), f"nothing beside {pane}")
                assert widget.size.width >= 79
                screen_text(app)
                await pilot.press("f")
                await until(pilot, lambda b=before: screen_text(app) == b, f"{place} as it was")
        assert not toasts(app)


async def test_a_pane_that_a_narrow_terminal_lacks_is_not_alone_there(here, tmp_path):
    app = app_of(here, tmp_path)
    async with app.run_test(size=(160, 48)) as pilot:
        await opened(pilot, app)
        app.screen.query_one("#readings").focus()
        await until(pilot, lambda: app.screen.focused is app.screen.query_one("#readings"), "the keys there")
        await pilot.press("f")
        await until(pilot, lambda: app.screen.query_one("#readings").size.width == 160, "the responses alone")
        await pilot.resize_terminal(80, 24)
        await until(pilot, lambda: "SEV" in screen_text(app), "the list")
        assert app.screen.alone is None
