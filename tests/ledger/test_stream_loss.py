"""What a crash may lose: killed writers, cut and flipped streams. Readable is always a prefix across all tables."""

import os
import random
import signal
import subprocess
import sys
import time
from bisect import bisect_left
from pathlib import Path

import pytest
from ledger_writing import busy_life, recorder, seqs

from engine.ledger.compactor import seal_dead
from engine.ledger.reader import read_ledger
from engine.ledger.stream import COMMIT, frames, read_stream

WRITER = """
import sys, time
sys.path.insert(0, {tests!r})
from ledger_writing import busy_life, recorder
rec = recorder({directory!r}, threaded=True, fsync_ms=2, rotate_bytes={rotate})
start = 1
while True:
    busy_life(rec, 20, start)
    start += 20
    print(rec.flush(), flush=True)
"""


def is_prefix(found: list[int]) -> bool:
    return found == list(range(1, len(found) + 1))


@pytest.mark.parametrize("rotate", [1 << 30, 40_000])
@pytest.mark.parametrize("seed", range(4))
def test_killed_writer_leaves_a_prefix_and_an_open_tail(tmp_path, rotate, seed):
    code = WRITER.format(tests=str(Path(__file__).parent), directory=str(tmp_path), rotate=rotate)
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    flushed, moment = 0, random.Random(seed)
    for _ in range(moment.randrange(2, 9)):
        flushed = int(process.stdout.readline())
    alive = read_ledger(tmp_path)
    assert is_prefix(seqs(alive))
    assert [w.state for w in alive.writers] == ["open"]
    time.sleep(moment.uniform(0, 0.02))  # anywhere in its work, not where it has just printed
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    dead = read_ledger(tmp_path)
    assert is_prefix(seqs(dead))
    assert seqs(dead)[-1] >= flushed
    assert [w.state for w in dead.writers] == ["dead"]
    assert {g.reason for g in dead.gaps} == {"dead writer"}
    assert all(g.before_seq is None for g in dead.gaps)
    assert [p for p in dead.problems if p.severity == "broken"] == []
    stream = tmp_path / "wal" / "decode-0-1.wal"
    seal_dead(tmp_path, stream)
    sealed = read_ledger(tmp_path)
    assert sealed.tables == dead.tables and sealed.gaps == dead.gaps and sealed.writers == dead.writers


def small_stream(tmp_path: Path) -> tuple[Path, bytes]:
    rec = recorder(tmp_path)
    busy_life(rec, 1)
    rec.flush()
    busy_life(rec, 1, 2)
    rec.flush()
    rec._stream.close()  # the process is gone; its stream stays
    path = next((tmp_path / "wal").glob("*.wal"))
    return path, path.read_bytes()


def rows_of(content):
    return sorted(seq for _, batch in content.batches for seq in batch.column("seq").to_pylist())


def telling_places(data: bytes) -> list[int]:
    """Every byte of a frame's head and of what lies close to a frame's borders; of a payload, which one digest covers, some."""
    borders = [0, *(end for _, _, _, end in frames(data))]
    near = {at for border in borders for at in range(border - 16, border + 48)}
    return [at for at in range(len(data)) if at in near or at % 13 == 0]


def test_truncation_anywhere(tmp_path):
    path, data = small_stream(tmp_path)
    assert len(rows_of(read_stream(path))) == 16
    kept = set()
    frame_ends = [end for _, _, _, end in frames(data)]
    for i, length in enumerate(telling_places(data)):
        path.write_bytes(data[:length])
        content = read_stream(path)
        assert rows_of(content) == list(range(1, content.committed_seq + 1))
        assert content.problem is not None or length == frame_ends[bisect_left(frame_ends, length)]
        kept.add(content.committed_seq)
        if i % 31 == 0:
            ledger = read_ledger(tmp_path)
            assert seqs(ledger) == rows_of(content)
            assert {g.table for g in ledger.gaps} >= {"pages", "requests", "transfers"}
            assert all(g.before_seq is None for g in ledger.gaps)
    assert kept == {0, 8}


def test_a_flipped_bit_never_gives_other_rows(tmp_path):
    path, data = small_stream(tmp_path)
    whole = {name: table.to_pylist() for name, table in read_ledger(tmp_path).tables.items()}
    bits = random.Random(7)
    for at in telling_places(data):
        damaged = bytearray(data)
        damaged[at] ^= 1 << bits.randrange(8)
        path.write_bytes(damaged)
        content = read_stream(path)
        assert content.problem is not None
        for name, batch in content.batches:
            for row in batch.to_pylist():
                assert {"worker": "decode-0", **row} in whole[name]


def test_loss_of_the_machine_is_bounded_by_the_last_sync(tmp_path):
    """Everything that flush() returned for is inside the committed bytes of the file."""
    rec = recorder(tmp_path)
    busy_life(rec, 2)
    committed = rec.flush()
    busy_life(rec, 2, 5)  # queued, not flushed
    path = next((tmp_path / "wal").glob("*.wal"))
    assert read_stream(path).committed_seq == committed == 16
    assert read_stream(path).header["fsync_ms"] == 200


def test_damage_in_a_stream_that_is_being_written_is_told_and_its_unfinished_end_is_not(tmp_path):
    rec = recorder(tmp_path)
    for first in (1, 3):
        busy_life(rec, 2, first)
        rec.flush()
    path = next((tmp_path / "wal").glob("*.wal"))
    data = path.read_bytes()
    ends = [(kind, end) for kind, _, _, end in frames(data)]
    commits = [end for kind, end in ends if kind == COMMIT]
    for cut in range(commits[-2] + 1, len(data), 7):
        os.truncate(path, cut)  # as a reader sees it while the last flush is under way
        assert read_ledger(tmp_path).problems == ()
        path.write_bytes(data)
    for at in range(ends[0][1], commits[-2], 13):
        path.write_bytes(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :])
        ledger = read_ledger(tmp_path)
        assert [(problem.kind, problem.severity) for problem in ledger.problems] == [("torn stream", "loss")], at
        assert [writer.state for writer in ledger.writers] == ["dead"]  # what it wrote behind the damage is lost
    path.write_bytes(data)
    rec.close()
