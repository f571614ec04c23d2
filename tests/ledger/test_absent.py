"""A worker epoch that is spoken of and left no file is a gap."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.ledger.reader import Ledger, read_ledger
from engine.ledger.recorder import Recorder
from engine.ledger.tag import make_tag

KEY = b"absent-epochs-16"


def recorded(directory: Path, table: str, op: str, **columns: object) -> Ledger:
    """A ledger of one closed worker with one row."""
    rec = Recorder(
        directory, "decode-0", ordinal=2, now_us=lambda: 1_790_000_000_000_000, digest_key=KEY, threaded=False
    )
    rec.record(table, op, **columns)
    rec.close()
    return read_ledger(directory)


def absent(ledger: Ledger) -> set[tuple[str, int]]:
    """The worker epochs of which no row is there, each of which has to have open gaps in every table."""
    found = {(writer.worker, writer.epoch) for writer in ledger.writers if not writer.last_seq}
    open_gaps = {(gap.worker, gap.epoch) for gap in ledger.gaps if (gap.after_seq, gap.before_seq) == (0, None)}
    assert found == open_gaps
    assert len(ledger.gaps) == 8 * len(found)
    return found


@pytest.mark.parametrize(
    ("table", "op", "columns", "named"),
    [
        ("workers", "heartbeat", {"peer": "prefill-0", "peer_epoch": 1, "peer_seq": 7}, {("prefill-0", 1)}),
        ("workers", "heartbeat", {"peer": "prefill-0", "peer_epoch": 3, "peer_seq": 7}, {("prefill-0", 3)}),
        ("workers", "heartbeat", {"peer": None, "clock_offset_us": 0}, set()),
        ("transfers", "grant", {"xfer": 1, "writers": ["prefill-0", "prefill-1"]}, {("prefill-0", 1), ("prefill-1", 1)}),
        ("transfers", "ack", {"xfer": 1, "status": "received", "peer": "prefill-0"}, {("prefill-0", 1)}),
        ("transfers", "post", {"xfer": 1, "peer": "decode-1", "dst_tag": make_tag(3, 2, 9)}, {("decode-1", 2)}),
        ("transfers", "post", {"xfer": 1, "peer": "decode-0", "dst_tag": make_tag(2, 1, 9)}, set()),
        (
            "transfers", "post", {"xfer": 1, "dir": "pull", "peer": "prefill-0", "src_tag": make_tag(1, 2, 9)},
            {("prefill-0", 2)},
        ),
    ],
)  # fmt: skip
def test_whom_a_row_names_is_missed(tmp_path: Path, table: str, op: str, columns: dict, named: set) -> None:
    ledger = recorded(tmp_path, table, op, **columns)
    assert absent(ledger) == named
    assert [problem.kind for problem in ledger.problems] == ["missing epoch"] * len(named)


def test_epochs_below_one_that_was_are_missed_as_one(tmp_path: Path) -> None:
    (tmp_path / "epochs").mkdir()
    (tmp_path / "epochs" / "decode-0").write_text("3\n")
    ledger = recorded(tmp_path, "workers", "heartbeat")
    (tmp_path / "epochs" / "decode-0").unlink()
    assert absent(ledger) == absent(read_ledger(tmp_path)) == {("decode-0", 3)}
    assert [problem.what for problem in ledger.problems] == [
        "epochs 1 to 3 of decode-0 left neither stream nor segments"
    ]


def test_many_missing_epochs_make_no_more_gaps_than_one(tmp_path: Path) -> None:
    recorded(tmp_path, "workers", "heartbeat")
    (tmp_path / "epochs" / "decode-0").write_text("4095\n")
    assert absent(read_ledger(tmp_path)) == {("decode-0", 4095)}
    ledger = recorded(tmp_path / "other", "workers", "heartbeat", peer="prefill-0", peer_epoch=400_000, peer_seq=1)
    assert absent(ledger) == {("prefill-0", 4095)}


@pytest.mark.parametrize("text", ["torn", "400000"])
def test_a_counter_without_an_epoch_was_of_a_first_one(tmp_path: Path, text: str) -> None:
    recorded(tmp_path, "workers", "heartbeat")
    (tmp_path / "epochs" / "prefill-0").write_text(text)
    ledger = read_ledger(tmp_path)
    assert absent(ledger) == {("prefill-0", 1)}
    assert [problem.kind for problem in ledger.problems] == ["broken counter", "missing epoch"]


def test_an_empty_counter_never_counted(tmp_path: Path) -> None:
    recorded(tmp_path, "workers", "heartbeat")
    (tmp_path / "epochs" / "prefill-0").write_text("")
    assert read_ledger(tmp_path).problems == ()
