"""The built wheel in an environment outside the checkout that holds what the wheel declares to need, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from email import message_from_bytes
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

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


def declared(wheel: Path) -> list[Requirement]:
    """What a wheel says that it needs."""
    with zipfile.ZipFile(wheel) as packed:
        (about,) = [name for name in packed.namelist() if name.endswith(".dist-info/METADATA")]
        return [Requirement(line) for line in message_from_bytes(packed.read(about)).get_all("Requires-Dist", [])]


def closure(required: list[Requirement], extra: str) -> dict[str, metadata.Distribution]:
    """What these requirements lead to with an extra, by name, as it is installed here. Fails where a version does not fit."""
    found: dict[str, metadata.Distribution] = {}
    done, open_ = set(), [(each, ("", extra)) for each in required]
    while open_:
        one, extras = open_.pop()
        wanted = one.marker is None or any(one.marker.evaluate({"extra": name}) for name in extras)
        if not wanted or str(one) in done:
            continue
        done.add(str(one))
        found[one.name] = distribution = metadata.distribution(one.name)
        assert one.specifier.contains(distribution.version, prereleases=True), (one, distribution.version)
        open_ += [(Requirement(line), ("", *one.extras)) for line in distribution.requires or []]
    return found


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Commands of the wheel in a new environment: what it declares to need, linked from here, and nothing else."""
    place = tmp_path_factory.mktemp("elsewhere")
    assert run(sys.executable, "-m", "venv", "--without-pip", place / "venv", cwd=place).returncode == 0
    python = place / "venv" / "bin" / "python"
    packages = Path(
        run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=place).stdout.strip()
    )
    for distribution in closure(declared(wheel), "engine").values():
        for name in {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}:
            if not (packages / name).exists():
                (packages / name).symlink_to(Path(str(distribution.locate_file(name))))
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", "--no-index")
    done = run(*pip, wheel, cwd=place)
    assert done.returncode == 0, done.stderr
    return python.parent


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
