"""The hot path: order, overflow, references, tags, epochs, rotation, a failing disk."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ledger_writing import busy_life, recorder, seqs

from engine.ledger import compactor
from engine.ledger import recorder as recorder_module
from engine.ledger import stream as stream_module
from engine.ledger.digest import key_digest
from engine.ledger.epochs import take_epoch
from engine.ledger.errors import LedgerError
from engine.ledger.fingerprint import fingerprint
from engine.ledger.reader import read_ledger
from engine.ledger.refs import expand_pages
from engine.ledger.schema import OPS, TABLES
from engine.ledger.tag import make_tag, split_tag


@given(st.integers(0, 2**13 - 1), st.integers(0, 2**12 - 1), st.integers(0, 2**38 - 1))
def test_tags_round_trip_and_are_positive(ordinal, epoch, seq):
    tag = make_tag(ordinal, epoch, seq)
    assert split_tag(tag) == (ordinal, epoch, seq)
    assert 0 <= tag < 2**63


@pytest.mark.parametrize("numbers", [(2**13, 1, 1), (1, 2**12, 1), (1, 1, 2**38), (-1, 1, 1)])
def test_tags_refuse_what_does_not_fit(numbers):
    with pytest.raises(ValueError, match="does not fit"):
        make_tag(*numbers)


@given(st.lists(st.integers(0, 2**31 - 1), max_size=40), st.integers(0, 2**63 - 1), st.integers(0, 40))
def test_fingerprints_add_up(pages, tag, cut):
    whole, left, right = (np.array(p, np.int32) for p in (pages, pages[:cut], pages[cut:]))
    assert fingerprint(whole, tag) == (fingerprint(left, tag) + fingerprint(right, tag)) % 2**63


def test_known_fingerprint_and_digest():
    # splitmix64(0) = 0xE220A8397B1DCDAF is the generator's published first output for seed 0.
    from engine.ledger.fingerprint import splitmix64

    assert splitmix64(np.array([0], np.uint64))[0] == 0xE220A8397B1DCDAF
    assert key_digest(b"a", 5) != key_digest(b"b", 5)
    assert -(2**63) <= key_digest(b"a", 2**64 - 1) < 2**63


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 11), st.integers(1, 12)), min_size=1, max_size=8), st.booleans())
def test_references_give_back_the_array_that_was_used(tmp_path_factory, slices, swap):
    directory = tmp_path_factory.mktemp("ledger")
    rec = recorder(directory)
    reserved = np.array([7, 3, 9, 1, 20, 21, 22, 5, 6, 8, 2, 4], np.int32)
    tag = rec.reserve("kv", 1, reserved)
    expected = [reserved.tolist()]
    for start, length in slices:
        used = reserved[start : start + length].copy()
        if swap and len(used) > 1:
            used[[0, -1]] = used[[-1, 0]]
        rec.pages("bind", "kv", 1, tag, used)
        expected.append(used.tolist())
    rec.flush()
    raw = read_ledger(directory).tables["pages"]
    assert expand_pages(raw)["pages"].to_pylist() == expected
    for row, used in zip(raw.to_pylist()[1:], expected[1:], strict=True):
        equal = used == reserved.tolist()[row["ref_off"] or 0 :][: len(used)] if row["ref_seq"] is not None else True
        assert equal
    if not swap:
        assert raw["pages"].to_pylist()[1:] == [None] * len(slices)


def test_a_changed_fingerprint_resolves_to_nothing(tmp_path):
    rec = recorder(tmp_path)
    tag = rec.reserve("kv", 1, np.arange(4, dtype=np.int32))
    rec.pages("bind", "kv", 1, tag, np.arange(4, dtype=np.int32))
    rec.flush()
    raw = read_ledger(tmp_path).tables["pages"]
    wrong = raw.set_column(raw.column_names.index("fingerprint"), "fingerprint", [[None, 12345]])
    assert expand_pages(wrong)["pages"].to_pylist() == [[0, 1, 2, 3], None]


def test_overflow_keeps_seqs_and_tells_the_loss(tmp_path):
    rec = recorder(tmp_path, threaded=True, fsync_ms=3_600_000, ring_rows=16)
    for i in range(40):
        rec.record("gauges", "sample", pool="kv", free=i)
    rec.flush()
    rec.close()
    ledger = read_ledger(tmp_path)
    loss = [r for r in ledger.tables["workers"].to_pylist() if r["op"] == "loss"]
    assert [r["lost"] for r in loss] == [24]
    assert ledger.tables["gauges"].num_rows == 16
    assert [(g.table, g.pool, g.after_seq, g.before_seq) for g in ledger.gaps] == [("gauges", "kv", 16, 41)]


def test_two_threads_record_in_seq_order(tmp_path):
    rec = recorder(tmp_path, threaded=True, fsync_ms=1)
    start = threading.Barrier(2)

    def work(req):
        start.wait()
        for _ in range(2000):
            rec.record("requests", "admit", req=req)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(work, (1, 2)))
    rec.close()
    ledger = read_ledger(tmp_path)
    assert seqs(ledger) == list(range(1, 4002))
    assert ledger.gaps == ()


def test_epochs_are_never_given_twice(tmp_path):
    with ThreadPoolExecutor(8) as pool:
        taken = list(pool.map(lambda _: take_epoch(tmp_path, "decode-0"), range(64)))
    assert sorted(taken) == list(range(1, 65))


@pytest.mark.parametrize("name", ["", "../up", "a/b", "x" * 65, ".hidden"])
def test_bad_worker_names_are_refused(tmp_path, name):
    with pytest.raises(LedgerError, match="worker name"):
        take_epoch(tmp_path, name)


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


def test_a_live_stream_is_not_sealed_by_others(tmp_path):
    rec = recorder(tmp_path)
    busy_life(rec, 1)
    with pytest.raises(LedgerError, match="alive"):
        compactor.seal_dead(tmp_path, next((tmp_path / "wal").glob("*.wal")))


def test_a_full_disk_neither_raises_nor_loses(tmp_path, monkeypatch):
    rec = recorder(tmp_path)
    busy_life(rec, 1)

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(stream_module.os, "fsync", full)
    rec.flush()
    assert rec.problem is not None and "No space left" in rec.problem
    busy_life(rec, 1, 2)
    monkeypatch.undo()
    rec.flush()
    assert rec.problem is None
    rec.close()
    ledger = read_ledger(tmp_path)
    assert seqs(ledger) == list(range(1, rec.seq + 1)) and ledger.gaps == ()


def test_same_calls_same_bytes(tmp_path):
    digests = []
    for name in ("a", "b"):
        rec = recorder(tmp_path / name)
        busy_life(rec, 5)
        rec.close()
        files = sorted((tmp_path / name).rglob("*.parquet"))
        digests.append([f.read_bytes() for f in files])
    assert digests[0] == digests[1]


def test_every_op_and_column_can_be_recorded(tmp_path):
    rec = recorder(tmp_path)
    for table, ops in OPS.items():
        for op in ops:
            if op != "close":
                rec.record(table, op)
    rec.close()
    ledger = read_ledger(tmp_path)
    for table, ops in OPS.items():
        assert set(ledger.tables[table]["op"].to_pylist()) == set(ops)
        assert ledger.tables[table].column_names == ["worker", *TABLES[table].names]


@pytest.mark.parametrize("make", ["nothing", "file", "empty"])
def test_what_is_no_ledger_is_refused_with_words(tmp_path, make):
    path = tmp_path / "x"
    if make == "file":
        path.write_text("hello")
    elif make == "empty":
        path.mkdir()
    with pytest.raises(LedgerError, match=str(path)):
        read_ledger(path)


def test_unknown_columns_are_kept_and_newer_versions_refused():
    import pyarrow as pa

    from engine.ledger.versions import to_present

    rows = TABLES["checks"].empty_table().append_column("colour", pa.array([], pa.string()))
    assert to_present("checks", rows.drop_columns(["found"]), 1).column_names == [*TABLES["checks"].names, "colour"]
    with pytest.raises(LedgerError, match="newer kvwitness"):
        to_present("checks", rows, 99)
