"""What all screens of the terminal share: keys, the line for commands and filters, time, what is kept, themes."""

import json

import pytest
from pilots import app_of, may_write, opened, toasts, typed, until
from text_snapshot import screen_lines, screen_text

from console.core.palettes import THEMES
from console.core.places import Place
from console.core.saved_views import load_views
from console.core.time_range import ALL
from console.core.view import Mode, View
from console.tui.prompt_screen import PromptScreen
from console.tui.screens import SCREENS

SIZE = (100, 30)


@pytest.fixture
async def open_app(here, tmp_path):
    """The finished ledger, open, and its pilot."""
    app = app_of(here, tmp_path)
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await opened(pilot, app)
        yield app, pilot


async def said(pilot, app, text: str) -> None:
    """Give a command and wait until its line has closed or opened again with a fault."""
    await pilot.press("colon")
    await until(pilot, lambda: isinstance(app.screen, PromptScreen), "the line")
    await typed(pilot, text)
    asked = app.screen
    await pilot.press("enter")
    await until(pilot, lambda: app.screen is not asked, "the answer")


def words(app) -> str:
    return "\n".join(screen_lines(app))


async def test_numbers_lead_to_screens_and_keep_range_and_filter(open_app):
    app, pilot = open_app
    await said(pilot, app, "filter cause:M3")
    for number, place in enumerate((p for p in Place if p is not Place.INCIDENT), start=1):
        await pilot.press(str(number))
        await pilot.pause()
        if place in SCREENS:
            assert app.desk.view.place is place
            assert f"[{number} {place.value.capitalize()}]" in words(app)
            assert app.desk.view.filter == "cause:M3"
            assert ("/cause:M3" in words(app)) is (place is not Place.RUNS)  # runs have nothing to filter
        else:
            assert "is no screen of the terminal" in words(app)


async def test_a_filter_hides_counts_and_is_taken_away(open_app):
    app, pilot = open_app
    await pilot.press("slash")
    await until(pilot, lambda: isinstance(app.screen, PromptScreen), "the line")
    await typed(pilot, "-cause:M1")
    await pilot.press("enter")
    await until(pilot, lambda: app.desk.view.filter == "-cause:M1", "the filter")
    assert "1 of 2, 1 hidden" in words(app)
    assert "M1 short handoff" not in words(app)
    await pilot.press("slash")
    await until(pilot, lambda: isinstance(app.screen, PromptScreen), "the line")
    await pilot.press(*["backspace"] * 9, "enter")
    await until(pilot, lambda: app.desk.view.filter == "", "no filter")
    assert "2 of 2" in words(app)


@pytest.mark.parametrize(
    ("text", "fault", "at"),
    [
        ("cause:M3 sevrity:P1", "there is no field sevrity; did you mean severity?", 9),
        ("responses>=many", "responses>= needs a number or a time", 0),
        ('cause:M3 "open', "the quote is not closed", 9),
    ],
)
async def test_a_wrong_filter_is_shown_again_with_its_place(text, fault, at, open_app):
    app, pilot = open_app
    await pilot.press("slash")
    await until(pilot, lambda: isinstance(app.screen, PromptScreen), "the line")
    await typed(pilot, text)
    asked = app.screen
    await pilot.press("enter")
    await until(pilot, lambda: isinstance(app.screen, PromptScreen) and app.screen is not asked, "the fault")
    await pilot.pause()
    lines = screen_lines(app)
    caret = next(n for n, line in enumerate(lines) if line.strip() == "^")
    assert lines[caret].index("^") == at + 1
    assert fault in lines[caret - 1]
    assert lines[caret + 1].startswith("/" + text)
    await pilot.press("escape")
    await until(pilot, lambda: not isinstance(app.screen, PromptScreen), "the screen")
    assert app.desk.view.filter == ""


async def test_tab_completes_fields_values_and_commands(open_app):
    app, pilot = open_app
    await pilot.press("slash")
    await until(pilot, lambda: isinstance(app.screen, PromptScreen), "the line")
    await typed(pilot, "cau")
    await pilot.press("tab")
    await typed(pilot, "M3")
    await pilot.press("tab", "enter")
    await until(pilot, lambda: app.desk.view.filter.startswith("cause:M3"), "the filter")
    await pilot.press("colon")
    await until(pilot, lambda: isinstance(app.screen, PromptScreen), "the line")
    await typed(pilot, "hel")
    await pilot.press("tab", "enter")
    await until(pilot, lambda: app.desk.view.place is Place.HELD, "Held")


