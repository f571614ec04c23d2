"""What happens to the ledger while the console is open: it is said, and the console carries on."""

import os
import shutil
import threading
from pathlib import Path

import pytest
from pilots import around, opened, until
from scripted_ledger import ACME, CYAN, Scene, ordinary, short_handoff
from text_snapshot import screen_lines, screen_text

from console.core.places import Place
from console.core.source import LedgerSource
from console.core.view import Mode, View
from console.tui.app import ConsoleApp
from console.tui.screens import SCREENS
from forensics.verdict import Verdict

SAMPLE = Path(__file__).parents[2] / "sample_logs" / "abort-race" / "ledger"


class Clock:
    """A clock that a test moves, us UTC."""

    def __init__(self, now_us: int) -> None:
        self.now_us, self.steady_s = now_us, 100.0


def app_on(path: Path, clock: Clock, kept: Path, place: Place = Place.OVERVIEW) -> ConsoleApp:
    source = LedgerSource(path, now_us=lambda: clock.now_us, steady_s=lambda: clock.steady_s, engine="replay")
    return ConsoleApp(source, View(place=place), around=around(kept))


@pytest.mark.parametrize("place", SCREENS)
async def test_a_ledger_that_goes_away_and_comes_back(place, live_scene, tmp_path):
    clock = Clock(live_scene.now)
    app = app_on(live_scene.directory, clock, tmp_path / "kept", place)
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot, app)
        before = app.desk.shown
        live_scene.directory.rename(tmp_path / "elsewhere")
        await until(pilot, lambda: app.desk.failure is not None, "the failure")
        assert "STALE" in screen_lines(app)[0]
        assert screen_lines(app)[2].startswith(" ! ")
        assert app.desk.shown is before
        await pilot.press("j", "question_mark", "escape")
        assert app.is_running
        (tmp_path / "elsewhere").rename(live_scene.directory)
        await until(pilot, lambda: app.desk.failure is None, "the ledger is back")
        assert "STALE" not in screen_lines(app)[0]


async def test_a_ledger_that_hangs_is_stale_and_says_since_when(live_scene, tmp_path, monkeypatch):
    clock, freed = Clock(live_scene.now), threading.Event()
    app = app_on(live_scene.directory, clock, tmp_path / "kept")

    def hang(*_: object) -> None:
        freed.wait(60)
        raise OSError("let go")

    async with app.run_test(size=(100, 24)) as pilot:
        await opened(pilot, app)
        with monkeypatch.context() as patch:
            patch.setattr(app.source, "fingerprint", hang)
            patch.setattr(app.source._follower, "look", hang)
            groups = {"reading", "edge"}
            await until(pilot, lambda: {w.group for w in app.workers if not w.is_finished} >= groups, "looks that hang")
            clock.steady_s += 42
            await until(pilot, lambda: "STALE −42 s" in screen_lines(app)[0], "the age")
            assert screen_lines(app)[2].startswith(" ! no look at the ledger has come back for 42 s; see whether")
            freed.set()
            await until(pilot, lambda: app.desk.failure is not None, "the failure")
        await until(pilot, lambda: "LIVE" in screen_lines(app)[0], "the ledger answers")


async def test_an_incident_that_is_open_says_so_too(live_scene, tmp_path):
    app = app_on(live_scene.directory, Clock(live_scene.now), tmp_path / "kept", Place.INCIDENTS)
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot, app)
        await pilot.press("enter")
        await until(pilot, lambda: app.desk.view.place is Place.INCIDENT, "the incident")
        live_scene.directory.rename(tmp_path / "elsewhere")
        await until(pilot, lambda: screen_lines(app)[2].startswith(" ! "), "the words")
        assert "VICTIM" in screen_text(app)
        (tmp_path / "elsewhere").rename(live_scene.directory)
        await until(pilot, lambda: "Incidents ›" in screen_lines(app)[2], "the ledger is back")


async def test_a_writer_that_starts_again(live_scene, tmp_path):
    clock = Clock(live_scene.now)
    app = app_on(live_scene.directory, clock, tmp_path / "kept")
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot, app)
        assert "LIVE" in screen_lines(app)[0]
        live_scene.close()
        await until(pilot, lambda: app.desk.mode is Mode.FINISHED, "the end of the writers")
        again = Scene(live_scene.directory, start_us=live_scene.now + 5_000_000)
        ordinary(again, "again-1", ACME, 40, 4)
        short_handoff(again, "again-2", CYAN, 40, 4)
        again.beat()
        again.flush()
        clock.now_us = again.now
        await until(pilot, lambda: app.desk.mode is Mode.LIVE, "the writers are back")
        await until(pilot, lambda: app.known.responses == 8, "their responses")
        again.close()


async def test_a_clock_that_jumps_is_said_and_nothing_ends(live_scene, tmp_path):
    clock = Clock(live_scene.now)
    app = app_on(live_scene.directory, clock, tmp_path / "kept")
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot, app)
        await pilot.press("space")
        clock.now_us -= 3_600_000_000
        await until(pilot, lambda: "clock is 1h 00m behind the record" in screen_lines(app)[2], "the words")
        clock.now_us += 2 * 3_600_000_000
        await until(pilot, lambda: "PAUSED −1h 00m" in screen_lines(app)[0], "the age")
        assert "behind the record" not in screen_text(app)
        await pilot.press("space")
        await until(pilot, lambda: app.desk.mode is Mode.LIVE, "live again")


async def test_a_segment_that_breaks_is_said_in_the_record(tmp_path):
    ledger = tmp_path / "ledger"
    shutil.copytree(SAMPLE, ledger)
    app = app_on(ledger, Clock(1_790_000_060_000_000), tmp_path / "kept")
    async with app.run_test(size=(120, 30)) as pilot:
        await opened(pilot, app)
        assert "record: no gaps" in screen_text(app)
        segment = sorted(ledger.glob("pages/**/*.parquet"))[0]
        content = bytearray(segment.read_bytes())
        content[len(content) // 2] ^= 0xFF
        segment.chmod(0o644)
        segment.write_bytes(content)
        manifest = sorted(ledger.glob("manifest/*.jsonl"))[0]
        os.utime(manifest, ns=(1, 1))
        seen = app.desk.shown
        await until(pilot, lambda: app.desk.shown is not seen or app.desk.failure is not None, "the next reading")
        assert "record: 1 gap, 1 problem" in screen_text(app)
        assert app.known.counts[Verdict.CLEAN] == 0
        assert any("SHA-256 is not the manifest's" in n.message for n in app._notifications)
        await pilot.press("2")
        await until(pilot, lambda: app.desk.view.place is Place.INCIDENTS, "the list")


async def test_a_reading_that_crashes_is_a_failure_in_words(live_scene, tmp_path, monkeypatch):
    app = app_on(live_scene.directory, Clock(live_scene.now), tmp_path / "kept")
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot, app)

        def refuse(_: LedgerSource) -> str:
            raise PermissionError("not yours")

        with monkeypatch.context() as patch:
            patch.setattr(LedgerSource, "fingerprint", refuse)
            await until(pilot, lambda: app.desk.failure is not None, "the failure")
            assert "not yours" in screen_text(app)
        await until(pilot, lambda: app.desk.failure is None, "the next reading")
