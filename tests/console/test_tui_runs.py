"""The Runs screen: as text at two sizes and in every state; reading changes nothing, starting needs --write."""

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
from pilots import NOW_US, SIZES, app_of, opened, toasts, typed, until
from text_snapshot import screen_lines, screen_text

from console.core.places import Place
from console.core.run_list import STEP_MARKS, expectation, library, run_list, run_words
from console.core.run_start import Orders, RunSetting, StartRefused, split_asked, start
from console.core.view import View
from console.tui.app import ConsoleApp
from console.tui.line_list import LineList
from runbooks.model import Param
from runbooks.predicates import Predicate
from runbooks.states import RunState, StepState
from runbooks.store import RunStore, StoredRun

TODAY = date(2026, 12, 1)
RUNS = View(place=Place.RUNS)


def console(path: Path, kept: Path, directory: Path, **setting) -> ConsoleApp:
    app = app_of(path, kept, view=RUNS)
    app.around = replace(app.around, runs=RunSetting(directory, **setting))
    return app


async def listed(pilot, app: ConsoleApp) -> None:
    await until(pilot, lambda: app.screen._known is not None, "the runbooks")


@pytest.mark.parametrize("size", SIZES, ids=lambda s: f"{s[0]}x{s[1]}")
@pytest.mark.parametrize("shown", ["normal", "incident", "empty", "failed", "loading"])
async def test_runs(shown, size, here, tmp_path, run_state, monkeypatch, text_snapshot):
    directory = run_state
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
    app = console(here if shown != "failed" else run_state.parent / "none", tmp_path, directory)
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: app.desk.shown is not None or app.desk.failure is not None, "the reading")
        if shown != "loading":
            await listed(pilot, app)
        if shown == "incident":
            await pilot.press("j", "enter")
        await pilot.pause()
        assert screen_text(app) == text_snapshot


async def test_reading_makes_and_changes_nothing(here, tmp_path, run_state):
    before = (run_state / "runs.sqlite").read_bytes()
    books = library(TODAY)
    assert [run.run_id for run in run_list(run_state, books).runs] == ["rb01-0000000002", "rb01-0000000001"]
    assert (run_state / "runs.sqlite").read_bytes() == before
    begun = tmp_path / "begun"
    begun.mkdir()
    with closing(sqlite3.connect(begun / "runs.sqlite")) as database:
        database.execute("PRAGMA journal_mode=WAL")  # as its maker leaves it before the tables are there
    assert run_list(begun, books).runs == ()
    nowhere = tmp_path / "nowhere"
    assert run_list(nowhere, books).runs == ()
    assert not nowhere.exists()
    with closing(RunStore(run_state, read_only=True)) as store, pytest.raises(Exception, match="readonly"):
        store.move_run("rb01-0000000002", RunState.RUNNING, NOW_US)


def test_a_run_is_told_in_words(run_state):
    waits, ended = run_list(run_state, library(TODAY)).runs
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
    for setting, asked, given, words in (
        (RunSetting(tmp_path), book, {}, "open it with --write, or give in a shell: runbook run RB-01 --ledger"),
        (RunSetting(tmp_path, True), book, {}, "needs a running engine"),
        (RunSetting(tmp_path, True, engine_file), None, {}, "there is no runbook RB-99"),
        (RunSetting(tmp_path, True, engine_file), book, {"size": "1"}, "has no parameter size"),
        (RunSetting(tmp_path, True, engine_file), book, {"reserve_tokens": "x"}, "reserve_tokens: 'x' is no integer"),
    ):
        with pytest.raises(StartRefused, match=words):
            Orders(setting, tmp_path, "kl").run(asked, "RB-99", given)
    order = Orders(RunSetting(tmp_path, True, engine_file), tmp_path, "kl").run(book, "", {"reserve_tokens": "5"})
    assert order.arguments[:2] == ("run", "RB-01")
    assert {"--param=reserve_tokens=5", "--by=kl"} <= set(order.arguments)
    needy = book.model_copy(
        update={"head": book.head.model_copy(update={"params": {"n": Param(kind="integer", says="how many")}})}
    )
    with pytest.raises(StartRefused, match="RB-01 needs n: :run RB-01 n=VALUE"):
        Orders(RunSetting(tmp_path, True, engine_file), tmp_path, "kl").run(needy)


