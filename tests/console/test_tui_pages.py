"""The Pages screen: as text at two sizes and in every state; the cursor, zoom, marks, pools."""

from pathlib import Path

import pytest
from pilots import SIZES, app_of, opened, until
from scripted_ledger import ACME, BRIO, Scene, ordinary, short_handoff
from text_snapshot import screen_lines, screen_text

import console.core.source as source_module
from console.core.page_marks import FOREIGN_READ
from console.core.places import Place
from console.core.source import LedgerSource
from console.core.view import View
from console.tui.app import ConsoleApp
from console.tui.incident_screen import IncidentScreen
from console.tui.page_grid import PageGrid

PAGES = View(place=Place.PAGES)
KEY = ("decode-0", 1)


async def drawn(pilot, app: ConsoleApp) -> None:
    """Wait until the map and the story are drawn."""

    def there() -> bool:
        screen = app.screen
        return screen._picture is not None and screen._story is not None and not screen.is_computing

    await until(pilot, there, "the map")


def grid_of(app: ConsoleApp) -> list[str]:
    """The lines of the map without their margin."""
    height = app.screen.query_one(PageGrid).size.height
    return [line[8:] for line in screen_lines(app)[6 : 6 + height]]


@pytest.mark.parametrize("size", SIZES, ids=lambda s: f"{s[0]}x{s[1]}")
@pytest.mark.parametrize("state", ["normal", "incident", "late", "zoomed", "none", "empty", "failed", "loading"])
async def test_pages(state, size, here, tmp_path, monkeypatch, text_snapshot):
    path, view = here, PAGES
    if state == "empty":
        monkeypatch.chdir(tmp_path)
        path = Path("new-ledger")
        Scene(path).flush()
    elif state == "normal":
        monkeypatch.chdir(tmp_path)
        path = Path("clean-ledger")
        scene = Scene(path)
        ordinary(scene, "fine", ACME, 1, 12)
        ordinary(scene, "too", BRIO, 5, 12)
        scene.close()
    elif state == "none":
        monkeypatch.chdir(tmp_path)
        path = Path("pageless-ledger")
        scene = Scene(path)
        scene.gateway.record("requests", "receive", req=1, rid="alone", attempt=1, tenant=ACME, purpose="customer")
        scene.close()
    elif state == "failed":
        monkeypatch.setattr(source_module, "foreign_reads", lambda *_, **__: 1 / 0)
    elif state == "loading":
        monkeypatch.setattr(LedgerSource, "read_if_changed", lambda _: None)
    app = app_of(path, tmp_path, view=view)
    async with app.run_test(size=size) as pilot:
        if state != "loading":
            await opened(pilot, app)
        if state in ("normal", "incident", "late", "zoomed"):
            await drawn(pilot, app)
        if state == "none":
            await until(pilot, lambda: "No pages" in screen_text(app), "the words")
        keys = {"late": ["N"], "zoomed": ["n", "plus", "plus", "plus"]}.get(state, [])
        for key in keys:
            await pilot.press(key)
            await drawn(pilot, app)
        assert screen_text(app) == text_snapshot


@pytest.mark.parametrize("size", [(60, 18), (160, 48)])
async def test_a_foreign_read_of_a_millisecond_is_seen_at_every_zoom(size, tmp_path):
    """One pass of 1 ms over one foreign page, in a record of an hour."""
    scene = Scene(tmp_path / "ledger")
    ordinary(scene, "donor", ACME, 1, 2)
    short_handoff(scene, "victim", BRIO, 1, 2, steps=1)
    scene.wait(3_600_000)
    ordinary(scene, "later", ACME, 1, 40)
    scene.close()
    app = app_of(scene.directory, tmp_path, view=PAGES)
    async with app.run_test(size=size) as pilot:
        await opened(pilot, app)
        await drawn(pilot, app)
        for key in ["plus"] * 12 + ["minus"] * 14:
            await pilot.press(key)
            await drawn(pilot, app)
            text = "\n".join(grid_of(app))
            assert text.count("X") >= 1, (key, text)
            assert {len(line) for line in screen_lines(app)} == {size[0]}
        assert app.desk.view.range.text in ("", "all")


