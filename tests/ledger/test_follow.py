"""Following open streams: up to the last commit, from where the last look ended, and never beyond what holds."""

from pathlib import Path

import pyarrow as pa
from ledger_writing import busy_life, recorder, seqs

from engine.ledger.follow import KEPT_COMMITS, StreamFollower
from engine.ledger.reader import read_ledger


def seqs_of(rows: list[tuple[str, pa.Table]]) -> list[int]:
    return sorted(seq for _, table in rows for seq in table["seq"].to_pylist())


def test_every_look_ends_at_the_last_commit(tmp_path):
    rec, follower = recorder(tmp_path), StreamFollower(tmp_path)
    assert [end.seq for end in follower.look()] == [0]
    for start in (1, 4, 7):
        before = rec.seq
        busy_life(rec, 3, start)
        assert follower.look()[0].seq == before  # what is not committed is not there
        flushed = rec.flush()
        end = follower.look()[0]
        assert (end.writer, end.seq) == (("decode-0", 1), flushed)
        assert seqs_of(end.rows()) == list(range(1, flushed + 1))


def test_only_the_last_commits_are_kept_and_their_rows_are_the_readers(tmp_path):
    rec, follower = recorder(tmp_path), StreamFollower(tmp_path)
    borders = []
    for start in range(1, 9):
        busy_life(rec, 1, start)
        borders.append(rec.flush())
    end = follower.look()[0]
    assert seqs_of(end.rows()) == list(range(borders[-KEPT_COMMITS - 1] + 1, borders[-1] + 1))
    read = read_ledger(tmp_path).tables
    for table, rows in end.rows():
        assert rows.column_names == read[table].column_names
        assert set(rows["seq"].to_pylist()) <= set(read[table]["seq"].to_pylist())


def test_what_was_read_is_not_read_again(tmp_path, monkeypatch):
    rec, follower = recorder(tmp_path), StreamFollower(tmp_path)
    busy_life(rec, 50)
    rec.flush()
    follower.look()
    parsed = []
    import engine.ledger.follow as module

    frames = module.frames
    monkeypatch.setattr(module, "frames", lambda data, begins: parsed.append(len(data)) or frames(data, begins=begins))
    follower.look()
    assert parsed == []
    busy_life(rec, 1, 51)
    rec.flush()
    whole = next((tmp_path / "wal").glob("*.wal")).stat().st_size
    follower.look()
    assert len(parsed) == 1
    assert parsed[0] < whole


def test_a_write_under_way_is_waited_for_and_damage_ends_the_following(tmp_path):
    rec, follower = recorder(tmp_path), StreamFollower(tmp_path)
    busy_life(rec, 2)
    first = rec.flush()
    follower.look()
    stream = next((tmp_path / "wal").glob("*.wal"))
    whole_before = stream.read_bytes()
    busy_life(rec, 2, 3)
    second = rec.flush()
    whole = stream.read_bytes()
    for cut in range(len(whole_before), len(whole)):
        stream.write_bytes(whole[:cut])
        assert follower.look()[0].seq == first
    stream.write_bytes(whole)
    assert follower.look()[0].seq == second
    damaged = bytearray(whole_before + whole[len(whole_before) :])
    damaged[len(whole_before) + 30] ^= 0xFF
    stream.write_bytes(bytes(damaged))
    assert StreamFollower(tmp_path).look()[0].seq == first


def test_a_stream_that_is_sealed_is_left_and_one_made_anew_is_begun_anew(tmp_path):
    rec, follower = recorder(tmp_path, rotate_bytes=20_000), StreamFollower(tmp_path)
    known, files, followed = 0, set(), 0
    for start in range(1, 40):
        busy_life(rec, 1, start)
        flushed = rec.flush()
        (end,) = follower.look()
        assert known <= end.seq <= flushed  # what was sealed between two looks is told by the next commit
        assert set(seqs_of(end.rows())) <= set(range(1, flushed + 1))
        known, followed = end.seq, followed + (end.seq == flushed)
        files.add(next((tmp_path / "wal").glob("*.wal")).stat().st_ino)
    assert len(files) > 2
    assert followed > 10
    rec.close()
    assert follower.look() == ()
    assert seqs(read_ledger(tmp_path))[-1] == rec.seq


def test_a_directory_without_streams_has_no_ends(tmp_path):
    assert StreamFollower(Path(tmp_path)).look() == ()
