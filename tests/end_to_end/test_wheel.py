"""The built wheel, installed in an empty environment outside the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from engine.ledger.recorder import Recorder

ROOT = Path(__file__).parents[2]


def run(*command: str | Path, cwd: Path, **more) -> subprocess.CompletedProcess:
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    words = [str(part) for part in command]
    return subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True, timeout=400, **more)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("wheel")
    done = run(sys.executable, "-m", "build", "--wheel", "--outdir", place, ROOT, cwd=place)
    assert done.returncode == 0, done.stderr
    return next(place.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Commands of the wheel in a new environment, and nothing else of this checkout."""
    place = tmp_path_factory.mktemp("elsewhere")
    assert run(sys.executable, "-m", "venv", place / "venv", cwd=place).returncode == 0
    pip = place / "venv" / "bin" / "pip"
    done = run(pip, "install", "-q", "-c", ROOT / "constraints.txt", f"{wheel}[engine]", cwd=place)
    assert done.returncode == 0, done.stderr
    return place / "venv" / "bin"


def test_the_wheel_holds_the_rooms_and_their_data_and_no_tests(wheel: Path):
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert {"engine", "forensics", "console", "runbooks"} <= tops
    assert not any(top.startswith(("tests", "benchmarks", "docs")) for top in tops)
    for suffix in (
        ".sql",
        "RB-01-pool-context-inversion.md",
        ".html",
        ".tcss",
        "console/alerts/alerts.yml",
        "console/notify/outbox.sql",
    ):
        assert any(name.endswith(suffix) for name in names), suffix


def test_every_command_runs(installed: Path, tmp_path: Path):
    for name in ("engine", "forensics", "console", "runbook"):
        done = run(installed / name, "--help", cwd=tmp_path)
        assert done.returncode == 0 and "Usage" in done.stdout, (name, done.stderr)
    assert "foreign-reads" in run(installed / "forensics", "list", cwd=tmp_path).stdout
    assert "RB-01" in run(installed / "runbook", "list", cwd=tmp_path).stdout


def test_forensics_reads_a_ledger_there(installed: Path, tmp_path: Path):
    Recorder(tmp_path / "ledger", "decode-0", ordinal=0, now_us=lambda: 1_780_000_000_000_000, digest_key=b"k").close()
    done = run(installed / "forensics", "query", "foreign-reads", "--ledger", tmp_path / "ledger", cwd=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.engine
def test_the_demo_runs_there(installed: Path, tmp_path: Path):
    done = run(installed / "engine", "demo", "--ledger", tmp_path / "demo", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "contaminated" in done.stdout and "HTTP 400" in done.stdout