async def test_a_command_that_is_not_there_is_asked_for_again(open_app):
    app, pilot = open_app
    await said(pilot, app, "incidnet I-1")
    assert isinstance(app.screen, PromptScreen)
    assert "did you mean :incident?" in words(app)
    await pilot.press("escape")
    await said(pilot, app, "range now-1x")
    assert "cannot read 'now-1x'" in words(app)


async def test_time_keys_move_zoom_and_fit(open_app):
    app, pilot = open_app
    await pilot.press("4")
    first, last = app.looked()
    await pilot.press("right_square_bracket", "right_square_bracket")
    await pilot.pause()
    assert app.desk.view.cursor_us == first + 2 * ((last - first) // 20)
    await pilot.press("plus")
    await pilot.pause()
    nearer = app.looked()
    assert abs((nearer[1] - nearer[0]) - (last - first) // 2) <= (last - first) // 2
    assert nearer[0] <= app.desk.view.cursor_us <= nearer[1]
    assert not app.desk.view.range.follows
    await pilot.press("z")
    await pilot.pause()
    assert app.desk.view.range == ALL
    assert app.looked() == (first, last)
    await pilot.press("right_curly_bracket")
    await pilot.pause()
    incident = app.desk.incident
    assert app.desk.view.cursor_us == incident.first_seen_us


async def test_a_range_holds_on_all_screens(open_app, finished):
    app, pilot = open_app
    late = finished.incidents[1].id
    await said(pilot, app, f"range {late}+-1ms")
    assert "outside the range" in words(app)
    await pilot.press("1")
    await pilot.pause()
    assert f"{late}" in words(app)


async def test_acks_notes_and_refused_silences_are_kept_beside_the_ledger(open_app, tmp_path):
    app, pilot = open_app
    for action, text in (("ack", ""), ("silence", "2h"), ("note", "seen"), ("unsilence", "")):
        app.attempt(action, text)
    await until(pilot, lambda: toasts(app).count("this console only reads") == 4, "the refusals")
    assert (app.said, list(tmp_path.rglob("*.jsonl"))) == ((), [])
    may_write(app)
    await pilot.press("a")
    await until(pilot, lambda: len(app.said) == 1, "the ack")
    assert " ack" in words(app)
    await said(pilot, app, "note looked at the abort path")
    await until(pilot, lambda: len(app.said) == 2, "the note")
    await said(pilot, app, "silence 2h")
    assert isinstance(app.screen, PromptScreen)
    assert "grows no more" in words(app)
    await pilot.press("escape", "1")
    await until(pilot, lambda: app.desk.view.place is Place.OVERVIEW, "the overview")
    assert app.desk.shown.incidents[0].id not in words(app).split("DETECTORS")[0]
    (file,) = (tmp_path / "state").iterdir()
    entries = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(e["act"], e["who"], e.get("words", "")) for e in entries] == [
        ("ack", "kl", ""),
        ("note", "kl", "looked at the abort path"),
    ]


@pytest.mark.parametrize("fmt", ["csv", "parquet", "jsonl", "md", "svg"])
async def test_exports_are_new_files(fmt, open_app, tmp_path):
    app, pilot = open_app
    for _ in range(2):
        await said(pilot, app, f"export {fmt}")
    names = sorted(p.name for p in (tmp_path / "exports").iterdir())
    assert names == [f"incident-ledger-incidents-2.{fmt}", f"incident-ledger-incidents.{fmt}"]
    content = (tmp_path / "exports" / names[1]).read_bytes()
    assert content == (tmp_path / "exports" / names[0]).read_bytes() or fmt in ("svg", "parquet")
    if fmt in ("csv", "jsonl", "md"):
        assert all(i.id.encode() in content for i in app.known.incidents)


async def test_nothing_is_exported_into_the_ledger(open_app):
    app, pilot = open_app
    object.__setattr__(app.around, "exports", app.source.path)
    await said(pilot, app, "export csv")
    assert "evidence is never written to" in words(app)
    assert not list(app.source.path.glob("*.csv"))


async def test_views_are_saved_and_opened(open_app, tmp_path):
    app, pilot = open_app
    await said(pilot, app, "filter cause:M3")
    await said(pilot, app, "save on-call")
    assert load_views(tmp_path / "views.toml").views["on-call"].filter == "cause:M3"
    await said(pilot, app, "filter cause:M1")
    await pilot.press("5")
    await said(pilot, app, "view on-call")
    await until(pilot, lambda: app.desk.view.place is Place.INCIDENTS, "the view")
    assert app.desk.view.filter == "cause:M3"
    await said(pilot, app, "view nothing")
    fault = "there is no saved view nothing; there are: on-call"
    await until(pilot, lambda: fault in words(app), "the fault")


async def test_y_copies_an_address_and_a_command(open_app):
    app, pilot = open_app
    await said(pilot, app, "filter cause:M3")
    await pilot.press("y")
    await pilot.pause()
    link, command = app.clipboard.splitlines()
    assert link.startswith("/incidents?q=cause:M3&incident=I-")
    assert command.startswith("console --ledger ")
    assert command.endswith(f"--view '{link}'")


async def test_a_table_is_sorted_and_turned_round(open_app):
    app, pilot = open_app
    before = [i.id for i in app.known.incidents]
    await said(pilot, app, "sort cause")
    assert "sort ▲cause" in words(app)
    await said(pilot, app, "sort cause")
    assert "sort ▼cause" in words(app)
    rows = [line for line in screen_lines(app) if " I-" in line and "▲P1" in line]
    assert [next(w for w in row.split() if w.startswith("I-")) for row in rows] == before[::-1]


@pytest.mark.parametrize("name", THEMES)
async def test_every_theme_says_the_same(name, here, tmp_path):
    app = app_of(here, tmp_path, view=View(), theme=name)
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot, app)
        await pilot.pause()
        text = screen_text(app)
        assert "▲P1" in text
        assert "✗ 1" in text
        assert app.theme == f"kvwitness-{name}"
        if name == "plain":
            strips = app.screen._compositor.render_strips()
            colours = {
                segment.style.color.triplet for strip in strips for segment in strip
                if segment.style and segment.style.color and segment.style.color.triplet
            }  # fmt: skip
            assert not colours


