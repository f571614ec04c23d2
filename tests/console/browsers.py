"""The web console for a real browser: the real command served, and pages that are watched for complaints."""

import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

DEADLINE_MS = 60_000


@dataclass
class Served:
    """A running `console web`."""

    process: subprocess.Popen
    url: str
    token: str


@pytest.fixture
def served(tmp_path):
    """Starts `console web` on ledgers, with directories of its own, and ends it; every one has ended in time."""
    running = []

    def start(ledger: Path, *options: str) -> Served:
        command = [
            sys.executable,
            "-m",
            "console.cli",
            "web",
            "--ledger",
            str(ledger),
            "--engine",
            "replay",
            "--no-cache",
            *options,
        ]
        own = {f"XDG_{kind}_HOME": str(tmp_path / kind) for kind in ("STATE", "CONFIG", "CACHE")}
        environment = {**os.environ, **own, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
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


def ready(page) -> None:
    """Every chart of the page is drawn."""
    page.wait_for_function("() => [...document.querySelectorAll('.chart')].every((chart) => chart.dataset.ready)")
