"""The Runs screen: as text at two sizes and in every state; reading changes nothing, starting needs --write."""

import json
import socket
from contextlib import closing
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
from pilots import NOW_US, SIZES, app_of, opened, toasts, typed, until
from text_snapshot import screen_lines, screen_text

from console.core.places import Place
from console.core.run_list import STEP_MARKS, expectation, library, run_list, run_words
from console.core.run_start import RunSetting, StartRefused, check_start
from console.core.view import View
from console.tui.app import ConsoleApp
from console.tui.line_list import LineList
from runbooks.engine_client import read_engine_file
from runbooks.lookup import find_runbook
from runbooks.plan import make_plan
from runbooks.predicates import Predicate
from runbooks.states import Conclusion, RunState, StepState
from runbooks.store import RunStore

TODAY = date(2026, 12, 1)
RUNS = View(place=Place.RUNS)


@pytest.fixture
def engine_file(tmp_path) -> Path:
    """An engine that nobody serves: its port is taken and never listened on."""
    with closing(socket.socket()) as door:
        door.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{door.getsockname()[1]}"
        path = tmp_path / "engine.json"
        path.write_text(
            json.dumps(
                {
                    "gateway": url, "prefill": [url], "decode": [url], "ledger": "ledger", "api_keys": {"a": "k", "b": "l"},
                    "hop_key_file": "none",
                }
            )
        )  # fmt: skip
        yield path


@pytest.fixture
def state(tmp_path, engine_file) -> Path:
    """One run that waits for a person after its alert was confirmed, and one that found nothing."""
    directory = tmp_path / "runs"
    content = json.loads(engine_file.read_text()) | {
        "gateway": "http://gateway",
        "prefill": ["http://p"],
        "decode": ["http://d"],
    }
    named = tmp_path / "named.json"
    named.write_text(json.dumps(content))
    plan = make_plan(find_runbook("RB-01", TODAY), {}, read_engine_file(named))
    with closing(RunStore(directory)) as store:
        for run_id, states in (
            ("rb01-0000000001", [StepState.CONFIRMED, StepState.CONFIRMED, StepState.CONFIRMED]),
            ("rb01-0000000002", [StepState.CONFIRMED, StepState.FAILED]),
        ):
            t = NOW_US - 3_600_000_000 + int(run_id[-1]) * 60_000_000
            store.create(run_id, plan, t)
            store.move_run(run_id, RunState.RUNNING, t)
            for place, ended in enumerate(states):
                said = ["the smallest pool falls short of the context"] if ended is StepState.FAILED else []
                for move in (StepState.INTENT, StepState.APPLIED):
                    store.move_step(run_id, place, move, t)
                store.move_step(run_id, place, ended, t + 1_000_000, findings=said)
            if StepState.FAILED in states:
                store.move_step(run_id, 3, StepState.WAITING, t + 2_000_000, findings=["clamp the gateway"])
                store.move_run(run_id, RunState.WAITING, t + 2_000_000, Conclusion.CONFIRMED)
            else:
                for place in range(3, len(plan.runbook.steps)):
                    store.move_step(run_id, place, StepState.SKIPPED, t)
                store.move_run(run_id, RunState.FINISHED, t + 2_000_000, Conclusion.NOT_CONFIRMED)
    return directory


def console(path: Path, kept: Path, directory: Path, **setting) -> ConsoleApp:
    app = app_of(path, kept, view=RUNS)
    app.around = replace(app.around, runs=RunSetting(directory, **setting))
    return app


async def listed(pilot, app: ConsoleApp) -> None:
    await until(pilot, lambda: app.screen._known is not None, "the runbooks")


@pytest.mark.parametrize("size", SIZES, ids=lambda s: f"{s[0]}x{s[1]}")
@pytest.mark.parametrize("shown", ["normal", "incident", "empty", "failed", "loading"])
async def test_runs(shown, size, here, tmp_path, state, monkeypatch, text_snapshot):
    directory = state
    only = tuple(book for book in library(TODAY) if book.head.id == "RB-01")
    monkeypatch.setattr("console.tui.runbook_screen.library", lambda _: only)  # the library grows, the screens need not
    if shown == "empty":
        directory = tmp_path / "nothing"
    elif shown == "failed":
        directory = Path("broken")
        monkeypatch.chdir(tmp_path)
        directory.mkdir()
        (directory / "runs.sqlite").write_bytes(b"this is no database" * 100)
    elif shown == "loading":
        monkeypatch.setattr("console.tui.runbook_screen.RunbookScreen._look", lambda _: None)
    app = console(here if shown != "failed" else state.parent / "none", tmp_path, directory)
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: app.desk.shown is not None or app.desk.failure is not None, "the reading")
        if shown != "loading":
            await listed(pilot, app)
        if shown == "incident":
            await pilot.press("j", "enter", "j")
        await pilot.pause()
        assert screen_text(app) == text_snapshot


