"""Bad input: a clear error, the right exit code, and nothing lost."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from engine.ledger.recorder import Recorder
from engine.nursery import Nursery
from forensics.cli import main


def tool(module: str, *arguments: object) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", module, *(str(a) for a in arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


class Forensics:
    """The command's entry point, called in this process: a process each would cost a second."""

    def __init__(self, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._capfd, self._monkeypatch = capfd, monkeypatch

    def __call__(self, *arguments: object) -> subprocess.CompletedProcess:
        self._monkeypatch.setattr(sys, "argv", ["forensics", *(str(a) for a in arguments)])
        self._capfd.readouterr()
        code = 0
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
        out, err = self._capfd.readouterr()
        return subprocess.CompletedProcess(sys.argv, code, out, err)

    def foreign_reads(self, ledger: Path, *more: object) -> subprocess.CompletedProcess:
        return self("query", "foreign-reads", "--ledger", ledger, *more)


@pytest.fixture
def forensics(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Forensics:
    return Forensics(capfd, monkeypatch)


@pytest.fixture(scope="module")
def incident(tmp_path_factory: pytest.TempPathFactory, nursery: Nursery) -> Path:
    """A sealed ledger of two plain requests on a real engine."""
    import httpx

    from engine.config import EngineConfig
    from engine.serve import start_engine

    place = tmp_path_factory.mktemp("bad-input")
    config = EngineConfig(str(place / "ledger"), str(place / "run"), tenants={"acme": "key"})
    engine = start_engine(config, nursery)
    try:
        for i in range(2):
            body = {
                "model": "m",
                "prompt": f"the quick brown fox {i} jumps over the lazy dog; the quick",
                "max_tokens": 40,
            }
            headers = {"authorization": "Bearer key", "x-request-id": f"plain-{i}"}
            answer = httpx.post(f"{engine.state['gateway']}/v1/completions", json=body, headers=headers, timeout=30)
            assert answer.status_code == 200
    finally:
        engine.stop()
    return place / "ledger"


@pytest.fixture
def ledger(incident: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(incident, tmp_path / "ledger"))


def test_a_whole_ledger_is_clean(forensics: Forensics, ledger: Path):
    done = forensics.foreign_reads(ledger, "--all")
    assert done.returncode == 0, done.stderr
    assert "2 clean" in done.stderr and "plain-0" in done.stdout
    gaps = forensics("gaps", "--ledger", ledger)
    assert gaps.returncode == 0 and "nothing to list" in gaps.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["query", "foreign-reads", "--ledger", "/nowhere/at/all"], "/nowhere/at/all: no such directory"),
        (["gaps", "--ledger", "/nowhere/at/all"], "no such directory"),
        (["query", "no-such-query", "--ledger", "."], "unknown query 'no-such-query'; See `forensics list`"),
        (["query", "foreign-reads"], "--ledger"),
        (["query", "foreign-reads", "--ledger", ".", "--format", "xml"], "xml"),
        (
            ["query", "foreign-reads", "--ledger", ".", "--from", "yesterday-ish"],
            "cannot read the time 'yesterday-ish'",
        ),
        (["query", "foreign-reads", "--ledger", ".", "--from", "2026-02-02", "--to", "2026-02-01"], "before it begins"),
        (["query", "foreign-reads", "--ledger", ".", "--tz", "Mars/Base"], "unknown time zone 'Mars/Base'"),
        (["nonsense"], "nonsense"),
    ],
)
def test_wrong_usage_says_what_and_exits_64(forensics: Forensics, arguments: list[str], words: str):
    done = forensics(*arguments)
    assert done.returncode == 64, done.stderr
    assert words in done.stderr and "Traceback" not in done.stderr
    assert done.stdout == ""


def test_an_empty_directory_is_no_ledger(forensics: Forensics, tmp_path: Path):
    done = forensics.foreign_reads(tmp_path)
    assert done.returncode == 64 and "holds no ledger" in done.stderr


def test_a_ledger_without_requests_is_clean(forensics: Forensics, tmp_path: Path):
    Recorder(tmp_path / "l", "decode-0", ordinal=0, now_us=lambda: 1_780_000_000_000_000, digest_key=b"k").close()
    done = forensics.foreign_reads(tmp_path / "l")
    assert done.returncode == 0 and "0 responses" in done.stderr


