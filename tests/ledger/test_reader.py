"""Reading: order and duplicates change nothing, contradictions are told, reading writes nothing, versions map."""

import hashlib
import threading

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ledger_writing import busy_life, recorder, rewrite_segments, seqs

from engine.ledger import versions
from engine.ledger.errors import LedgerError
from engine.ledger.reader import read_ledger
from engine.ledger.refs import expand_pages
from engine.ledger.schema import TABLES


def sealed(directory, lives=3):
    rec = recorder(directory)
    busy_life(rec, lives)
    rec.close()
    return read_ledger(directory)


def snapshot(directory):
    return {
        str(f): (f.stat().st_mtime_ns, f.is_file() and hashlib.sha256(f.read_bytes()).hexdigest())
        for f in directory.rglob("*")
    }


def test_reading_writes_nothing(tmp_path):
    rec = recorder(tmp_path, rotate_bytes=5_000)
    busy_life(rec, 8)
    rec.flush()
    before = snapshot(tmp_path)
    read_ledger(tmp_path)
    assert snapshot(tmp_path) == before


def test_every_read_beside_a_rotating_writer_is_a_whole_prefix(tmp_path):
    rec = recorder(tmp_path, threaded=True, fsync_ms=1, rotate_bytes=30_000)

    def write():
        for start in range(1, 200, 5):
            busy_life(rec, 5, start)
            rec.flush()

    writer = threading.Thread(target=write)
    writer.start()
    last = reads = 0
    while writer.is_alive() or reads == 0:
        ledger = read_ledger(tmp_path)
        found = seqs(ledger)
        assert found == list(range(1, len(found) + 1))
        assert len(found) >= last
        assert ledger.problems == ()
        assert {g.reason for g in ledger.gaps} == {"open tail (writer alive)"}
        last, reads = len(found), reads + 1
    writer.join()
    rec.close()
    ledger = read_ledger(tmp_path)
    assert seqs(ledger) == list(range(1, rec.seq + 1)) and ledger.gaps == () and ledger.problems == ()


@settings(max_examples=12, deadline=None)
@given(st.randoms(use_true_random=False))
def test_the_order_of_rows_in_files_changes_nothing(tmp_path_factory, random):
    directory = tmp_path_factory.mktemp("ledger")
    whole = sealed(directory)

    def shuffle(table, rows):
        order = list(range(rows.num_rows))
        random.shuffle(order)
        return rows.take(order)

    rewrite_segments(directory, shuffle)
    again = read_ledger(directory)
    assert again.tables == whole.tables and again.gaps == () and again.problems == ()


@settings(max_examples=25, deadline=None)
@given(st.sets(st.integers(1, 25), max_size=12))
def test_any_lost_rows_are_exactly_the_gaps(tmp_path_factory, lost):
    """Against a plain walk: a chain's gap lies between the kept rows round each run of its lost rows, and nowhere else."""
    directory = tmp_path_factory.mktemp("ledger")
    whole = sealed(directory)
    chains = {}
    for table, rows in whole.tables.items():
        for row in rows.to_pylist():
            chains.setdefault((table, row.get("pool")), []).append(row["seq"])
    rewrite_segments(directory, lambda _, rows: rows.filter([s not in lost for s in rows["seq"].to_pylist()]))
    expected = set()
    for chain, seqs_ in chains.items():
        for seq in lost & set(seqs_):
            after = max((s for s in seqs_ if s < seq and s not in lost), default=0)
            before = min((s for s in seqs_ if s > seq and s not in lost), default=max(seqs_) + 1)
            expected.add((*chain, after, before))
    ledger = read_ledger(directory)
    assert {(g.table, g.pool, g.after_seq, g.before_seq) for g in ledger.gaps} == expected
    assert len(ledger.gaps) == len(expected) and ledger.problems == ()
    covered = {s for g in ledger.gaps for s in range(g.after_seq + 1, g.before_seq)}
    assert lost <= covered


def edited(directory, table, at, **columns):
    """The sealed ledger with one row changed, its file and manifest made to agree."""

    def edit(name, rows):
        if name != table:
            return rows
        found = rows.to_pylist()
        for row in found:
            if row["seq"] == at:
                row.update(columns)
        return pa.Table.from_pylist(found, schema=rows.schema)

    rewrite_segments(directory, edit)
    return read_ledger(directory)


