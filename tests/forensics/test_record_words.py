"""Records that can say little say so: empty, of one worker, of one row, a window without responses, or with gaps only."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from engine.ledger.recorder import Recorder
from forensics.cli import cli

SAMPLES = Path(__file__).parents[2] / "sample_logs"
LATE = SAMPLES / "classes" / "m03-late-write"
QUERIES = ("foreign-reads", "contaminated-responses", "coverage")


def ask(query: str, ledger: Path, *more: str) -> Result:
    return CliRunner().invoke(cli, ["query", query, "--ledger", str(ledger), "--engine", "duckdb", *more])


def recorded(place: Path, rows: int) -> Path:
    recorder = Recorder(
        place, "decode-0", ordinal=1, now_us=lambda: 1_780_000_000_000_000, digest_key=b"k", threaded=False
    )
    for _ in range(rows):
        recorder.record("gauges", "sample", pool="kv", free=1)
    recorder.flush()
    recorder.abandon()
    return place


@pytest.mark.parametrize("query", QUERIES)
def test_of_an_empty_ledger_nothing_can_be_said(query: str, tmp_path: Path):
    done = ask(query, recorded(tmp_path / "ledger", 0))
    assert "the ledger holds no row: nothing can be said of anything" in done.stderr
    assert "Traceback" not in done.output and done.exit_code in (0, 2)


@pytest.mark.parametrize("query", QUERIES)
def test_a_ledger_of_one_row_judges_nobody(query: str, tmp_path: Path):
    done = ask(query, recorded(tmp_path / "ledger", 1))
    assert "the ledger holds 1 row, and none of a request: no response can be judged" in done.stderr


@pytest.mark.parametrize("query", QUERIES[:2])
def test_a_window_without_responses_is_told_with_what_there_is(query: str):
    done = ask(query, LATE, "--from", "2027-01-01")
    assert (
        "no response began in this window; the record goes from 2026-09-14 09:00:00 UTC to 2026-09-14 09:00:10 UTC"
        in done.stderr
    )
    assert "no response" not in ask(query, LATE, "--from", "2026-09-14").stderr


@pytest.mark.parametrize("query", QUERIES[:2])
def test_a_record_of_one_worker_names_whom_it_lacks(query: str, tmp_path: Path):
    import shutil

    alone = Path(shutil.copytree(LATE / "ledger", tmp_path / "ledger"))
    for path in list(alone.rglob("worker=prefill-0")) + list(alone.rglob("worker=gateway")):
        shutil.rmtree(path)
    for name in ("prefill-0", "gateway"):
        (alone / "manifest" / f"{name}.jsonl").unlink()
        (alone / "epochs" / name).unlink(missing_ok=True)
    done = ask(query, alone)
    assert "no record of prefill-0, which others name: what rests on it is unknown" in done.stderr


def test_a_window_that_is_all_gaps_is_told(tmp_path: Path):
    import shutil

    holed = Path(shutil.copytree(LATE / "ledger", tmp_path / "ledger"))
    for path in holed.rglob("pages/*/worker=decode-0"):
        shutil.rmtree(path)
    done = ask("contaminated-responses", holed, "--from", "2026-09-14T09:00:01Z", "--to", "2026-09-14T09:00:02Z")
    assert "no part of this window is free of gaps" in done.stderr
    assert done.exit_code == 2


def test_the_folder_round_a_ledger_will_do():
    assert ask("coverage", LATE).stdout == ask("coverage", LATE / "ledger").stdout
