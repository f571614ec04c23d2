"""`engine serve` as a command: what it prints, how it ends, and what it says when it cannot start."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from live_texts import prompt_and_answer, until

from engine.defences import DETECTORS
from engine.fault_table import markdown_page
from engine.faults import CLASSES
from engine.ledger.reader import read_ledger
from engine.serve_command import serve

ROOT = Path(__file__).parents[3]
ENGINE = [sys.executable, "-c", "from engine.cli import main; main()"]


def run(*arguments):
    return subprocess.run([*ENGINE, *arguments], capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def served(tmp_path):
    """Starts `engine serve` in `tmp_path`; gives (process, engine.json). Killed at the end if it still runs."""
    started = []

    def start(*options):
        process = subprocess.Popen(
            [*ENGINE, "serve", "--ledger", str(tmp_path / "ledger"), "--run-dir", str(tmp_path / "run"), "--tenant",
             "acme=key-acme", *options],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        started.append(process)
        state = tmp_path / "run" / "engine.json"
        until(lambda: state.exists() or process.poll() is not None, "the engine to start", seconds=60)
        assert process.poll() is None, process.stderr.read()
        return process, json.loads(until(state.read_text, "engine.json to be written"))

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.mark.engine
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_until_it_is_told_to_stop_and_seals_its_ledger(served, tmp_path, number):
    process, state = served()
    prompt, expected = prompt_and_answer("served")
    assert ask(state, prompt, 20).json()["choices"][0]["text"] == expected[:20]
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 0, err
    assert state["gateway"] in out
    assert "key-acme" in out
    assert "Traceback" not in err
    ledger = read_ledger(tmp_path / "ledger")
    assert not ledger.gaps
    assert not ledger.problems
    assert {writer.state for writer in ledger.writers} == {"sealed"}
    assert {writer.worker: writer.ordinal for writer in ledger.writers} == {
        "gateway-0": 0,
        "prefill-0": 1,
        "decode-0": 2,
    }
    assert os.stat(tmp_path / "run" / "engine.json").st_mode & 0o077 == 0


def child(process, name):
    """Process id of a child of `engine serve` as it is now; None while there is none."""
    listed = subprocess.run(["ps", "-e", "-o", "pid=,ppid=,stat=,comm="], capture_output=True, text=True, check=True)
    rows = [line.split() for line in listed.stdout.splitlines()]
    nurseries = {pid for pid, parent, *_ in rows if parent == str(process.pid)}
    return next((int(row[0]) for row in rows if row[1] in nurseries and row[3] == name and row[2][0] != "Z"), None)


def ask(state, prompt="hello there", tokens=3):
    return httpx.post(
        f"{state['gateway']}/v1/completions", json={"prompt": prompt, "max_tokens": tokens},
        headers={"authorization": "Bearer key-acme"}, timeout=30,
    )  # fmt: skip


def up(state):
    try:
        workers = httpx.get(f"{state['gateway']}/server_info", timeout=5).json()["workers"]
    except httpx.HTTPError:
        return {}
    return {worker["worker"]: worker["epoch"] for worker in workers if worker["up"]}


@pytest.mark.engine
def test_a_worker_that_dies_ends_nobody_else_and_the_gateway_ends_the_engine(served, tmp_path):
    process, state = served("--decode", "2")
    os.kill(child(process, "decode-0"), signal.SIGKILL)
    until(lambda: "decode-0" not in up(state), "the gateway to know")
    assert ask(state).status_code == 200
    os.kill(child(process, "decode-1"), signal.SIGKILL)
    until(lambda: "decode-1" not in up(state), "the gateway to know")
    assert ask(state).json()["error"]["code"] == "no_worker"
    assert process.poll() is None
    os.kill(child(process, "gateway-0"), signal.SIGKILL)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 1
    for name in ("decode-0", "decode-1"):
        assert f"{name} ended with exit code -9; the engine goes on without it" in err
    assert "gateway-0 ended with exit code -9" in err
    ledger = read_ledger(tmp_path / "ledger")
    assert {writer.worker: writer.state for writer in ledger.writers} == {
        "gateway-0": "dead", "prefill-0": "sealed", "decode-0": "dead", "decode-1": "dead",
    }  # fmt: skip
    assert {gap.worker for gap in ledger.gaps} == {"gateway-0", "decode-0", "decode-1"}
    assert {gap.before_seq for gap in ledger.gaps} == {None}


@pytest.mark.engine
def test_with_restart_whoever_dies_comes_back_as_a_new_epoch(served, tmp_path):
    process, state = served("--restart")
    for name in ("decode-0", "gateway-0"):
        old = child(process, name)
        os.kill(old, signal.SIGKILL)
        until(lambda name=name, old=old: child(process, name) not in (None, old), f"{name} to be started", seconds=60)
    until(lambda: up(state) == {"prefill-0": 1, "decode-0": 2}, "the worker to be up", seconds=60)
    prompt, expected = prompt_and_answer("after-restart")
    assert ask(state, prompt, 20).json()["choices"][0]["text"] == expected[:20]
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 0, err
    assert "decode-0 ended with exit code -9; it is started again" in err
    states = {(writer.worker, writer.epoch): writer.state for writer in read_ledger(tmp_path / "ledger").writers}
    assert states == {
        ("gateway-0", 1): "dead", ("gateway-0", 2): "sealed", ("prefill-0", 1): "sealed",
        ("decode-0", 1): "dead", ("decode-0", 2): "sealed",
    }  # fmt: skip


def test_a_port_in_use_is_said_with_what_to_do():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        answer = run("serve", "--port", str(port))
    assert answer.returncode == 1
    assert f"port {port}" in answer.stderr
    assert "--port" in answer.stderr
    assert answer.stdout == ""


def test_a_ledger_that_is_a_file_is_said(tmp_path):
    (tmp_path / "ledger").write_text("x")
    answer = run("serve", "--ledger", str(tmp_path / "ledger"), "--run-dir", str(tmp_path / "run"))
    assert answer.returncode == 1
    assert str(tmp_path / "ledger") in answer.stderr
    assert "Traceback" not in answer.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--fault", "nope"], "unknown fault 'nope'"),
        (["--defence", "page-tag=on"], "unknown mode 'on'"),
        (["--defence", "page-tag"], "write NAME=VALUE"),
        (["--tenant", "acme"], "write NAME=VALUE"),
        (["--tenant", "a=k", "--tenant", "b=k"], "two tenants cannot share one API key"),
        (["--prefill-pages", "1"], "1 is not in the range"),
        (["--decode", "0"], "0 is not in the range"),
        (["--port", "70000"], "70000 is not in the range"),
        (["--prefix-cache", "everybody"], "'everybody' is not one of"),
        (["--host-pages", "1"], "the null block alone holds nothing"),
        (["--reserved-tokens", "8"], "--reserved-tokens needs --host-pages"),
        (["--on-timeout", "hope"], "'hope' is not one of"),
        (["--hold-timeout-ms", "0"], "0 is not in the range"),
        (["--no-such-option"], "No such option"),
    ],
)
def test_wrong_usage_exits_with_64(options, words):
    answer = run("serve", *options)
    assert answer.returncode == 64
    assert words in answer.stderr


def test_faults_are_listed():
    answer = run("faults")
    assert answer.returncode == 0
    blocks = answer.stdout.split("\n\n")
    assert [tuple(block.split()[:2]) for block in blocks] == [(each.name, each.mechanism) for each in CLASSES]
    for block, each in zip(blocks, CLASSES, strict=True):
        words = " ".join(block.split())
        for title in ("precondition", "injection", "ground truth"):
            assert f"{title}: {getattr(each, title.replace(' ', '_'))}" in words


def test_the_page_of_faults_is_made_of_the_classes():
    assert (ROOT / "docs" / "faults.md").read_text() == markdown_page(), "python -m engine.fault_table > docs/faults.md"


def test_the_operators_page_tells_every_option_and_defence():
    page = (ROOT / "docs" / "operations.md").read_text()
    for option in [option for each in serve.params for option in each.opts]:
        assert f"`{option}`" in page or f"`{option} " in page, option
    for name, detector in DETECTORS.items():
        assert f"| `{name}` | {detector} |" in page


def test_help_imports_no_torch():
    code = (
        "import sys; sys.argv = ['engine', 'serve', '--help']\n"
        "try:\n from engine.cli import main; main()\nexcept SystemExit: pass\n"
        "assert 'torch' not in sys.modules"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert answer.returncode == 0, answer.stderr