async def test_no_color_takes_every_colour_away(here, tmp_path):
    app = app_of(here, tmp_path, environment={"NO_COLOR": "1"}, theme="light")
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot, app)
        assert app.theme == "kvwitness-plain"


async def test_h_and_l_point_earlier_and_later_where_there_is_no_map(open_app):
    app, pilot = open_app
    for number in ("1", "4", "5"):
        await pilot.press(number, "h", "h", "left")
        await pilot.pause()
        earlier = app.desk.view.cursor_us
        await pilot.press("l", "right")
        await pilot.pause()
        assert earlier < app.desk.view.cursor_us


async def test_a_replay_moves_stands_and_changes_its_pace(open_app):
    app, pilot = open_app
    await pilot.press("4", "R")
    await until(pilot, lambda: app.desk.mode is Mode.REPLAY, "the replay")
    first, last = app.looked()
    await until(pilot, lambda: (app.desk.view.cursor_us or 0) > first, "the replay moves")
    assert "REPLAY ×1" in words(app)
    await pilot.press("less_than_sign")
    await pilot.pause()
    assert app.desk.view.replay.speed == 0.5
    await pilot.press("space")
    await pilot.pause()
    assert not app.desk.view.replay.is_playing
    assert "standing" in words(app)
    await said(pilot, app, "replay 64")
    await until(pilot, lambda: app.desk.view.cursor_us == last, "the end of the record")
    await said(pilot, app, "replay 5")
    assert "'5' is no speed" in words(app)


async def test_several_ledgers_each_keep_their_view(here, live_scene, finished_ledger, tmp_path):
    app = app_of(finished_ledger, tmp_path / "kept", others=[live_scene.directory])
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await opened(pilot, app)
        await said(pilot, app, "filter cause:M3")
        await said(pilot, app, "ledger live-ledger")
        await opened(pilot, app)
        assert app.ledger_name == "live-ledger"
        assert "live-ledger" in screen_lines(app)[0]
        assert "LIVE" in screen_lines(app)[0]
        assert app.desk.view.filter == ""
        await said(pilot, app, "ledger incident-ledger")
        await until(pilot, lambda: "FINISHED" in screen_lines(app)[0], "the first ledger")
        assert app.desk.view.filter == "cause:M3"
        await said(pilot, app, "ledger nowhere")
        assert "there is no ledger nowhere; there are: incident-ledger, live-ledger" in words(app)


async def test_the_palette_finds_an_action_by_its_words(open_app):
    app, pilot = open_app
    await pilot.press("ctrl+p")
    await typed(pilot, "screen Latency")
    await until(pilot, lambda: "the screen Latency" in words(app), "the hit")
    await pilot.press("down", "enter")
    await until(pilot, lambda: app.desk.view.place is Place.LATENCY, "Latency")