async def test_reading_makes_and_changes_nothing(here, tmp_path, state):
    before = (state / "runs.sqlite").read_bytes()
    books = library(TODAY)
    assert [run.run_id for run in run_list(state, books).runs] == ["rb01-0000000002", "rb01-0000000001"]
    assert (state / "runs.sqlite").read_bytes() == before
    nowhere = tmp_path / "nowhere"
    assert run_list(nowhere, books).runs == ()
    assert not nowhere.exists()
    with closing(RunStore(state, read_only=True)) as store, pytest.raises(Exception, match="readonly"):
        store.move_run("rb01-0000000002", RunState.RUNNING, NOW_US)


def test_a_run_is_told_in_words(state):
    waits, ended = run_list(state, library(TODAY)).runs
    assert run_words(waits) == "waits for a person at clamp; the alert is CONFIRMED"
    assert run_words(ended) == "finished; the alert is not confirmed"
    assert set(STEP_MARKS) == set(StepState)
    assert len({(mark, word) for mark, word in STEP_MARKS.values()}) == len(STEP_MARKS)


@pytest.mark.parametrize(
    ("predicate", "words"),
    [
        ({"field": "leaks", "op": "empty"}, "leaks is empty"),
        ({"field": "n", "op": ">=", "to": 0}, "n >= 0"),
        ({"field": "n", "op": "within_pct", "to": 10, "pct": 5}, "n within_pct 10 ±5 %"),
        ({"field": "rows", "op": "all", "of": {"field": "ok", "op": "==", "to": True}}, "all of rows: ok == True"),
    ],
)
def test_an_expectation_is_told_as_it_is(predicate, words):
    assert expectation(Predicate.model_validate(predicate)) == words


def test_a_start_is_refused_with_what_to_do(tmp_path, engine_file):
    book = next(book for book in library(TODAY) if book.head.id == "RB-01")
    for setting, asked, words in (
        (RunSetting(tmp_path), book, "open it with --write, or give in a shell: runbook run RB-01 --ledger"),
        (RunSetting(tmp_path, True), book, "needs a running engine"),
        (RunSetting(tmp_path, True, engine_file), None, "there is no runbook RB-99"),
    ):
        with pytest.raises(StartRefused, match=words):
            check_start(setting, asked, "RB-99", tmp_path)
    assert check_start(RunSetting(tmp_path, True, engine_file), book, "", tmp_path) is book


async def test_without_write_nothing_is_asked_and_nothing_started(here, tmp_path, state):
    app = console(here, tmp_path, state)
    async with app.run_test(size=(160, 48), notifications=True) as pilot:
        await opened(pilot, app)
        await listed(pilot, app)
        assert screen_lines(app)[0].rstrip().endswith("RO")
        await pilot.press("r")
        await until(pilot, lambda: "only reads" in toasts(app), "the refusal")
        assert app.screen._starts == []


async def test_a_wrong_name_starts_nothing_and_the_right_one_a_run_whose_steps_come_up(here, tmp_path, engine_file):
    app = console(here, tmp_path, tmp_path / "new", may_start=True, engine=engine_file)
    async with app.run_test(size=(160, 48), notifications=True) as pilot:
        await opened(pilot, app)
        await listed(pilot, app)
        assert screen_lines(app)[0].rstrip().endswith("OP")
        runs = app.screen
        await pilot.press("r")
        await until(pilot, lambda: "write RB-01 to start it" in screen_text(app), "the question")
        assert "sends up to ten synthetic prompts" in screen_text(app)
        await typed(pilot, "RB-02")
        await pilot.press("enter")
        await until(pilot, lambda: "nothing was started" in toasts(app), "the refusal")
        assert runs._starts == []
        await pilot.press("r")
        await until(pilot, lambda: "write RB-01 to start it" in screen_text(app), "the question")
        await typed(pilot, "RB-01")
        await pilot.press("enter")
        await until(pilot, lambda: runs._known.runs and runs._known.runs[0].state is RunState.WAITING, "the run")
        await until(pilot, lambda: not runs._starts, "the end of its process")
        await pilot.press("G")
        await pilot.pause()
        assert app.screen.query_one("#run-list", LineList).cursor_key == f"run:{runs._known.runs[0].run_id}"
        assert "waits for a person" in toasts(app)


async def test_a_process_that_fails_says_why(here, tmp_path):
    (tmp_path / "bad.json").write_text("no json")
    app = console(here, tmp_path, tmp_path / "new", may_start=True, engine=tmp_path / "bad.json")
    async with app.run_test(size=(160, 48), notifications=True) as pilot:
        await opened(pilot, app)
        await listed(pilot, app)
        await pilot.press("r")
        await until(pilot, lambda: "write RB-01 to start it" in screen_text(app), "the question")
        await typed(pilot, "RB-01")
        await pilot.press("enter")
        await until(pilot, lambda: "exit code 64" in toasts(app), "the words")


@pytest.mark.parametrize(
    ("command", "words"), [("run RB-01", ":run works on 6 Runs"), ("what-if rate=2", ":what-if works on 4 Held")]
)
async def test_a_command_of_another_screen_is_refused_with_the_screen(command, words, here, tmp_path):
    app = app_of(here, tmp_path)
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot, app)
        await pilot.press("colon")
        await typed(pilot, command)
        await pilot.press("enter")
        await until(pilot, lambda: words in screen_text(app), "the refusal")
