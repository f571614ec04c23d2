"""Every screen as lines of plain words, through the command."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from console.cli import EXIT_USAGE, cli
from console.core.places import Place
from console.core.printable import printable
from console.core.saved_views import save_view
from console.core.view import View

STORM = Path(__file__).parents[2] / "sample_logs" / "abort-storm" / "ledger"


@pytest.fixture(autouse=True)
def _own_directories(tmp_path, monkeypatch):
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))


def plain(ledger: Path, *arguments: str) -> list[str]:
    done = CliRunner().invoke(cli, ["--ledger", str(ledger), "--engine", "replay", "--plain", *arguments])
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines
    assert all(line == printable(line) for line in lines)
    return lines


@pytest.mark.parametrize(
    ("place", "wanted"),
    [
        (Place.OVERVIEW, "open incident I-9d63cb7e, severity P1, M1 short handoff, 1 contaminated, open"),
        (Place.INCIDENTS, "incident I-9d63cb7e, severity P1, M1 short handoff"),
        (Place.HELD, "holders: 0 of 0"),
        (Place.LATENCY, "lengths: 2 of 2"),
        (Place.PAGES, "pool decode-0 epoch 1 kv, marks: "),
        (Place.EVENTS, "events: 50 of "),
    ],
)
def test_every_screen_has_its_lines(place, wanted, finished_ledger):
    lines = plain(finished_ledger, "--view", f"/{place}")
    assert any(line.startswith(wanted) for line in lines), lines


def test_pages_name_every_foreign_read(finished_ledger):
    lines = plain(finished_ledger, "--view", "/pages")
    assert sum(line.startswith("foreign read, ") and "resp-b1" in line and "of resp-a1" in line for line in lines) == 12


def test_what_is_tried_out_is_said_and_a_filter_counts_what_it_hides():
    lines = plain(STORM, "--view", "/held?q=pages%3E%3D100000&what_if.rate=900")
    assert lines[0] == "what if: rate=900; not as measured"
    assert any(line.startswith("forecast: full in") for line in lines)
    assert any(line == "forecast: never full" for line in plain(STORM, "--view", "/held"))


def test_a_filter_that_cannot_be_read_is_said_and_hides_nothing(finished_ledger):
    lines = plain(finished_ledger, "--view", "/overview?q=severity%3E%3D9")
    assert lines[0].startswith("left out: filter: severity>= needs one of")
    assert "incidents: 2 of 2; open: 2; they concern 2 responses" in lines


def test_a_saved_view_is_opened_by_its_name(finished_ledger, tmp_path):
    save_view(tmp_path / "XDG_CONFIG_HOME" / "kvwitness" / "views.toml", "calm", View(place=Place.LATENCY))
    assert plain(finished_ledger, "--saved", "calm")[0] == "lengths: 2 of 2"
    done = CliRunner().invoke(cli, ["--ledger", str(finished_ledger), "--plain", "--saved", "none"])
    assert done.exit_code == EXIT_USAGE
    assert "there are: calm" in done.output


def test_runs_with_what_they_wait_for(tmp_path, run_state):
    lines = plain(STORM, "--view", "/runs", "--state-dir", str(run_state))
    assert "runbook RB-01 1.0.0, severity 2, Pool/context inversion" in lines
    at = next(
        n
        for n, line in enumerate(lines)
        if line.startswith("run rb01-0000000002 of RB-01, started 2026-09-21 13:16:20")
    )
    assert lines[at].endswith("waits for a person at clamp; the alert is CONFIRMED")
    assert lines[at + 1].endswith("Answer clamped or drained. (answer in ['clamped', 'drained'])")
    assert "step compare, confirm, does not hold: the smallest pool falls short of the context" in lines
    assert lines[-1] == "no audit log yet"
    assert plain(STORM, "--view", "/runs", "--state-dir", str(tmp_path / "none"))[-1] == "no audit log yet"
    (run_state / "runs.sqlite").write_bytes(b"no database at all" * 60)
    assert plain(STORM, "--view", "/runs", "--state-dir", str(run_state))[0].startswith("the runs cannot be read: ")


def test_incidents_obey_range_filter_and_sort(finished_ledger):
    def ids(view: str) -> list[str]:
        return [line.split()[1] for line in plain(finished_ledger, "--view", view) if line.startswith("incident I-")]

    everything = ids("/incidents")
    assert len(everything) == 2
    assert len(ids("/incidents?q=cause:M3")) == 1
    assert "incidents: 1 of 2, 1 hidden" in plain(finished_ledger, "--view", "/incidents?q=cause:M3")
    by_time = ids("/incidents?sort=first")
    assert ids("/incidents?sort=-first") == by_time[::-1]
    assert ids("/incidents?from=2026-09-21T14:13:20Z&to=2026-09-21T14:13:20.5Z") == by_time[:1]
    lines = plain(finished_ledger, "--view", "/incidents?q=cause:M3%20severity%3E%3D9")
    assert lines[0].startswith("left out: filter: severity>= needs one of")
    assert "incidents: 2 of 2" in lines


def test_pages_obey_pool_range_filter_and_sort(finished_ledger):
    def marks(view: str) -> list[str]:
        return [line for line in plain(finished_ledger, "--view", view) if ", page " in line]

    everything = marks("/pages?pool=decode-0:1:kv")
    assert any(line.startswith("late write") for line in everything)
    kinds = marks('/pages?q=what:"foreign read"')
    assert kinds
    assert all(line.startswith("foreign read") for line in kinds)
    pages = [int(line.split(", page ")[1].split(",")[0]) for line in marks("/pages?pool=decode-0:1:kv&sort=-page")]
    assert pages == sorted(pages, reverse=True)
    few = marks("/pages?pool=decode-0:1:kv&to=2026-09-21T14:13:20.5Z")
    assert 0 < len(few) < len(everything)
    assert marks(f"/pages?pool=decode-0:1:kv&rows={pages[0]}-{pages[0]}")
    lines = plain(finished_ledger, "--view", "/pages?pool=decode-9:kv")
    assert lines[0].startswith("left out: There is no pool decode-9:kv in this ledger. It has: ")
    assert sum(line.startswith("pool ") for line in lines) >= 2
