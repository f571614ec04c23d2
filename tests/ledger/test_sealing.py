"""Streams become segments: rotation, crashes between its steps, resumed seals, damaged streams, dead writers."""

import hashlib
import itertools

import pyarrow.parquet as pq
import pytest
from ledger_writing import busy_life, recorder, seqs

from engine.ledger import compactor, manifest
from engine.ledger import recorder as recorder_module
from engine.ledger.errors import LedgerError
from engine.ledger.manifest import manifest_path, read_manifest
from engine.ledger.reader import read_ledger
from engine.ledger.stream import read_stream


def test_rotation_loses_and_doubles_nothing(tmp_path):
    rec = recorder(tmp_path, rotate_bytes=20_000)
    for start in range(1, 60, 3):
        busy_life(rec, 3, start)
        rec.flush()
    assert len(list((tmp_path / "pages").rglob("*.parquet"))) > 1
    assert seqs(read_ledger(tmp_path)) == list(range(1, rec.seq + 1))
    rec.close()
    ledger = read_ledger(tmp_path)
    assert seqs(ledger) == list(range(1, rec.seq + 1))
    assert ledger.gaps == () and ledger.problems == ()


class Crash(BaseException):
    """Stands for the process ending at this very point."""


@pytest.mark.parametrize("at", ["write_table", "rename", "sync_directory", "append_lines", "after append_lines"])
def test_a_crash_between_any_two_steps_of_sealing_loses_nothing(tmp_path, monkeypatch, at):
    rec = recorder(tmp_path)
    busy_life(rec, 4)
    rec.flush()
    want = seqs(read_ledger(tmp_path))
    calls = {"n": 0}

    def crash(*args, **kwargs):
        calls["n"] += 1
        raise Crash

    if at == "write_table":
        monkeypatch.setattr(compactor.pq, "write_table", crash)
    elif at == "rename":
        monkeypatch.setattr(compactor.os, "rename", crash)
    elif at == "sync_directory":
        monkeypatch.setattr(compactor, "sync_directory", crash)
    elif at == "append_lines":
        monkeypatch.setattr(compactor, "append_lines", crash)
    else:
        monkeypatch.setattr(recorder_module, "let_go", crash)
    with pytest.raises(Crash):
        rec.close()
    rec._stream.close()
    monkeypatch.undo()
    ledger = read_ledger(tmp_path)
    assert seqs(ledger)[: len(want)] == want
    assert [p for p in ledger.problems if p.severity == "broken"] == []
    stream = next((tmp_path / "wal").glob("*.wal"))
    compactor.seal_dead(tmp_path, stream)
    again = read_ledger(tmp_path)
    assert seqs(again) == seqs(ledger)
    assert [p for p in again.problems if p.severity == "broken"] == []


def test_a_live_stream_is_not_sealed_by_others(tmp_path, monkeypatch):
    monkeypatch.setattr(compactor, "LOCK_PATIENCE_S", 0.0)
    rec = recorder(tmp_path)
    busy_life(rec, 1)
    with pytest.raises(LedgerError, match="alive"):
        compactor.seal_dead(tmp_path, next((tmp_path / "wal").glob("*.wal")))


def hashes(directory):
    return {f: hashlib.sha256(f.read_bytes()).hexdigest() for f in directory.rglob("*.parquet")}


def test_a_rotation_that_fails_half_way_is_finished_later_and_rewrites_no_segment(tmp_path, monkeypatch):
    rec = recorder(tmp_path, rotate_bytes=20_000)

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(recorder_module, "StreamWriter", full)  # the segments are sealed, the fresh stream fails
    busy_life(rec, 20)
    rec.flush()
    assert rec.problem is not None and "No space left" in rec.problem
    sealed = hashes(tmp_path)
    assert sealed
    busy_life(rec, 3, 30)
    monkeypatch.undo()
    rec.flush()
    rec.close()
    assert {f: h for f, h in hashes(tmp_path).items() if f in sealed} == sealed
    ledger = read_ledger(tmp_path)
    assert seqs(ledger) == list(range(1, rec.seq + 1))
    assert ledger.gaps == () and ledger.problems == ()


@pytest.mark.parametrize("cut", [0, 1, 100, 700, 1500, 2500])
def test_a_manifest_cut_at_any_place_is_completed_by_the_next_seal(tmp_path, cut):
    """As when the process died while it appended its lines: the stream is still there."""
    rec = recorder(tmp_path)
    busy_life(rec, 2)
    rec.flush()
    path = rec.directory / "wal" / "decode-0-1.wal"
    stream = path.read_bytes()
    rec.close()
    path.write_bytes(stream)
    lines = manifest_path(tmp_path, "decode-0")
    lines.write_bytes(lines.read_bytes()[:cut])
    cut_ledger = read_ledger(tmp_path)
    assert seqs(cut_ledger)[:16] == list(range(1, 17))
    assert {p.severity for p in cut_ledger.problems} <= {"loss"}
    compactor.seal_dead(tmp_path, path)
    content = read_manifest(lines)
    assert content.problems == () and not content.cut_off
    assert len({line.path for line in content.lines}) == len(content.lines)
    ledger = read_ledger(tmp_path)
    assert seqs(ledger)[:16] == list(range(1, 17))
    assert {p.severity for p in ledger.problems} <= {"loss"}


