"""What people said of incidents, where others read it: in words, in the terminal, in plain lines, and in a replay as of then."""

import re
from dataclasses import replace
from datetime import date

import httpx
import pytest
from click.testing import CliRunner
from pilots import NOW_US, app_of, may_write, opened, toasts, until
from test_as_it_was import stand
from text_snapshot import screen_text

from console.cli import cli
from console.core.places import Place
from console.core.run_list import library, run_list, runs_at
from console.core.source import LedgerSource
from console.core.standing_words import few_facts, standing_short, standing_words
from console.core.triage import State, TriageBook, standing
from console.core.view import View
from console.tui.incident_screen import IncidentScreen
from console.tui.silences_screen import SilencesScreen
from console.web.app import create_app
from console.web.gate import Gate, Role
from runbooks.states import RunState, StepState

HOUR = 3_600_000_000
T0 = 1_790_000_000_000_000


def test_how_it_stands_is_said_with_who_when_and_until_when(finished, book, clock):
    incident = replace(finished.incidents[0], growing=True)

    def words(of=incident) -> str:
        return standing_words(standing(of, book.entries(), clock.us), clock.us)

    assert words() == "open"
    book.ack(incident, "looking")
    assert words() == "acknowledged by kl at 2026-09-21 14:13:20.000Z: looking"
    assert words(replace(incident, responses=99)).startswith("open again: it grew or got graver after it was ack")
    clock.us += HOUR
    book.silence(incident, 2 * HOUR, "known")
    clock.us += HOUR // 2
    assert words() == (
        "silent until 2026-09-21 17:13:20.000Z, 1h 30m left, by kl at 2026-09-21 15:13:20.000Z: known"
    )  # fmt: skip
    assert standing_short(standing(incident, book.entries(), clock.us), clock.us) == "kl 1h 30m left"
    assert words(replace(incident, growing=False)).startswith("open: a silence has ended with the incident, by kl")
    clock.us += 2 * HOUR
    assert words().startswith("open again since 2026-09-21 17:13:20.000Z: the time of a silence is over, by kl")
    book.silence(incident, HOUR, "seen\x1b[2J")
    assert words().endswith(": seen\\x1b[2J")
    book.unsilence(incident)
    assert words().startswith("open: a silence was ended by kl")


def test_what_was_said_later_is_not_known_at_an_earlier_moment(finished, book, clock):
    incident = replace(finished.incidents[0], growing=True)
    clock.us += HOUR
    book.silence(incident, HOUR)
    book.note(incident, "first")
    clock.us += 2 * HOUR
    book.ack(incident)
    book.note(incident, "second")

    def at(t_us: int):
        stands = standing(incident, book.entries(), t_us)
        return stands.state, [note.words for note in stands.notes]

    assert at(T0) == (State.OPEN, [])
    assert at(T0 + HOUR) == (State.SILENCED, ["first"])
    assert at(T0 + 2 * HOUR) == (State.BACK, ["first"])
    assert at(T0 + 3 * HOUR) == (State.ACKED, ["first", "second"])
    last = few_facts(standing(incident, book.entries(), clock.us), clock.us)[-1].words
    assert last.endswith("kl: second (and 1 earlier note)")


@pytest.mark.parametrize("size", [(80, 24), (160, 48)], ids=["80x24", "160x48"])
async def test_notes_are_read_on_the_incident_screen_and_the_list_says_who(size, here, tmp_path, finished):
    incident = finished.incidents[0]
    app = app_of(here, tmp_path)
    async with app.run_test(size=size) as pilot:
        await opened(pilot, app)
        may_write(app)
        app.do_note("alert KvForeignReads firing: two tenants")
        await pilot.press("a")
        await pilot.pause()
        assert "ack" in screen_text(app)
        assert "acknowledged by kl at" in screen_text(app)
        assert size[0] < 100 or "SAID BY" in screen_text(app)
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, IncidentScreen) and app.screen.is_attached, "the incident")
        await until(pilot, lambda: "NOTES" in screen_text(app), "the notes")
        text = screen_text(app)
        assert "acknowledged by kl at 2026-09-21 14:14:20" in text
        assert "kl: alert KvForeignReads firing: two tenants" in text
        await pilot.press("right_curly_bracket")
        await until(pilot, lambda: app.desk.incident.id != incident.id, "the other incident")
        await pilot.pause()
        assert "NOTES" not in screen_text(app)


async def test_a_replay_shows_what_was_said_by_then(here, tmp_path, finished):
    app = app_of(here, tmp_path, view=View(place=Place.OVERVIEW))
    async with app.run_test(size=(160, 48)) as pilot:
        await opened(pilot, app)
        may_write(app)
        for incident in app.known.incidents:
            app.desk = replace(app.desk, view=replace(app.desk.view, incident=incident.id))
            app.do_ack()
        assert "none open" in screen_text(app)
        assert finished.data_us < NOW_US
        stand(app, finished.data_us)
        await pilot.pause()
        assert "none open" not in screen_text(app)
        assert "P1 2" in screen_text(app)
        await pilot.press("F")
        await pilot.pause()
        assert "none open" in screen_text(app)


