"""Ledgers with known answers, built once, and the snapshots that the console makes of them."""

import os
import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from browsers import served, watch  # noqa: F401 fixtures
from scripted_ledger import Scene, incident_scene
from stored_runs import engine_file, run_state  # noqa: F401 fixtures
from text_snapshot import TextExtension

from console.core.snapshot import Snapshot
from console.core.source import LedgerSource
from console.core.triage import TriageBook

CHROMIUM = "/usr/bin/chromium"


@pytest.fixture(scope="session")
def finished_ledger(tmp_path_factory) -> Path:
    """Six responses, an M1 and an M3 incident, all workers ended."""
    path = tmp_path_factory.mktemp("console") / "incident-ledger"
    incident_scene(path).close()
    return path


@pytest.fixture
def here(finished_ledger, monkeypatch) -> Path:
    """The finished ledger by a short relative path, so that screens show the same everywhere."""
    monkeypatch.chdir(finished_ledger.parent)
    return Path(finished_ledger.name)


@pytest.fixture
def live_scene(tmp_path, monkeypatch) -> Scene:
    """The same traffic, its writers still alive; the ledger is ./live-ledger."""
    monkeypatch.chdir(tmp_path)
    scene = incident_scene(Path("live-ledger"))
    scene.flush()
    yield scene
    shutil.rmtree(tmp_path / "live-ledger", ignore_errors=True)


@pytest.fixture(scope="session")
def finished(finished_ledger) -> Snapshot:
    """The snapshot of the finished ledger."""
    reading = LedgerSource(finished_ledger, now_us=lambda: 1_790_000_100_000_000).read()
    assert isinstance(reading, Snapshot), reading
    return reading


class TriageClock:
    """Microseconds UTC, moved by hand."""

    us = 1_790_000_000_000_000

    def __call__(self) -> int:
        return self.us


@pytest.fixture
def clock() -> TriageClock:
    return TriageClock()


@pytest.fixture
def book(tmp_path, finished_ledger, clock) -> TriageBook:
    """What people say of the finished ledger, at the time of `clock`."""
    return TriageBook(tmp_path / "state", finished_ledger, who="kl", now_us=clock)


@pytest.fixture
def text_snapshot(snapshot):
    """Screens as .txt files, which read well in a diff."""
    return snapshot.use_extension(TextExtension)


@pytest.fixture(scope="module")
def chromium():
    """A headless browser for one module: its event loop must have ended before a coroutine test begins.

    Skipped where none is installed, unless the environment says that it must be there.
    """
    if not Path(CHROMIUM).exists():
        if os.environ.get("CI") or os.environ.get("KVWITNESS_REQUIRE_SYSTEM_PACKAGES"):
            pytest.fail(f"{CHROMIUM} is missing: apt-get install chromium")
        pytest.skip(f"{CHROMIUM} is not installed: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    arguments = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-background-networking",
        "--disable-dev-shm-usage",
    ]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield browser
        browser.close()
