"""Several ledgers at once in the terminal: their rows together, each with its ledger; acks go to the right book."""

import csv
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from pilots import NOW_US, app_of, may_write, until
from test_frame import said, words
from text_snapshot import screen_lines

from console.core.places import Place
from console.core.source import LedgerSource
from console.core.triage import Act, TriageBook
from console.core.view import View
from console.tui.app_base import Refused
from console.tui.incident_screen import IncidentScreen

SAMPLES = Path(__file__).parents[2] / "sample_logs"


@pytest.fixture
def ledgers(tmp_path, finished_ledger) -> list[Path]:
    """The same ledger twice, so that every incident's id is in both, and a recorded one."""
    for name in ("prod-a", "prod-b"):
        shutil.copytree(finished_ledger, tmp_path / name)
    return [tmp_path / "prod-a", tmp_path / "prod-b", SAMPLES / "abort-race" / "ledger"]


async def all_read(pilot, app, n: int = 3) -> None:
    await until(pilot, lambda: app.desk.merged is not None and len(app.desk.merged.records) == n, "all ledgers")


async def test_incidents_and_events_of_all_ledgers_stand_together(ledgers, tmp_path):
    app = app_of(ledgers[0], tmp_path / "kept", others=ledgers[1:])
    may_write(app)
    async with app.run_test(size=(160, 48), notifications=True) as pilot:
        await until(pilot, lambda: app.desk.shown is not None, "the first ledger")
        assert "prod-a ▾" in screen_lines(app)[0]
        mine = [incident.id for incident in app.known.incidents]
        await said(pilot, app, "ledger all")
        await all_read(pilot, app)
        assert "all ▾  3 LEDGERS" in screen_lines(app)[0]
        keys = [incident.key for incident in app.known.incidents]
        assert {f"{name}:{i}" for name in ("prod-a", "prod-b") for i in mine} < set(keys)
        assert "SOURCE" in words(app)
        assert "prod-a FINISHED  prod-b FINISHED  ledger FINISHED" in screen_lines(app)[2]
        # An ack is of the one that is selected, in the book of its ledger.
        await said(pilot, app, f"incident prod-b:{mine[0]}")
        assert isinstance(app.screen, IncidentScreen)
        assert (app.ledger_name, app.desk.view.incident) == ("prod-b", mine[0])
        await pilot.press("escape")
        await until(pilot, lambda: app.ledger_name == "all", "all of them again")
        app.change(replace(app.desk.view, incident=f"prod-b:{mine[0]}"))
        await pilot.press("a")
        await until(pilot, lambda: len(app.said) == 1, "the ack")
        books = [TriageBook(tmp_path / "kept" / "state", path, who="", now_us=lambda: NOW_US) for path in ledgers]
        assert [[(e.incident, e.act) for e in book.entries()] for book in books] == [[], [(mine[0], Act.ACK)], []]
        assert [s.key for s in app.known.incidents if app.standing(s).last] == [f"prod-b:{mine[0]}"]
        # A filter by ledger, and what is exported says which.
        await said(pilot, app, "filter source:prod-b")
        await said(pilot, app, "export csv")
        (file,) = (tmp_path / "kept" / "exports").iterdir()
        assert [(row["source"], row["id"]) for row in csv.DictReader(file.open())] == [("prod-b", i) for i in mine]
        await pilot.press("3")
        await pilot.pause()
        assert (app.desk.view.place, "Pages is of one ledger" in words(app)) == (Place.INCIDENTS, True)
        await pilot.press("7")
        await until(pilot, lambda: "events, " in screen_lines(app)[2], "the events")
        assert "prod-b" in screen_lines(app)[-8]
        assert "hidden by the filter" in screen_lines(app)[2]
        await pilot.press("y")
        assert app.clipboard.splitlines()[0].startswith("/events?q=source:prod-b&") and app.clipboard.splitlines()[
            0
        ].endswith("&ledger=all")
        assert app.clipboard.count("--ledger") == 3


async def test_a_ledger_that_cannot_be_read_says_so_and_hides_no_other(ledgers, tmp_path):
    app = app_of(ledgers[0], tmp_path / "kept", others=ledgers[1:], view=View(ledger="all"))
    async with app.run_test(size=(160, 48)) as pilot:
        await all_read(pilot, app)
        before = len(app.known.incidents)
        shutil.rmtree(ledgers[1])
        await until(pilot, lambda: "! prod-b STALE" in screen_lines(app)[2], "what is wrong with one")
        assert "prod-a FINISHED" in screen_lines(app)[2]
        assert len(app.known.incidents) == before
        assert "LEDGERS" in words(app)
        assert "check --ledger" in words(app)
        latest = words(app).split("LATEST EVENTS")[1]
        assert "prod-a" in latest
        assert "prod-b" in latest


def test_a_view_of_a_ledger_that_is_not_open_is_refused(ledgers, tmp_path):
    with pytest.raises(Refused, match="there is no ledger west; there are: prod-a, prod-b, ledger, all"):
        app_of(ledgers[0], tmp_path / "kept", others=ledgers[1:], view=View(ledger="west"))


async def test_a_ledger_that_has_not_been_read_yet_is_said_first(ledgers, tmp_path, monkeypatch):
    read = LedgerSource.read_if_changed
    monkeypatch.setattr(LedgerSource, "read_if_changed", lambda self: None if self.path == ledgers[0] else read(self))
    app = app_of(ledgers[0], tmp_path / "kept", others=ledgers[1:], view=View(place=Place.INCIDENTS, ledger="all"))
    async with app.run_test(size=(120, 30)) as pilot:
        await all_read(pilot, app, 2)
        await until(pilot, lambda: "2 OF 3 LEDGERS" in screen_lines(app)[0], "two of them")
        assert "! prod-a READING  prod-b FINISHED" in screen_lines(app)[2]
        assert {incident.source for incident in app.known.incidents} == {"prod-b", "ledger"}