def test_plain_lines_hold_how_it_stands_and_every_note(here, tmp_path, monkeypatch, finished, clock):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    book = TriageBook(tmp_path / "kvwitness", here, who="mo", now_us=clock)
    incident = finished.incidents[0]
    book.ack(incident, "mine")
    book.note(incident, "one")
    book.note(incident, "two")
    for view in ("/incidents", f"/incidents/{incident.id}"):
        done = CliRunner().invoke(cli, ["--ledger", str(here), "--engine", "replay", "--plain", "--view", view])
        lines = done.stdout.splitlines()
        assert "standing: acknowledged by mo at 2026-09-21 14:13:20.000Z: mine" in lines
        assert [line for line in lines if line.startswith("note: ")] == [
            f"note: 2026-09-21 14:13:20.000Z mo: {words}" for words in ("two", "one")
        ]
    past = "/incidents?at=2026-09-21T14:13:19Z&mode=replay"
    done = CliRunner().invoke(cli, ["--ledger", str(here), "--engine", "replay", "--plain", "--view", past])
    assert "acknowledged" not in done.stdout


def test_runs_are_as_far_as_they_had_come(run_state):
    listed = run_list(run_state, library(date(2026, 9, 21)))
    for run in listed.runs:
        assert run.run_id not in [r.run_id for r in runs_at(listed, run.started_us - 1).runs]
        assert runs_at(listed, run.changed_us).run(run.run_id) == run
        then = runs_at(listed, run.started_us).run(run.run_id)
        late = [step for step in then.steps if step.changed_us > run.started_us]
        assert {(step.state, *step.findings) for step in late} <= {(StepState.PLANNED,)}
        assert run.changed_us == run.started_us or (then.state, then.conclusion) == (RunState.RUNNING, None)
    early = runs_at(listed, listed.runs[0].started_us)
    assert early.untold == (listed.runs[0].run_id,)  # these runs were stored without an audit log
    assert f"of {early.untold[0]} no audit log" in early.moment_words
    (told,) = early.untold
    line = {"t": early.at_us, "run": told, "event": "step.intent", "step": listed.runs[0].steps[0].step_id}
    known = runs_at(replace(listed, courses={told: (line,)}), early.at_us)
    assert known.run(told).steps[0].state is StepState.INTENT
    assert known.untold == ()


async def test_silences_are_listed_and_ended_in_the_terminal(live_scene, tmp_path):
    app = app_of(live_scene.directory, tmp_path)
    async with app.run_test(size=(120, 30)) as pilot:
        await opened(pilot, app)
        first, second = app.known.incidents
        may_write(app)
        for incident, length in ((first, "2h known\x07 fault"), (second, "10m")):
            app.desk = replace(app.desk, view=replace(app.desk.view, incident=incident.id))
            app.do_silence(length)
        app.attempt("silences")
        await until(pilot, lambda: isinstance(app.screen, SilencesScreen) and app.screen.is_attached, "the list")
        await pilot.pause()
        text = " ".join(screen_text(app).split())
        assert text.index(f"{second.id}: ABOUT TO END, 10m 00s left") < text.index(f"{first.id}: 2h 00m left")
        assert "by kl 0.0 ms ago: known\\x07 fault" in text
        await pilot.press("escape")
        await pilot.pause()
        app.attempt("unsilence", f"{second.id} seen")
        assert [app.standing(i).state for i in (first, second)] == [State.SILENCED, State.OPEN]
        app.attempt("unsilence", f"{second.id} again")
        await until(pilot, lambda: "is not silent" in toasts(app), "the refusal")


async def test_silences_are_listed_and_ended_in_the_browser(live_scene, tmp_path):
    source = LedgerSource(live_scene.directory, now_us=lambda: NOW_US, engine="replay")
    gate = Gate({"a-token-for-tests": Role.OPERATOR}, can_write=True)
    web = create_app(source, gate, ("127.0.0.1",), tmp_path, patience_s=60)
    headers = {"authorization": "Bearer a-token-for-tests"}
    transport = httpx.ASGITransport(web)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=headers) as client:
        assert "<h2>Silences</h2>" not in (await client.get("/incidents")).text
        incident = source.read().incidents[0]
        page = f"/incidents/{incident.id}"
        assert "End the silence" not in (await client.get(page)).text
        word = re.search(r'name="word" value="([^"]+)"', (await client.get(page)).text)[1]
        for act, form in (("silence", {"length": "2h", "words": "known"}), ("unsilence", {})):
            answer = await client.post(f"{page}/triage", data={"word": word, "act": act, **form})
            assert answer.status_code == 303, answer.text
            is_silent = act == "silence"
            assert ("2h 00m left, until" in (await client.get("/incidents")).text) is is_silent
            assert ("End the silence" in (await client.get(page)).text) is is_silent
        again = await client.post(f"{page}/triage", data={"word": word, "act": "unsilence"})
        assert again.status_code == 400
        assert "is not silent" in again.text
