"""Reading again when there is something new; what the desk shows while it is paused or something fails."""

import shutil

import pytest
from scripted_ledger import ACME, BRIO, CYAN, Scene, ordinary, short_handoff

import console.core.source as source_module
from console.core.desk import Desk
from console.core.snapshot import Snapshot
from console.core.source import REDATE_US, SEGMENTS_US, Failure, LedgerSource
from console.core.view import TRANSITIONS, Cue, Mode, View
from engine.ledger.errors import LedgerError
from forensics.foreign_reads import EnginesDisagree


@pytest.fixture
def scene(tmp_path):
    scene = Scene(tmp_path / "ledger")
    ordinary(scene, "donor", ACME, 1, 4)
    scene.flush()
    return scene


def source_of(scene: Scene) -> LedgerSource:
    return LedgerSource(scene.directory, now_us=lambda: scene.now)


def test_nothing_new_means_no_reading(scene):
    source = source_of(scene)
    assert isinstance(source.read_if_changed(), Snapshot)
    assert source.read_if_changed() is None


def test_new_rows_and_the_end_of_writers_are_news(scene):
    source = source_of(scene)
    first = source.read_if_changed()
    short_handoff(scene, "victim", BRIO, 1, 4)
    scene.beat()
    scene.flush()
    second = source.read_if_changed()
    assert (len(first.incidents), len(second.incidents)) == (0, 1)
    assert second.writing
    scene.close()
    assert not source.read_if_changed().writing


def test_a_writer_that_dies_without_a_word_is_news(scene):
    source = source_of(scene)
    assert source.read_if_changed().writing
    for rec in scene.recorders.values():
        rec._stream._file.close()  # what the kernel does for a killed process: the lock goes, no byte changes
    after = source.read_if_changed()
    assert after is not None
    assert not after.writing
    assert "died" in after.record_words


def test_time_alone_may_end_a_responses_waiting(scene):
    scene.receive("running", BRIO, 32, [1, 2])
    scene.flush()
    source = source_of(scene)
    assert source.read_if_changed().judging == 1
    scene.wait(REDATE_US / 1000 - 1)
    assert source.read_if_changed() is None
    scene.wait(2)
    assert source.read_if_changed() is not None


@pytest.mark.parametrize(
    ("error", "said", "remedy"),
    [
        (EnginesDisagree("finding 3"), "the two engines disagree: finding 3", "report both"),
        (LedgerError("gone"), "gone", "check --ledger"),
        (ZeroDivisionError("x"), "judging the ledger failed: ZeroDivisionError: x", "forensics query"),
    ],
)
def test_a_reading_that_fails_says_why_and_what_to_do(scene, monkeypatch, error, said, remedy):
    source = source_of(scene)
    good = source.read_if_changed()

    def fail(*_, **__):
        raise error

    monkeypatch.setattr(source_module, "foreign_reads", fail)
    failure = source.read()
    assert isinstance(failure, Failure)
    assert said in failure.what
    assert remedy in failure.remedy
    desk = Desk().offer(good).offer(failure)
    assert desk.shown is good
    monkeypatch.undo()
    assert desk.offer(source.read()).failure is None


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda p: None, "no such directory"),
        (lambda p: p.write_text("x"), "is a file; a ledger is a directory"),
        (lambda p: p.mkdir(), "holds no ledger"),
        (lambda p: (p / "incident" / "epochs").mkdir(parents=True), "it contains ledgers: incident"),
    ],
)
def test_what_is_no_ledger_is_refused_before_anything_opens(tmp_path, make, words):
    path = tmp_path / "ledger"
    make(path)
    with pytest.raises(LedgerError, match=words):
        LedgerSource(path, now_us=lambda: 0).check()


def test_while_paused_the_picture_stands_still_and_news_wait(scene):
    source = source_of(scene)
    first = source.read_if_changed()
    desk = Desk().offer(first).on(Cue.TOGGLE)
    assert desk.mode is Mode.PAUSED
    ordinary(scene, "more", CYAN, 1, 4)
    scene.flush()
    second = source.read_if_changed()
    desk = desk.offer(second)
    assert (desk.shown, desk.newer) == (first, second)
    desk = desk.on(Cue.TOGGLE)
    assert (desk.mode, desk.shown, desk.newer) == (Mode.LIVE, second, None)


def test_opening_an_incident_holds_the_view_and_leaving_lets_it_go(scene):
    short_handoff(scene, "victim", BRIO, 1, 4)
    scene.beat()
    scene.flush()
    desk = Desk().offer(source_of(scene).read())
    incident = desk.shown.incidents[0]
    desk = desk.open_incident(incident)
    assert (desk.mode, desk.reading.rid) == (Mode.HELD, "victim")
    assert desk.leave_incident().mode is Mode.LIVE
    by_hand = desk.leave_incident().on(Cue.TOGGLE)
    assert by_hand.open_incident(incident).leave_incident().mode is Mode.PAUSED


def test_the_last_news_of_a_finished_ledger_are_shown_as_finished(scene):
    scene.close()
    desk = Desk().offer(source_of(scene).read())
    assert desk.mode is Mode.FINISHED
    assert desk.on(Cue.TOGGLE).mode is Mode.FINISHED


def test_writers_that_end_while_paused_leave_the_pause_and_resume_as_finished(scene):
    source = source_of(scene)
    desk = Desk().offer(source.read()).on(Cue.TOGGLE)
    scene.close()
    desk = desk.offer(source.read())
    assert desk.mode is Mode.PAUSED
    assert desk.on(Cue.TOGGLE).mode is Mode.FINISHED


def test_the_transition_table_has_no_way_out_of_a_mode_that_is_not_a_mode():
    for (mode, cue), target in TRANSITIONS.items():
        assert View(mode=mode).on(cue).mode is target
    for mode in Mode:
        for cue in Cue:
            if (mode, cue) not in TRANSITIONS:
                assert View(mode=mode).on(cue).mode is mode


def test_a_segment_that_is_changed_under_an_open_console_is_noticed(finished_ledger, tmp_path):
    path, now = tmp_path / "ledger", [1_790_000_060_000_000]
    shutil.copytree(finished_ledger, path)
    source = LedgerSource(path, now_us=lambda: now[0], engine="replay")
    whole = source.read()
    assert (whole.first_problem, source.read_if_changed()) == (None, None)
    segment = max(path.glob("pages/day=*/worker=*/*.parquet"), key=lambda file: file.stat().st_size)
    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 0xFF
    segment.write_bytes(content)
    assert source.read_if_changed() is None  # segments are looked at every ten seconds
    now[0] += SEGMENTS_US
    damaged = source.read_if_changed()
    assert isinstance(damaged, Snapshot)
    assert segment.name in damaged.first_problem.where
    assert "problem" in damaged.record_words
    segment.unlink()
    now[0] += SEGMENTS_US
    assert isinstance(source.read_if_changed(), Snapshot)