@pytest.mark.parametrize("table", ["pages", "transfers", "requests", "steps"])
@pytest.mark.parametrize("damage", ["deleted", "truncated"])
@pytest.mark.parametrize("worker", ["decode-0", "prefill-0"])
def test_a_damaged_segment_is_a_gap_and_its_verdicts_unknown(
    forensics: Forensics, ledger: Path, table: str, damage: str, worker: str
):
    segment = next(ledger.glob(f"{table}/day=*/worker={worker}/*.parquet"))
    if damage == "deleted":
        segment.unlink()
    else:
        segment.write_bytes(segment.read_bytes()[: segment.stat().st_size // 2])
    gaps = forensics("gaps", "--ledger", ledger)
    assert gaps.returncode == 2, gaps.stderr
    assert segment.name in gaps.stderr and worker in gaps.stdout
    done = forensics.foreign_reads(ledger)
    if table == "steps" and worker == "prefill-0":
        # Prefill's passes are lost: what it read is unknown, and so are its responses.
        assert done.returncode == 2
    assert done.returncode == 2, done.stderr
    assert "unknown" in done.stdout and "contaminated" not in done.stdout


def test_a_truncated_stream_is_told_and_nothing_else_lost(forensics: Forensics, ledger: Path, tmp_path: Path):
    place = tmp_path / "torn"
    rec = Recorder(place, "decode-0", ordinal=2, now_us=lambda: 1_780_000_000_000_000, digest_key=b"k", threaded=False)
    for req in range(20):
        rec.record("requests", "receive", req=req, rid=f"r{req}")
        rec.flush()
    stream = next((place / "wal").glob("*.wal"))
    data = stream.read_bytes()
    rec.close()
    shutil.rmtree(place / "requests")
    for path in (place / "manifest").glob("*"):
        path.unlink()
    stream.write_bytes(data[:-7])
    gaps = forensics("gaps", "--ledger", place)
    assert gaps.returncode == 2
    assert "cut off at byte" in gaps.stderr and "dead" in gaps.stderr
    reads = forensics.foreign_reads(place, "--format", "csv")
    assert reads.returncode == 2
    assert "responses" in reads.stderr


def test_broken_evidence_exits_3(forensics: Forensics, ledger: Path):
    manifest = ledger / "manifest" / "decode-0.jsonl"
    lines = manifest.read_text().splitlines(keepends=True)
    manifest.write_text("".join([*lines[1:2], *lines[:1], *lines[2:]]))
    done = forensics.foreign_reads(ledger)
    assert done.returncode == 3 and "does not follow the line before it" in done.stderr


def test_every_format_holds_the_same_rows(forensics: Forensics, ledger: Path, tmp_path: Path):
    import csv
    import io
    import json

    import pyarrow.parquet as pq

    out = tmp_path / "r.parquet"
    assert forensics.foreign_reads(ledger, "--all", "--format", "parquet", "-o", out).returncode == 0
    parquet = pq.read_table(out).to_pylist()
    plain = json.loads(forensics.foreign_reads(ledger, "--all", "--format", "json").stdout)
    lines = [
        json.loads(line) for line in forensics.foreign_reads(ledger, "--all", "--format", "jsonl").stdout.splitlines()
    ]
    table = list(csv.DictReader(io.StringIO(forensics.foreign_reads(ledger, "--all", "--format", "csv").stdout)))
    assert plain["rows"] == lines and len(parquet) == len(lines) == len(table) > 0
    assert [r["rid"] for r in parquet] == [r["rid"] for r in lines] == [r["rid"] for r in table]
    assert plain["counts"]["clean"] == 2 and plain["gaps"] == 0


def test_a_window_keeps_what_started_in_it(forensics: Forensics, ledger: Path):
    assert "2 responses" in forensics.foreign_reads(ledger, "--from", "-1h").stderr
    assert "0 responses" in forensics.foreign_reads(ledger, "--to", "2026-01-01").stderr


def test_engine_refuses_a_port_in_use_and_unknown_names(tmp_path: Path):
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = tool("engine.cli", "serve", "--port", port, "--ledger", tmp_path / "l", "--run-dir", tmp_path / "r")
    assert done.returncode != 0 and str(port) in done.stderr and "--port" in done.stderr
    for option, value in (("--fault", "no-such-fault"), ("--defence", "page-tag=maybe"), ("--defence", "nothing")):
        done = tool("engine.cli", "serve", option, value, "--ledger", tmp_path / "l", "--run-dir", tmp_path / "r")
        assert done.returncode == 64 and value.split("=")[0] in done.stderr