def test_a_failed_manifest_append_leaves_no_part_of_a_line(tmp_path, monkeypatch):
    rec = recorder(tmp_path)
    busy_life(rec, 1)

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(manifest.os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        manifest.append_lines(tmp_path, "decode-0", [segment_line()])
    assert manifest_path(tmp_path, "decode-0").read_bytes() == b""


def segment_line(**other):
    known = {
        "path": "pages/day=2026-01-01/worker=decode-0/1-1.parquet", "sha256": "0", "table": "pages", "worker": "decode-0",
        "epoch": 1, "ordinal": 1, "first_seq": 1, "last_seq": 1, "rows": 1, "schema_version": 1, "fsync_ms": 200,
        "chains": {}, "ends": {}, "prev": "",
    }  # fmt: skip
    return manifest.SegmentLine(**{**known, **other})


def test_lines_of_a_later_version_are_read_by_the_names_known_here(tmp_path):
    import json

    manifest.append_lines(tmp_path, "decode-0", [segment_line()])
    path = manifest_path(tmp_path, "decode-0")
    line = json.loads(path.read_text())
    path.write_text(json.dumps({**line, "colour": "green"}) + "\n" + "[]\n" + json.dumps({**line, "epoch": "x"}) + "\n")
    content = read_manifest(path)
    assert [found.table for found in content.lines] == ["pages"]
    assert content.problems == ("line 2 is no segment line", "line 3 is no segment line")


@pytest.mark.parametrize("seed", range(3))
def test_a_stream_damaged_while_its_writer_lives_is_set_aside_and_told(tmp_path, seed):
    rec = recorder(tmp_path, rotate_bytes=1 << 30)
    busy_life(rec, 2)
    rec.flush()
    path = rec.directory / "wal" / "decode-0-1.wal"
    busy_life(rec, 2, 10)
    rec.flush()
    data = bytearray(path.read_bytes())
    data[len(data) * (seed + 1) // 4] ^= 1
    with open(path, "r+b") as file:
        file.write(data)
    kept = read_stream(path).committed_seq
    rec._rotate_at = 0
    busy_life(rec, 1, 20)
    rec.flush()
    after = rec.seq
    busy_life(rec, 1, 30)
    rec.close()
    ledger = read_ledger(tmp_path)
    assert seqs(ledger) == [*range(1, kept + 1), *range(after + 1, rec.seq + 1)]
    assert [(p.kind, p.severity) for p in ledger.problems] == [("torn stream", "loss")]
    assert all(g.after_seq < after + 1 and g.before_seq > kept for g in ledger.gaps)
    assert {g.table for g in ledger.gaps} >= {"pages", "requests", "steps"}


def test_sealing_a_dead_writer_moves_nothing(tmp_path):
    rec = recorder(tmp_path)
    busy_life(rec, 3)
    rec.flush()
    rec._stream.close()
    before = read_ledger(tmp_path)
    stream = tmp_path / "wal" / "decode-0-1.wal"
    compactor.seal_dead(tmp_path, stream)
    after = read_ledger(tmp_path)
    assert not stream.exists()
    assert after.tables == before.tables
    assert after.writers == before.writers and after.gaps == before.gaps and after.problems == before.problems
    assert after.writers[0].state == "dead" and after.writers[0].fsync_ms == 200


def test_a_dead_stream_without_rows_stays(tmp_path):
    rec = recorder(tmp_path)
    rec._stream.close()
    stream = tmp_path / "wal" / "decode-0-1.wal"
    assert compactor.seal_dead(tmp_path, stream) == []
    assert [(w.epoch, w.state, w.last_seq) for w in read_ledger(tmp_path).writers] == [(1, "dead", 0)]


def test_a_torn_dead_stream_is_kept_as_evidence(tmp_path):
    rec = recorder(tmp_path)
    busy_life(rec, 1)
    rec.flush()
    rec._stream.close()
    stream = tmp_path / "wal" / "decode-0-1.wal"
    with open(stream, "ab") as file:
        file.write(b"KVWF torn")
    compactor.seal_dead(tmp_path, stream)
    ledger = read_ledger(tmp_path)
    assert seqs(ledger) == list(range(1, 9))
    assert [(p.kind, p.severity) for p in ledger.problems] == [("torn stream", "loss")]
    assert [f.suffix for f in (tmp_path / "wal").iterdir()] == [".torn"]


def test_rows_of_two_days_lie_in_two_folders(tmp_path):
    rec = recorder(tmp_path)
    ticks = itertools.chain([86_399_999_999, 86_400_000_000, 86_399_999_999], itertools.count(90_000_000_000))
    rec._now_us = lambda: next(ticks)
    for req in range(1, 4):
        rec.record("requests", "receive", req=req)
    rec.close()
    found = {f.parts[-3]: f.name for f in (tmp_path / "requests").rglob("*.parquet")}
    assert found == {"day=1970-01-01": "1-1.parquet", "day=1970-01-02": "1-2.parquet"}
    ledger = read_ledger(tmp_path)
    assert ledger.tables["requests"]["req"].to_pylist() == [1, 2, 3] and ledger.gaps == ()


def test_a_segment_leaves_out_columns_without_a_value_and_they_are_read_as_null(tmp_path):
    rec = recorder(tmp_path)
    busy_life(rec, 2)
    rec.flush()
    streamed = read_ledger(tmp_path).tables
    rec.close()
    sealed = read_ledger(tmp_path).tables
    assert {name: rows for name, rows in sealed.items() if name != "workers"} == {
        name: rows for name, rows in streamed.items() if name != "workers"
    }
    (gauges,) = (tmp_path / "gauges").rglob("*.parquet")
    assert pq.ParquetFile(gauges).schema_arrow.names == ["epoch", "seq", "prev", "t", "op", "pool", "free"]
    assert sealed["gauges"]["used"].null_count == sealed["gauges"].num_rows > 0
