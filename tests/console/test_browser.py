"""The web console in a real browser: served by the real command, no word to any other host, news in place."""

import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from scripted_ledger import ACME, CYAN, ordinary, short_handoff

pytestmark = pytest.mark.browser
DEADLINE_MS = 20_000


@dataclass
class Served:
    """A running `console web`."""

    process: subprocess.Popen
    url: str
    token: str


@pytest.fixture
def served():
    """Starts `console web` on ledgers and ends it; every one has ended in time."""
    running = []

    def start(ledger: Path) -> Served:
        command = [sys.executable, "-m", "console.cli", "web", "--ledger", str(ledger), "--engine", "replay"]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
        running.append(process)
        line = process.stdout.readline().strip()
        found = re.fullmatch(r"(http://127\.0\.0\.1:\d+/)\?token=(\S+)", line)
        assert found, (line, process.stderr.read() if process.poll() is not None else "")
        return Served(process, *found.groups())

    yield start
    for process in running:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()


@dataclass
class Watched:
    """A page, and everything that it asked for or complained about."""

    page: object
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def check(self, url: str) -> None:
        assert self.complaints == []
        assert self.requests
        strangers = [r for r in self.requests if not r.startswith((url, "data:", "blob:" + url))]
        assert strangers == []


@pytest.fixture
def watch(chromium):
    """Opens watched pages in contexts of their own."""
    contexts = []

    def opened(**options) -> Watched:
        context = chromium.new_context(viewport={"width": 1400, "height": 900}, **options)
        context.set_default_timeout(DEADLINE_MS)
        contexts.append(context)
        watched = Watched(context.new_page())
        watched.page.on("request", lambda request: watched.requests.append(request.url))
        watched.page.on("console", lambda message: watched.complaints.append(f"{message.type}: {message.text}"))
        watched.page.on("pageerror", lambda error: watched.complaints.append(str(error)))
        watched.page.on(
            "requestfailed",
            lambda r: (
                r.failure and "ERR_ABORTED" not in r.failure and watched.complaints.append(f"{r.url}: {r.failure}")
            ),
        )
        return watched

    yield opened
    for context in contexts:
        context.close()


def test_from_the_printed_link_to_the_page_that_was_read(finished_ledger, served, watch):
    console, watched = served(finished_ledger), watch()
    page = watched.page
    page.goto(f"{console.url}?token={console.token}")
    assert console.token not in page.url
    assert page.locator("#incidents tbody tr").count() == 2
    page.get_by_role("row", name="M3 late write").get_by_role("link").click()
    page.wait_for_selector("#lineage")
    assert page.locator("#lineage g.page").count() == 4
    offending = page.locator("#offending")
    assert "LANDS" in offending.inner_text()
    assert offending.is_visible()
    page.locator("#lineage a").nth(2).click()
    page.wait_for_url("**page=32**")
    assert "page 32" in page.locator("#h-events").inner_text()
    page.get_by_text("Page map around this incident").click()
    page.wait_for_selector("#map[data-ready]")
    watched.check(console.url)


@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_the_map_is_drawn_zooms_and_has_a_twin(finished_ledger, served, watch, scheme):
    console, watched = served(finished_ledger), watch(color_scheme=scheme)
    page = watched.page
    page.goto(f"{console.url}pages?token={console.token}")
    page.wait_for_selector("#map[data-ready]")
    drawn = page.evaluate("() => document.getElementById('map').data.map((trace) => [trace.type, trace.name])")
    assert drawn == [
        ["heatmap", "owner"],
        ["scatter", "owner letters"],
        ["scatter", "foreign read"],
        ["scatter", "late write"],
    ]
    assert page.locator("#map .heatmaplayer image").count() == 1
    assert page.locator("#map .scatterlayer .points path").count() >= 20
    with page.expect_response(lambda answer: "first=" in answer.url) as zoomed:
        page.evaluate("() => Plotly.relayout('map', {'yaxis.range[0]': 34, 'yaxis.range[1]': 29})")
    assert zoomed.value.json()["data"][0]["z"]["shape"] == "6, 600"
    page.get_by_text("The same as tables").click()
    assert "20 of 20 marks" in page.locator("#twin").inner_text()
    watched.check(console.url)