async def test_the_cursor_goes_over_the_cells_and_stays_in_the_map(here, tmp_path):
    app = app_of(here, tmp_path, view=PAGES)
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot, app)
        await drawn(pilot, app)
        rows, cols = app.screen._picture.drawn.cells.shape
        for keys, row, col in (
            (["g"], 0, None), (["j"], 1, None), (["down"], 2, None), (["k", "up", "k"], 0, None), (["G"], rows - 1, None),
            (["h"] * 90, rows - 1, 0), (["l", "right"], rows - 1, 2), (["left"], rows - 1, 1), (["l"] * 90, rows - 1, cols - 1),
        ):  # fmt: skip
            await pilot.press(*keys)
            await drawn(pilot, app)
            cell = app.screen._cell
            assert cell.row == row, keys
            assert col in (None, cell.col), keys
            assert (app.desk.view.page, app.desk.view.cursor_us) == (cell.page, cell.t_us)


async def test_n_goes_over_every_mark_and_zooms_along(here, tmp_path):
    app = app_of(here, tmp_path, view=PAGES)
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot, app)
        await drawn(pilot, app)
        marks = app.desk.shown.marks(KEY, "kv").markers
        places = sorted({(m.t_us, m.page) for m in marks})
        await pilot.press("plus", "plus", "plus")
        await drawn(pilot, app)
        seen = []
        for _ in places:
            await pilot.press("n")
            await drawn(pilot, app)
            seen.append((app.desk.view.cursor_us, app.desk.view.page))
            cell = app.screen._cell
            assert app.screen._picture.reads[cell.row, cell.col] + app.screen._picture.writes[cell.row, cell.col] >= 1
        assert seen == [*places[1:], places[0]]


async def test_enter_opens_the_incident_of_the_read_under_the_cursor(here, tmp_path):
    app = app_of(here, tmp_path, view=PAGES)
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot, app)
        await drawn(pilot, app)
        mark = next(m for m in app.desk.shown.marks(KEY, "kv").markers if m.kind == FOREIGN_READ)
        assert (app.desk.view.page, app.screen._cell.page) == (None, mark.page)
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, IncidentScreen), "the incident")
        assert (app.desk.reading.rid, app.desk.view.page) == (mark.rid, mark.page)
        await pilot.press("escape")
        await drawn(pilot, app)
        assert app.desk.view.place is Place.PAGES


async def test_braces_go_to_the_first_mark_of_each_incident(here, tmp_path):
    app = app_of(here, tmp_path, view=PAGES)
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot, app)
        await drawn(pilot, app)
        for _ in range(2):
            await pilot.press("right_curly_bracket")
            await drawn(pilot, app)
            chosen = app.desk.view.incident
            first = next(m for m in app.desk.shown.marks(KEY, "kv").markers if m.incident == chosen)
            assert (app.desk.view.page, app.desk.view.cursor_us) == (first.page, first.t_us)


async def test_p_shows_the_next_pool_and_a_page_is_found_by_its_number(here, tmp_path):
    app = app_of(here, tmp_path, view=PAGES)
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot, app)
        await drawn(pilot, app)
        assert "decode-0/kv" in screen_lines(app)[3]
        await pilot.press("p")
        await until(pilot, lambda: "prefill-0/kv" in screen_lines(app)[3], "the other pool")
        await pilot.press("p")
        await until(pilot, lambda: "decode-0/kv" in screen_lines(app)[3], "the first pool")
        await pilot.press("colon", *"page", "space", *"31", "enter")
        await until(pilot, lambda: "PAGE 31 at" in screen_text(app), "page 31")


async def test_letters_say_what_colours_say(here, tmp_path, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    app = app_of(here, tmp_path, view=PAGES)
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot, app)
        await drawn(pilot, app)
        cells = "".join(grid_of(app))
        assert {"a", "b", "c", "X"} <= set(cells)
