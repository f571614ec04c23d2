"""The hot path: order, overflow, references, tags, epochs, rotation, a failing disk."""

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ledger_writing import START_US, busy_life, recorder, seqs

from engine.ledger import encode
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


def test_rows_encoded_a_few_at_a_time_make_the_same_stream(tmp_path, monkeypatch):
    streams = []
    for at_once in (1 << 12, 5):
        monkeypatch.setattr(encode, "ENCODED_AT_ONCE", at_once)
        rec = recorder(tmp_path / str(at_once))
        busy_life(rec, requests=9)
        rec.record("checks", "probe", n="no number")  # is refused, wherever its run ends
        busy_life(rec, requests=2, start=20)
        rec.flush()
        assert "checks/probe" in rec.problem
        streams.append((tmp_path / str(at_once) / "wal" / "decode-0-1.wal").read_bytes())
        rec.close()
    assert streams[0] == streams[1]


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


def test_what_was_not_seen_takes_its_place_and_is_a_gap_of_that_chain_alone(tmp_path):
    rec = recorder(tmp_path)
    rec.record("requests", "receive", req=1, rid="r1")
    rec.miss("transfers")
    rec.miss("pages", "kv", rows=3)
    rec.record("requests", "finish", req=1)
    rec.close()
    rec.miss("requests")  # its life is over
    ledger = read_ledger(tmp_path)
    assert [(g.table, g.pool, g.after_seq, g.before_seq) for g in ledger.gaps] == [
        ("pages", "kv", 0, 6), ("transfers", None, 0, 3),
    ]  # fmt: skip
    assert not ledger.problems and ledger.tables["requests"]["seq"].to_pylist() == [1, 6]
    with pytest.raises(TypeError, match="no table 'page'"):
        recorder(tmp_path, "other").miss("page")


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


TAKER = (
    "import sys; from engine.ledger.epochs import take_epoch; [print(take_epoch(sys.argv[1], 'w')) for _ in range(40)]"
)


def test_processes_are_never_given_the_same_epoch(tmp_path):
    code = TAKER.replace("sys.argv[1]", "__import__('pathlib').Path(sys.argv[1])")
    command = [sys.executable, "-c", code, str(tmp_path)]
    takers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    taken = [int(line) for taker in takers for line in taker.communicate()[0].split()]
    assert sorted(taken) == list(range(1, 121))


@pytest.mark.parametrize("closed", [True, False])
def test_a_lost_epoch_counter_does_not_lead_over_old_evidence(tmp_path, closed):
    for _ in range(2):
        rec = recorder(tmp_path)
        busy_life(rec, 1)
        rec.close() if closed else rec.flush()
        rec._stream.close()
    (tmp_path / "epochs" / "decode-0").unlink()
    assert recorder(tmp_path).epoch == 3
    assert len(read_ledger(tmp_path).writers) == 3


def test_a_damaged_epoch_counter_is_refused_with_words(tmp_path):
    (tmp_path / "epochs").mkdir()
    (tmp_path / "epochs" / "decode-0").write_text("seven")
    with pytest.raises(LedgerError, match="is no epoch"):
        recorder(tmp_path)


@pytest.mark.parametrize("name", ["", "../up", "a/b", "x" * 65, ".hidden"])
def test_bad_worker_names_are_refused(tmp_path, name):
    with pytest.raises(LedgerError, match="worker name"):
        take_epoch(tmp_path, name)


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


def test_unknown_columns_are_kept_and_newer_versions_refused():
    import pyarrow as pa

    from engine.ledger.versions import to_present

    rows = TABLES["checks"].empty_table().append_column("colour", pa.array([], pa.string()))
    assert to_present("checks", rows.drop_columns(["found"]), 1).column_names == [*TABLES["checks"].names, "colour"]
    with pytest.raises(LedgerError, match="newer kvwitness"):
        to_present("checks", rows, 99)


def test_overflow_that_lasts_until_the_close_is_told_before_it(tmp_path):
    rec = recorder(tmp_path, threaded=True, fsync_ms=3_600_000, ring_rows=16)
    rec._wake_rows = 1 << 30  # the drain does not come by itself
    for i in range(40):
        rec.record("gauges", "sample", pool="kv", free=i)
    rec.close()
    ledger = read_ledger(tmp_path)
    workers = ledger.tables["workers"].to_pylist()
    assert [(r["op"], r["seq"], r["prev"], r["lost"]) for r in workers] == [
        ("loss", 41, 0, 24),
        ("close", 42, 41, None),
    ]
    assert [(g.table, g.pool, g.after_seq, g.before_seq) for g in ledger.gaps] == [("gauges", "kv", 16, 41)]