def test_one_seq_in_two_tables_is_broken_evidence(tmp_path):
    sealed(tmp_path)
    ledger = edited(tmp_path, "gauges", 4, seq=3)
    assert any(p.severity == "broken" and "seq 3 stands in two tables" in p.what for p in ledger.problems)


def test_a_row_where_its_chain_says_there_is_none_is_broken_evidence(tmp_path):
    sealed(tmp_path)
    ledger = edited(tmp_path, "requests", 9, prev=1)  # 8 lies between
    assert [p.what for p in ledger.problems] == [
        "decode-0 epoch 1: requests seq 9 follows 1 by its own word, yet 8 lies between"
    ]
    assert [(g.table, g.after_seq, g.before_seq) for g in ledger.gaps] == [("requests", 8, 9)]


@pytest.mark.parametrize(("columns", "words"), [({"epoch": 2}, "another epoch"), ({"seq": None}, "without a place")])
def test_rows_that_are_not_their_files_are_not_read(tmp_path, columns, words):
    sealed(tmp_path)
    ledger = edited(tmp_path, "requests", 1, **columns)
    assert [p.severity for p in ledger.problems] == ["broken"] and words in ledger.problems[0].what
    assert ledger.tables["requests"].num_rows == 0
    assert {(g.table, g.reason) for g in ledger.gaps} == {("requests", "corrupt segment")}


def test_a_peer_that_saw_more_than_the_close_tells_is_broken_evidence(tmp_path):
    sealed(tmp_path)
    peer = recorder(tmp_path, "prefill-0", ordinal=2)
    peer.heartbeat("decode-0", 1, 25, 0, 5)
    peer.heartbeat(None, None, None, None, 5)
    peer.flush()
    ledger = read_ledger(tmp_path)
    assert ledger.problems == ()
    assert [w.peer_seen_seq for w in ledger.writers] == [25, None]
    peer.heartbeat("decode-0", 1, 26, 0, 5)
    peer.close()
    assert [p.severity for p in read_ledger(tmp_path).problems] == ["broken"]


def test_gaps_name_the_segment_that_is_gone_and_the_times_around(tmp_path):
    whole = sealed(tmp_path)
    next((tmp_path / "steps").rglob("*.parquet")).unlink()
    (gap,) = read_ledger(tmp_path).gaps
    assert (gap.table, gap.after_seq, gap.before_seq, gap.reason) == ("steps", 0, 23, "missing segment")
    times = dict(zip(*(whole.tables["pages"][name].cast(pa.int64()).to_pylist() for name in ("seq", "t")), strict=True))
    assert (gap.after_t, gap.before_t) == (None, times[23])


def test_without_verify_a_changed_page_is_still_found_by_its_checksum(tmp_path):
    sealed(tmp_path)
    victim = next((tmp_path / "requests").rglob("*.parquet"))
    with pq.ParquetFile(victim) as file:
        column = file.metadata.row_group(0).column(1)
    last_byte = column.data_page_offset + column.total_compressed_size - 1
    data = bytearray(victim.read_bytes())
    data[last_byte] ^= 1
    victim.write_bytes(data)
    for verify in (True, False):
        ledger = read_ledger(tmp_path, verify=verify)
        assert [p.kind for p in ledger.problems] == ["corrupt segment"]
    assert "SHA-256" not in ledger.problems[0].what


def test_a_manifest_that_points_outside_or_at_another_worker_is_broken(tmp_path):
    sealed(tmp_path / "a")
    manifest = tmp_path / "a" / "manifest" / "decode-0.jsonl"
    manifest.rename(manifest.with_name("prefill-0.jsonl"))
    assert {p.severity for p in read_ledger(tmp_path / "a").problems} == {"broken", "loss"}
    sealed(tmp_path / "b")
    manifest = tmp_path / "b" / "manifest" / "decode-0.jsonl"
    manifest.write_text(manifest.read_text().replace('"path": "pages/', '"path": "../a/pages/'))
    ledger = read_ledger(tmp_path / "b")
    assert any("no segment of a table" in p.what for p in ledger.problems)
    assert ledger.tables["pages"].num_rows == 0