def test_what_is_asked_of_a_run_is_refused_with_what_to_do(tmp_path, run_state, engine_file):
    known = run_list(run_state, library(TODAY))
    waits, ended = known.runs
    book, may = known.runbook("RB-01"), Orders(RunSetting(run_state, True, engine_file), tmp_path, "kl")
    for act, words in (
        (lambda: may.resume(waits, book), "waits at step 'clamp' for an answer"),
        (lambda: may.resume(ended, book), "is finished: only one that waits"),
        (lambda: may.resume(waits, None, "x"), "RB-01 has changed since this run began"),
        (lambda: may.resume(None, None), "no run is selected"),
        (lambda: may.abort(ended, "why"), "only a run that waits or was interrupted can be aborted"),
        (lambda: may.abort(waits, " "), "why: write one line"),
        (lambda: may.abort(None, "x"), "no run is selected"),
        (lambda: Orders(RunSetting(run_state), tmp_path, "kl").abort(waits, "so it is"), "runbook abort rb01-0000000002 .*--why=so it is'"),
    ):  # fmt: skip
        with pytest.raises(StartRefused, match=words):
            act()
    order = may.resume(waits, book, " --clamped ")
    assert order.arguments[-1] == "--answer=--clamped"  # what a person writes is never taken for an option


@pytest.mark.parametrize(
    ("text", "parts"),
    [("", ("", {})), ("rb-01", ("RB-01", {})), ("a=1", ("", {"a": "1"})), ('RB-1 b="x y=z"', ("RB-1", {"b": "x y=z"}))],
)
def test_what_is_asked_is_read(text, parts):
    assert split_asked(text) == parts


@pytest.mark.parametrize("text", ["RB-01 RB-02", "a=1 a=2", 'RB-01 "'])
def test_what_cannot_be_read_is_said(text):
    with pytest.raises(StartRefused, match="cannot be read"):
        split_asked(text)


async def test_without_write_nothing_is_asked_and_nothing_started(here, tmp_path, run_state):
    app = console(here, tmp_path, run_state)
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


async def test_a_run_is_answered_and_aborted_under_the_users_name(here, tmp_path, engine_file):
    directory = tmp_path / "new"
    app = console(here, tmp_path, directory, may_start=True, engine=engine_file)
    async with app.run_test(size=(160, 48), notifications=True) as pilot:
        await opened(pilot, app)
        await listed(pilot, app)
        runs = app.screen

        def run() -> StoredRun | None:
            return runs._known.runs[0] if runs._known.runs else None

        await pilot.press("r")
        await until(pilot, lambda: "write RB-01 to start it" in screen_text(app), "the question")
        await typed(pilot, "RB-01")
        await pilot.press("enter")
        await until(pilot, lambda: run() is not None and run().state is RunState.WAITING, "the run")
        await pilot.press("G")
        await until(pilot, lambda: app.screen.query_one("#step-list", LineList).cursor_key == "clamp", "its question")
        await pilot.press("a")
        await until(pilot, lambda: "Answer clamped or drained" in screen_text(app), "what it asks")
        await typed(pilot, "maybe")
        await pilot.press("enter")
        await until(
            pilot, lambda: "waits to be resumed or aborted" in screen_text(app), "the answer that does not hold"
        )
        assert "answered maybe" in screen_text(app)
        await pilot.press("c")
        await until(pilot, lambda: "write preserve to go on" in screen_text(app), "the step")
        await typed(pilot, "preserve")
        await pilot.press("enter")
        await until(pilot, lambda: "waits for a person at preserve" in screen_text(app), "the next question")
        await pilot.press("x")
        await until(pilot, lambda: "is aborted: what is left" in screen_text(app), "why")
        await typed(pilot, "wrong engine")
        await pilot.press("enter")
        await until(pilot, lambda: run().state is RunState.ABORTED, "the abort")
        await until(pilot, lambda: not runs._starts, "the end of the processes")
    audit = [json.loads(line) for line in (directory / "audit.jsonl").read_text().splitlines()]
    assert {line["by"] for line in audit if "by" in line} == {"kl"}
    assert [line["why"] for line in audit if line["event"] == "run.aborted"] == ["wrong engine"]


async def test_a_log_that_was_touched_is_said_at_once(here, tmp_path, engine_file):
    directory = tmp_path / "new"
    done = start(Orders(RunSetting(directory, True, engine_file), here, "kl").run(library(TODAY)[0]))
    done.process.wait(60)
    assert ", unbroken, head " in run_list(directory, ()).audit
    app = console(here, tmp_path, directory)
    async with app.run_test(size=(160, 48)) as pilot:
        await opened(pilot, app)
        await until(pilot, lambda: "unbroken" in screen_text(app), "the whole log")
        log = directory / "audit.jsonl"
        log.write_text(log.read_text().replace("step.undecided", "step.confirmed"))
        await until(pilot, lambda: "AUDIT LOG BROKEN" in screen_text(app), "the news")


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
