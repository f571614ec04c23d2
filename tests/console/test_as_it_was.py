"""The record as it stood at a moment: what a reading at that moment gave, and what a replay shows of it."""

from dataclasses import replace
from pathlib import Path

from pilots import NOW_US, app_of, opened, toasts, until
from scripted_ledger import ACME, BRIO, CYAN, Scene, ordinary, short_handoff
from text_snapshot import screen_text

from console.core.as_it_was import ledger_at, snapshot_at
from console.core.places import Place
from console.core.snapshot import Snapshot
from console.core.source import LedgerSource
from console.core.view import Cue, Mode, Replay, View
from console.tui.incident_screen import IncidentScreen
from forensics.verdict import Verdict


def read(path: Path, now_us: int) -> Snapshot:
    reading = LedgerSource(path, now_us=lambda: now_us, engine="replay").read()
    assert isinstance(reading, Snapshot), reading
    return reading


def stand(app, at_us: int) -> None:
    """A replay that stands at a moment."""
    app.change(replace(app.desk.view.on(Cue.PLAY), cursor_us=at_us, replay=Replay(1.0, False)))


def test_it_is_what_a_reading_then_gave(tmp_path):
    path = tmp_path / "ledger"
    scene = Scene(path)
    then: list[Snapshot] = []

    def stop() -> None:
        scene.flush()
        then.append(read(path, scene.now))
        scene.wait(5)

    ordinary(scene, "resp-a1", ACME, 1, 4)
    stop()
    short_handoff(scene, "resp-b1", BRIO, 1, 4)
    stop()
    ordinary(scene, "resp-a2", ACME, 20, 8)
    scene.beat()
    stop()
    short_handoff(scene, "resp-c1", CYAN, 20, 8)
    scene.close()
    whole = read(path, scene.now)
    for was in then:
        seen = snapshot_at(whole, was.taken_us)
        assert {n: t.num_rows for n, t in seen.ledger.tables.items()} == {
            n: t.num_rows for n, t in was.ledger.tables.items()
        }
        assert all(seen.ledger.tables[n].equals(t) for n, t in was.ledger.tables.items())
        assert seen.ledger.gaps == was.ledger.gaps
        assert seen.reads.findings.equals(was.reads.findings)
        assert seen.reads.responses.equals(was.reads.responses)
        assert [(i.id, i.counts) for i in seen.incidents] == [(i.id, i.counts) for i in was.incidents]
        assert (seen.writing, seen.judging, seen.counts, seen.record_words) == (
            was.writing, was.judging, was.counts, was.record_words,
        )  # fmt: skip
    assert [bool(was.incidents) for was in then] == [False, True, True]
    assert whole.counts[Verdict.CONTAMINATED] == 2


def test_at_its_end_it_is_the_record_and_before_its_beginning_nothing(finished):
    end = ledger_at(finished.ledger, finished.data_us + 1)
    assert all(end.tables[name].equals(rows) for name, rows in finished.ledger.tables.items())
    assert (end.writers, end.gaps) == (finished.ledger.writers, finished.ledger.gaps)
    none = ledger_at(finished.ledger, finished.first_us - 1)
    assert (none.writers, none.gaps, sum(t.num_rows for t in none.tables.values())) == ((), (), 0)
    assert snapshot_at(finished, finished.first_us - 1).empty


def test_at_no_moment_is_anybody_accused_whom_the_whole_record_clears(finished):
    accused = {i.id for i in finished.incidents}
    clean = {r["rid"] for r in finished.reads.responses.to_pylist() if r["verdict"] == Verdict.CLEAN}
    assert clean
    span = finished.data_us - finished.first_us
    for step in range(12):
        seen = snapshot_at(finished, finished.first_us + span * step // 11)
        found = {r["rid"]: r["verdict"] for r in seen.reads.responses.to_pylist()}
        assert not [rid for rid in clean & set(found) if found[rid] not in (Verdict.CLEAN, Verdict.UNKNOWN)]
        # Only its own tail is not known: nothing counts as lost.
        assert not [gap for gap in seen.ledger.gaps if gap.before_seq is not None]
        assert "gap" not in seen.record_words or "no gaps" in seen.record_words
    assert {i.id for i in seen.incidents} == accused


async def test_every_screen_is_as_it_was_at_the_cursor(here, tmp_path, finished):
    app = app_of(here, tmp_path, view=View(place=Place.OVERVIEW))
    at = max(i.first_seen_us for i in finished.incidents) - 1
    async with app.run_test(size=(160, 48), notifications=True) as pilot:
        await opened(pilot, app)
        assert "P1 2" in screen_text(app)
        stand(app, at)
        await until(pilot, lambda: app.desk.shown.taken_us == at, "the record as it was")
        assert "P1 1" in screen_text(app)
        assert app.desk.full.rollup.responses == 6 > app.desk.rollup.responses
        await pilot.press("2")
        await pilot.pause()
        assert [i.id for i in app.known.incidents if i.id in screen_text(app)] == [i.id for i in app.known.incidents]
        assert len(app.known.incidents) == 1
        await pilot.press("a")
        await until(pilot, lambda: "this is a replay of what was" in toasts(app), "the refusal")
        assert app.said == ()
        await pilot.press("right_curly_bracket")  # of all incidents, also of those to come
        await pilot.press("7")
        await until(
            pilot,
            lambda: f"of {sum(t.num_rows for t in app.desk.shown.ledger.tables.values()):,}" in screen_text(app),
            "events",
        )
        stand(app, finished.data_us)
        await until(pilot, lambda: app.desk.whole is None, "the end of the record")
        assert len(app.known.incidents) == 2
        stand(app, at)
        await until(pilot, lambda: app.desk.whole is not None, "the record as it was")
        await pilot.press("F")
        await until(pilot, lambda: app.desk.mode is not Mode.REPLAY, "what is")
        assert app.desk.whole is None
        assert len(app.known.incidents) == 2


async def test_what_comes_in_while_the_past_is_shown_waits(live_scene, tmp_path):
    app = app_of(live_scene.directory, tmp_path, now_us=NOW_US)
    async with app.run_test(size=(160, 48)) as pilot:
        await opened(pilot, app)
        rows = app.desk.shown.rollup.rows
        stand(app, app.looked()[0] + 100_000)
        await until(pilot, lambda: app.desk.whole is not None, "the record as it was")
        assert app.desk.shown.rollup.rows < rows
        ordinary(live_scene, "later", ACME, 40, 4)
        live_scene.flush()
        await until(pilot, lambda: app.desk.newer is not None, "the news")
        assert app.desk.shown.rollup.rows < rows
        await pilot.press("F")
        await until(pilot, lambda: app.desk.shown.rollup.rows > rows, "what is")


async def test_an_incident_that_is_not_there_yet_says_so(here, tmp_path, finished):
    last = max(finished.incidents, key=lambda i: i.first_seen_us)
    app = app_of(here, tmp_path)
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot, app)
        app.open_incident(last.id)
        await until(pilot, lambda: isinstance(app.screen, IncidentScreen) and app.screen.is_attached, "the incident")
        stand(app, finished.first_us)
        await until(pilot, lambda: "at this moment of the replay" in screen_text(app), "that it is not there")
        assert "At this moment the record shows nothing of it" in screen_text(app)
        stand(app, finished.data_us)
        await until(pilot, lambda: app.desk.whole is None, "the end")
        assert "At this moment" not in screen_text(app)