def test_a_stream_under_another_name_is_not_read(tmp_path):
    rec = recorder(tmp_path)
    busy_life(rec, 1)
    rec.flush()
    rec._stream.close()
    (tmp_path / "wal" / "decode-0-1.wal").rename(tmp_path / "wal" / "decode-1-1.wal")
    ledger = read_ledger(tmp_path)
    assert seqs(ledger) == [] and "broken" in {p.severity for p in ledger.problems}


def test_old_versions_are_mapped_when_read_and_unknown_columns_kept(tmp_path, monkeypatch):
    sealed(tmp_path)
    monkeypatch.setattr(versions, "SCHEMA_VERSION", 2)
    doubled = {1: lambda table, rows: rows.append_column("table_name", pa.array([table] * rows.num_rows))}
    monkeypatch.setattr(versions, "MAPPINGS", doubled)
    ledger = read_ledger(tmp_path)
    assert ledger.problems == ()
    assert ledger.tables["steps"].column_names == ["worker", *TABLES["steps"].names, "table_name"]
    assert set(ledger.tables["steps"]["table_name"].to_pylist()) == {"steps"}


def test_an_empty_but_valid_ledger_is_read(tmp_path):
    rec = recorder(tmp_path)
    ledger = read_ledger(tmp_path)
    assert seqs(ledger) == [] and [w.state for w in ledger.writers] == ["open"]
    assert {name: table.schema.names for name, table in ledger.tables.items()} == {
        name: ["worker", *schema.names] for name, schema in TABLES.items()
    }
    rec.close()
    assert seqs(read_ledger(tmp_path)) == [1]


@pytest.mark.parametrize("make", ["nothing", "file", "empty", "other"])
def test_what_is_no_ledger_is_refused_with_words(tmp_path, make):
    path = tmp_path / "x"
    if make == "file":
        path.write_text("hello")
    elif make != "nothing":
        path.mkdir()
        if make == "other":
            (path / "notes").mkdir()
    with pytest.raises(LedgerError, match=str(path)):
        read_ledger(path)


def naive_expansion(rows):
    """expand_pages, row by row."""
    from engine.ledger.fingerprint import fingerprint

    held = {(r["worker"], r["epoch"], r["seq"]): r["pages"] for r in rows if r["pages"] is not None}
    expanded = []
    for r in rows:
        pages = r["pages"]
        if pages is None and r["ref_seq"] is not None:
            part = (held.get((r["worker"], r["epoch"], r["ref_seq"])) or [])[r["ref_off"] : r["ref_off"] + r["n"]]
            if len(part) == r["n"] and fingerprint(np.array(part, np.int32), r["tag"]) == r["fingerprint"]:
                pages = part
        expanded.append(pages)
    return expanded


@settings(max_examples=30, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 30), st.integers(0, 10))
def test_expanding_many_rows_at_once_is_expanding_each(tmp_path_factory, random, operations, lost):
    directory = tmp_path_factory.mktemp("ledger")
    for worker, ordinal in (("decode-0", 1), ("prefill-0", 2)):
        rec, tags = recorder(directory, worker, ordinal=ordinal), {}
        for _ in range(operations):
            if not tags or random.random() < 0.3:
                pages = np.array(random.sample(range(100), random.randrange(1, 9)), np.int32)
                tags[rec.reserve("kv", 1, pages)] = pages
            tag = random.choice(list(tags))
            start = random.randrange(len(tags[tag]))
            used = tags[tag][start : start + random.randrange(0, 5)]
            rec.pages(random.choice(["bind", "free"]), "kv", 1, tag, used[::-1] if random.random() < 0.2 else used)
        rec.flush()
    rows = read_ledger(directory).tables["pages"]
    order = list(range(rows.num_rows))
    random.shuffle(order)
    rows = rows.take(order[: max(1, len(order) - lost)])
    expanded = expand_pages(rows)
    assert expanded["pages"].to_pylist() == naive_expansion(rows.to_pylist())
    assert expanded.drop_columns(["pages"]) == rows.drop_columns(["pages"])


def test_expanding_an_empty_table(tmp_path):
    recorder(tmp_path)
    assert expand_pages(read_ledger(tmp_path).tables["pages"]).num_rows == 0