def test_a_growing_ledger_changes_the_page_in_place(live_scene, served, watch):
    console, watched = served(Path("live-ledger")), watch()
    page = watched.page
    page.goto(f"{console.url}?token={console.token}")
    assert page.locator(".mode").inner_text() == "LIVE"
    assert "6 responses" in page.locator(".counts").first.inner_text()
    page.evaluate("() => { window.sameDocument = true; document.querySelector('#incidents a').focus(); }")
    focused = page.evaluate("() => document.activeElement.id")
    ordinary(live_scene, "new-donor", ACME, 40, 4)
    short_handoff(live_scene, "new-victim", CYAN, 40, 4)
    live_scene.beat()
    live_scene.flush()
    page.get_by_text("3 contaminated").wait_for()
    assert page.evaluate("() => window.sameDocument")
    assert page.evaluate("() => document.activeElement.id") == focused
    page.get_by_role("button", name="Pause").click()
    ordinary(live_scene, "later", ACME, 40, 4)
    live_scene.flush()
    page.get_by_text("PAUSED, newer data wait").wait_for()
    assert "8 responses" in page.locator(".counts").first.inner_text()
    page.get_by_role("button", name="Follow").click()
    page.get_by_text("9 responses").wait_for()
    live_scene.close()
    page.locator(".mode", has_text="FINISHED").wait_for()
    watched.check(console.url)


def test_the_map_follows_a_growing_ledger(live_scene, served, watch):
    console, watched = served(Path("live-ledger")), watch()
    page = watched.page
    page.goto(f"{console.url}pages?token={console.token}")
    page.wait_for_selector("#map[data-ready]")
    before = page.locator("#map").get_attribute("data-version")
    short_handoff(live_scene, "new-victim", CYAN, 20, 6)
    live_scene.beat()
    live_scene.flush()
    page.wait_for_selector(f"#map:not([data-version='{before}'])")
    marks = "() => document.getElementById('map').data[2].x.length"
    page.wait_for_function(f"({marks})() === 22")
    watched.check(console.url)


def test_a_wrong_token_meets_a_clear_page_and_the_right_one_gets_in(finished_ledger, served, watch):
    console, watched = served(finished_ledger), watch()
    page = watched.page
    assert page.goto(f"{console.url}incidents?token=not-the-token").status == 401
    assert page.get_by_role("heading").inner_text() == "Token needed"
    page.get_by_label("Token").fill("still not the token")
    page.get_by_role("button", name="Open").click()
    page.get_by_role("alert").wait_for()
    assert "not the token" in page.get_by_role("alert").inner_text()
    page.get_by_label("Token").fill(console.token)
    page.get_by_role("button", name="Open").click()
    page.wait_for_url("**/incidents")
    assert page.locator("#incidents tbody tr").count() == 2
    assert [c for c in watched.complaints if "401" not in c] == []


def test_pages_can_be_used_by_everybody(finished_ledger, served, watch):
    """axe-core finds nothing, in both themes."""
    from axe_playwright_python.sync_playwright import Axe

    console = served(finished_ledger)
    for scheme in ("dark", "light"):
        watched = watch(color_scheme=scheme, bypass_csp=True)
        page = watched.page
        page.goto(f"{console.url}?token={console.token}")
        incident = page.locator("#incidents a").first.get_attribute("href")
        for path in ("incidents", incident.lstrip("/"), "pages", "login"):
            page.goto(console.url + path)
            if path == "pages":
                page.wait_for_selector("#map[data-ready]")
            violations = Axe().run(page).response["violations"]
            assert [(v["id"], [n["html"] for n in v["nodes"]][:3]) for v in violations] == [], path


def test_it_ends_at_once_although_a_page_listens(finished_ledger, served, watch):
    console, watched = served(finished_ledger), watch()
    with watched.page.expect_request(lambda request: "/api/stream" in request.url):
        watched.page.goto(f"{console.url}?token={console.token}")
    started = time.monotonic()
    console.process.send_signal(signal.SIGINT)
    console.process.wait(timeout=10)
    assert time.monotonic() - started < 5
    assert console.process.returncode == 0
    assert "Traceback" not in console.process.stderr.read()
