"""What the console asks of the terminal itself: refresh, mouse, bell and title, ASCII."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pilots import app_of, around, opened, toasts, until
from rich.cells import cell_len
from scripted_ledger import ACME, BRIO, Scene, ordinary, short_handoff
from text_snapshot import screen_text

from console.core.looks import refresh_s
from console.core.marks import SEVERITY_MARKS, VERDICT_MARKS
from console.core.source import LedgerSource
from console.core.time_range import BadRange
from console.tui.app import ConsoleApp
from console.tui.ascii_glyphs import asks_ascii, in_ascii
from console.tui.prompt_screen import PromptScreen


@given(st.text(st.characters(exclude_categories=["C", "M"])))
def test_ascii_is_as_wide_as_what_it_stands_for(text):
    made = in_ascii(text)
    assert made.isascii()
    assert cell_len(made) == cell_len(text)


def test_signs_that_stand_together_stay_apart():
    for marks in (SEVERITY_MARKS, VERDICT_MARKS):
        assert len({in_ascii(mark.glyph) for mark in marks.values()}) == len(marks)
    assert in_ascii("·░X▼") == ".:Xv"


@pytest.mark.parametrize(
    ("environment", "asked"),
    [
        ({}, False), ({"LANG": "C"}, True), ({"LANG": "de_DE.ISO-8859-1"}, True), ({"LANG": "C.UTF-8"}, False),
        ({"LC_ALL": "POSIX", "LANG": "en_US.utf8"}, True), ({"LC_CTYPE": "en_US.UTF-8", "LANG": "C"}, False),
    ],
)  # fmt: skip
def test_the_locale_asks_for_ascii(environment, asked):
    assert asks_ascii(environment) is asked


def test_how_often_one_may_look():
    assert [refresh_s(text) for text in ("1s", " 2s", "1m", "1h")] == [1, 2, 60, 3600]
    for text in ("0s", "2h", "often"):
        with pytest.raises(BadRange):
            refresh_s(text)


async def test_what_opens_rings_and_titles_and_what_was_there_does_not(tmp_path):
    scene = Scene(tmp_path / "ledger")
    ordinary(scene, "donor", ACME, 1, 3)
    short_handoff(scene, "victim", BRIO, 1, 3)
    scene.beat()
    scene.flush()
    source = LedgerSource(scene.directory, now_us=lambda: scene.now, engine="replay")
    app = ConsoleApp(source, around=around(tmp_path))
    async with app.run_test(size=(80, 24)) as pilot:
        written = []
        app.to_terminal = written.append
        app.bell = lambda: written.append("bell")
        await opened(pilot, app)
        reading = app.desk.shown
        app.tell_opened(reading, scene.directory, app.said)
        assert not [text for text in written if text == "bell" or "]9;" in text]
        (incident,) = reading.incidents
        app.book(app.source).ack(incident, "seen")
        app.listen()
        written.clear()
        app.tell_opened(reading, scene.directory, app.said)
        assert written == ["\x1b]2;0 open, ledger, kvwitness\x07"]
        app.said = ()  # as if it had grown since
        app.tell_opened(reading, scene.directory, app.said)
        assert written[1:] == [
            "\x1b]2;1 open, ledger, kvwitness\x07",
            f"\x1b]9;{incident.severity.name} {incident.id} {incident.title}, ledger\x07",
            "bell",
        ]


async def test_refresh_mouse_and_a_history_for_each_screen(finished_ledger, tmp_path):
    app = app_of(finished_ledger, tmp_path, environment={"LANG": "C"})
    async with app.run_test(size=(100, 24)) as pilot:
        written = []
        app.to_terminal = written.append
        await opened(pilot, app)
        assert screen_text(app).isascii()
        assert " !" in screen_text(app)
        app.attempt("refresh", "2s")
        assert app.refresh_s == 2
        app.attempt("refresh", "2d")
        await until(pilot, lambda: "once in 3600 s" in toasts(app), "the refusal")
        written.clear()
        await pilot.press("f2")
        await pilot.press("f2")
        assert [text.count("l") for text in written] == [4, 0]
        for place, text in (("incidents", "cause:M1"), ("held", "pages>2")):
            app.attempt(f"go_{place}")
            await pilot.pause()
            app.ask_filter("")
            await until(pilot, lambda: isinstance(app.screen, PromptScreen), "the line")
            await pilot.press(*[{":": "colon", ">": "greater_than_sign"}.get(c, c) for c in text], "enter")
            await until(pilot, lambda text=text: app.desk.view.filter == text, "the filter")
        assert app._history["incidents"] == ["cause:M1"]
        assert app._history["held"] == ["pages>2"]
