"""The console, Prometheus and Alertmanager as processes or threads of one test, on loopback and free ports."""

from __future__ import annotations

import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn
from fastapi import FastAPI

ALERTS = Path(__file__).parents[2] / "console" / "alerts"
DEADLINE_S = 120.0


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def wait_for(what: str, found: Callable[[], object], deadline_s: float = DEADLINE_S) -> object:
    """Poll until `found` gives something."""
    end = time.monotonic() + deadline_s
    while time.monotonic() < end:
        value = found()
        if value:
            return value
        time.sleep(0.05)
    raise AssertionError(f"{what} did not happen within {deadline_s:g} s")


@contextmanager
def served(app: FastAPI) -> Iterator[str]:
    """An application behind a real socket; gives its `host:port`."""
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    bound.listen()
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
    thread.start()
    try:
        wait_for("the console's start", lambda: server.started)
        yield f"127.0.0.1:{bound.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(30)
        bound.close()


@contextmanager
def running(directory: Path, *command: str) -> Iterator[None]:
    """A process; what it said is in `directory`/NAME.log."""
    log = directory / f"{Path(command[0]).name}.log"
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, cwd=directory)
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def alertmanager(directory: Path, webhook: str, token: str) -> Iterator[str]:
    """Tells `webhook` at once; gives its `host:port`."""
    port = free_port()
    config = directory / "alertmanager.yml"
    config.write_text(f"""
route: {{receiver: console, group_by: [...], group_wait: 0s, group_interval: 200ms, repeat_interval: 1h}}
receivers:
  - name: console
    webhook_configs:
      - url: {webhook}
        send_resolved: true
        http_config: {{authorization: {{credentials: {token}}}}}
""")
    command = (
        "prometheus-alertmanager", f"--config.file={config}", f"--storage.path={directory / 'am'}",
        f"--web.listen-address=127.0.0.1:{port}", "--cluster.listen-address=",
    )  # fmt: skip
    with running(directory, *command):
        yield f"127.0.0.1:{port}"


@contextmanager
def prometheus(directory: Path, console: str, token: str, alertmanager: str) -> Iterator[str]:
    """Scrapes the console with the rules that are shipped; gives its `host:port`."""
    port = free_port()
    config = directory / "prometheus.yml"
    config.write_text(f"""
global: {{scrape_interval: 500ms, scrape_timeout: 500ms, evaluation_interval: 250ms}}
rule_files: [{ALERTS}/*.yml]
alerting: {{alertmanagers: [{{static_configs: [{{targets: ["{alertmanager}"]}}]}}]}}
scrape_configs:
  - job_name: kvwitness-console
    authorization: {{credentials: {token}}}
    static_configs: [{{targets: ["{console}"]}}]
""")
    command = (
        "prometheus", f"--config.file={config}", f"--storage.tsdb.path={directory / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{port}", "--rules.alert.resend-delay=1s",
    )  # fmt: skip
    with running(directory, *command):
        yield f"127.0.0.1:{port}"
