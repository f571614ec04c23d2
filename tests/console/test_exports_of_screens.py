"""What `e` writes on each screen of the terminal is what the screen shows."""

import csv
from dataclasses import replace

import pytest
from pilots import around, may_write, opened, toasts, until
from test_tui_pages import drawn

from console.core.actions import actions_of
from console.core.incident_report import MOST_ROWS, incident_report
from console.core.page_map import Area, whole_area
from console.core.page_tables import allocations_of, marks_of
from console.core.places import EVERYWHERE, Place
from console.core.run_start import RunSetting
from console.core.source import LedgerSource
from console.core.triage import Standing, State
from console.core.view import View
from console.tui.app import ConsoleApp
from console.tui.incident_screen import IncidentScreen

NOW_US = 1_790_000_060_000_000
DECODE = ("decode-0", 1)


@pytest.fixture
def app(here, tmp_path, run_state) -> ConsoleApp:
    source = LedgerSource(here, now_us=lambda: NOW_US, engine="replay")
    kept = replace(around(tmp_path), runs=RunSetting(run_state))
    return ConsoleApp(source, View(place=Place.INCIDENTS), around=kept)


def rows(tmp_path, name: str) -> list[dict[str, str]]:
    with (tmp_path / "exports" / name).open() as file:
        return list(csv.DictReader(file))


def test_every_screen_exports():
    assert all("export" in [action.id for action in actions_of(place)] for place in EVERYWHERE)


async def test_runs_are_sorted_and_exported_as_they_stand(app, tmp_path):
    async with app.run_test(size=(120, 30), notifications=True) as pilot:
        await opened(pilot, app)
        app.go(Place.RUNS)
        await until(pilot, lambda: app.screen._known is not None, "the runs")
        app.attempt("sort", "started")
        await pilot.pause()
        runs = [line.key for line in app.screen.query_one("#run-list")._lines if (line.key or "").startswith("run:")]
        assert runs == ["run:rb01-0000000001", "run:rb01-0000000002"]
        app.attempt("sort", "severity")
        await pilot.pause()
        assert "there is no column severity; there are: run, runbook" in toasts(app)
        app.attempt("export", "csv")
        await until(pilot, lambda: "incident-ledger-runs.csv: 2 of 2" in toasts(app), "the file")
    found = rows(tmp_path, "incident-ledger-runs.csv")
    assert [(row["run"], row["state"]) for row in found] == [
        ("rb01-0000000001", "finished"), ("rb01-0000000002", "waiting"),
    ]  # fmt: skip


async def test_pages_export_the_marks_and_allocations_of_the_area_in_sight(app, tmp_path, finished):
    async with app.run_test(size=(120, 30), notifications=True) as pilot:
        await opened(pilot, app)
        app.go(Place.PAGES)
        await drawn(pilot, app)
        area = app.screen._picture.drawn.area
        await pilot.press("plus")
        await until(pilot, lambda: app.screen._picture.drawn.area != area, "fewer pages")
        area = app.screen._picture.drawn.area
        app.attempt("export", "csv")
        await until(pilot, lambda: "incident-ledger-allocations.csv" in toasts(app), "the files")
        app.attempt("sort", "page")
        await until(pilot, lambda: "nothing here can be put in another order" in toasts(app), "the refusal")
    marks, had = (rows(tmp_path, f"incident-ledger-{name}.csv") for name in ("marks", "allocations"))
    inside = finished.marks(area.key, area.pool).inside(area.start_us, area.end_us, area.first_page, area.last_page)
    assert [(int(row["page"]), row["what"], row["rid"]) for row in marks] == [
        (m.page, m.kind, m.rid or "") for m in inside
    ]
    assert 0 < len(had) == len(allocations_of(finished, area).rows)


def test_the_tables_of_an_area_hold_all_of_it(finished):
    whole = whole_area(finished, DECODE, "kv")
    had = allocations_of(finished, whole).rows.to_pylist()
    lives = finished.lives(DECODE, "kv")
    assert sum(len(row["pages"]) for row in had) == len(lives.page)
    assert [row["since"] for row in had] == sorted(row["since"] for row in had)
    assert len(marks_of(finished, whole).rows) == len(finished.marks(DECODE, "kv").markers)
    none = Area(DECODE, "kv", whole.end_us + 5, whole.end_us + 6, 0, 0)
    assert len(marks_of(finished, none).rows) == 0


async def test_an_open_incident_exports_its_responses_and_a_report(app, tmp_path, finished):
    incident = finished.incidents[0]
    async with app.run_test(size=(120, 30), notifications=True) as pilot:
        await opened(pilot, app)
        may_write(app)
        app.do_note("paged | <b>dec-3</b>")
        app.open_incident(incident.id)
        await until(pilot, lambda: isinstance(app.screen, IncidentScreen) and app.screen.is_attached, "the incident")
        for fmt in ("csv", "md"):
            app.attempt("export", fmt)
        await until(pilot, lambda: f"{incident.id}.md" in toasts(app), "the files")
    found = rows(tmp_path, f"incident-ledger-{incident.id}-responses.csv")
    assert [row["rid"] for row in found] == [r.rid for r in finished.readings(incident)]
    text = (tmp_path / "exports" / f"incident-ledger-{incident.id}.md").read_text()
    assert text.startswith(f"# {incident.id} ")
    assert "| contaminated | 1 |" in text
    assert f"| {incident.rids[0]} |" in text
    assert f"| {incident.donors[0]} |" in text
    assert r"kl: paged \| \<b\>dec-3\</b\>" in text


def test_a_report_says_what_it_cuts_off(finished):
    incident = finished.incidents[0]
    readings = finished.readings(incident) * (MOST_ROWS + 1)
    shown = replace(finished)
    shown._readings[incident.id] = readings[: MOST_ROWS + 1]
    text = incident_report(shown, incident, Standing(State.OPEN), View(), NOW_US)
    assert f"{MOST_ROWS} of {MOST_ROWS + 1} responses; export csv has all." in text
    assert "- **standing**: open" in text