def test_what_is_recorded_after_the_close_takes_no_seq(tmp_path):
    rec = recorder(tmp_path)
    busy_life(rec, 1)
    rec.close()
    assert rec.record("requests", "admit", req=1) == rec.seq == 9
    rec.close()
    ledger = read_ledger(tmp_path)
    assert seqs(ledger) == list(range(1, 10)) and ledger.gaps == ()


def test_a_flush_brings_all_there_after_the_disk_had_failed(tmp_path, monkeypatch):
    rec = recorder(tmp_path)
    busy_life(rec, 1)

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(stream_module.os, "fsync", full)
    assert rec.flush() == 0
    busy_life(rec, 1, 2)
    monkeypatch.undo()
    assert rec.flush() == rec.seq == 16


def test_digests_are_keyed_once_though_the_disk_failed_between(tmp_path, monkeypatch):
    rec = recorder(tmp_path)
    rec.record("transfers", "done", xfer=1, digests=[5, 2**64 - 1])

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(stream_module.os, "fsync", full)
    rec.flush()
    monkeypatch.undo()
    rec.flush()
    keyed = read_ledger(tmp_path).tables["transfers"]["digests"].to_pylist()
    assert keyed == [[key_digest(b"test", 5), key_digest(b"test", 2**64 - 1)]]


@pytest.mark.parametrize(
    ("table", "op", "columns"),
    [("page", "bind", {}), ("pages", "bound", {}), ("pages", "bind", {"page": 1}), ("steps", "decode", {"seq": 1})],
)
def test_a_row_outside_the_schema_is_refused_at_once(tmp_path, table, op, columns):
    rec = recorder(tmp_path)
    with pytest.raises(TypeError, match=r"has no (table|op|column)"):
        rec.record(table, op, **columns)
    assert rec.seq == 0


def test_a_value_that_fits_no_column_costs_its_own_row_only(tmp_path):
    rec = recorder(tmp_path)
    rec.record("requests", "receive", req=1, rid="good")
    rec.record("requests", "receive", req=2, rid=object())
    rec.record("requests", "receive", req="three", rid="bad")
    rec.record("requests", "receive", req=4, rid="good")
    rec.flush()
    assert rec.problem is not None and "requests/receive at seq 3" in rec.problem
    rec.close()
    ledger = read_ledger(tmp_path)
    assert ledger.tables["requests"]["req"].to_pylist() == [1, 4]
    assert [(g.table, g.after_seq, g.before_seq) for g in ledger.gaps] == [("requests", 1, 4)]
    assert [r["lost"] for r in ledger.tables["workers"].to_pylist()] == [2, None]


def test_the_callers_array_may_change_afterwards(tmp_path):
    rec = recorder(tmp_path)
    pages = np.arange(4, dtype=np.int32)
    tag = rec.reserve("kv", 1, pages)
    rec.pages("bind", "kv", 1, tag, pages)
    rec.record("transfers", "post", src_pages=pages, dst_pages=pages)
    pages[:] = 99
    rec.flush()
    ledger = read_ledger(tmp_path)
    assert expand_pages(ledger.tables["pages"])["pages"].to_pylist() == [[0, 1, 2, 3]] * 2
    assert ledger.tables["transfers"]["src_pages"].to_pylist() == [[0, 1, 2, 3]]


def test_page_rows_counts_rows_of_every_kind_by_request(tmp_path):
    rec = recorder(tmp_path)
    tag = rec.reserve("kv", 7, np.arange(2, dtype=np.int32))
    rec.append("kv", 7, np.array([9], np.int32), pos=2)
    rec.pages("bind", "kv", 7, tag, np.arange(2, dtype=np.int32))
    rec.record("pages", "audit", pool="kv", n=0)
    rec.record("pages", "hold", pool="kv", req=7)
    assert (rec.page_rows(7), rec.page_rows(8)) == (4, 0)


def test_a_given_time_is_the_rows_time(tmp_path):
    rec = recorder(tmp_path)
    rec.record("steps", "decode", since_seq=0, step=1, n=3, t=START_US - 5)
    rec.flush()
    assert read_ledger(tmp_path).tables["steps"]["t"].cast("int64").to_pylist() == [START_US - 5]


def test_lists_forgotten_for_space_are_written_in_full(tmp_path, monkeypatch):
    monkeypatch.setattr(encode, "REMEMBERED_PAGES", 10)
    rec = recorder(tmp_path)
    arrays = [np.arange(6, dtype=np.int32) + 6 * i for i in range(3)]
    tags = [rec.reserve("kv", 1, pages) for pages in arrays]
    for tag, pages in zip(tags, arrays, strict=True):
        rec.pages("free", "kv", 1, tag, pages)
    rec.flush()
    raw = read_ledger(tmp_path).tables["pages"]
    assert raw["ref_seq"].to_pylist() == [None] * 5 + [3]
    assert expand_pages(raw)["pages"].to_pylist() == [p.tolist() for p in arrays] * 2
