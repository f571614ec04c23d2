"""Which chain a lost row hits, and when an end is known."""

import json

import pytest
from ledger_writing import busy_life, recorder, rewrite_segments

from engine.ledger.manifest import manifest_path
from engine.ledger.reader import read_ledger
from engine.ledger.schema import POOL_TABLES


def sealed(tmp_path, **options):
    rec = recorder(tmp_path, **options)
    busy_life(rec, 3)
    rec.close()
    return read_ledger(tmp_path)


def rewrite(tmp_path, keep):
    """The same segments with only the rows that `keep` wants."""
    rewrite_segments(tmp_path, lambda name, rows: rows.filter([keep(name, row) for row in rows.to_pylist()]))


def rows_by_seq(ledger):
    return {row["seq"]: (name, row) for name, table in ledger.tables.items() for row in table.to_pylist()}


def test_a_closed_ledger_has_no_gap(tmp_path):
    ledger = sealed(tmp_path)
    assert ledger.gaps == () and ledger.problems == ()
    assert ledger.writers[0].state == "sealed"


@pytest.mark.parametrize("seq", range(1, 25))
def test_one_lost_row_breaks_one_chain(tmp_path, seq):
    whole = rows_by_seq(sealed(tmp_path))
    table, row = whole[seq]
    rewrite(tmp_path, lambda _, r: r["seq"] != seq)
    ledger = read_ledger(tmp_path)
    pool = row.get("pool") if table in POOL_TABLES else None
    chain = [s for s, (t, r) in whole.items() if t == table and (r.get("pool") if t in POOL_TABLES else None) == pool]
    after = max((s for s in chain if s < seq), default=0)
    before = min((s for s in chain if s > seq), default=seq + 1)
    assert [(g.table, g.pool, g.after_seq, g.before_seq) for g in ledger.gaps] == [(table, pool, after, before)]


def test_a_lost_close_leaves_the_ends_to_the_manifest(tmp_path):
    sealed(tmp_path)
    rewrite(tmp_path, lambda table, r: r["op"] != "close")
    ledger = read_ledger(tmp_path)
    assert [(g.table, g.after_seq, g.before_seq) for g in ledger.gaps] == [("workers", 0, 26)]


def test_a_deleted_segment_is_a_problem_and_a_gap(tmp_path):
    ledger = sealed(tmp_path)
    victim = next((tmp_path / "pages").rglob("*.parquet"))
    victim.unlink()
    ledger = read_ledger(tmp_path)
    assert [p.kind for p in ledger.problems] == ["missing segment"]
    assert str(victim) in ledger.problems[0].where
    assert {(g.table, g.pool) for g in ledger.gaps} == {("pages", "kv")}
    assert ledger.tables["pages"].num_rows == 0


@pytest.mark.parametrize("damage", ["truncate", "flip", "empty"])
def test_a_damaged_segment_is_left_out_and_told(tmp_path, damage):
    sealed(tmp_path)
    victim = next((tmp_path / "requests").rglob("*.parquet"))
    data = bytearray(victim.read_bytes())
    if damage == "flip":
        data[len(data) // 2] ^= 4
    victim.write_bytes(b"" if damage == "empty" else data[: len(data) // 2] if damage == "truncate" else bytes(data))
    ledger = read_ledger(tmp_path)
    assert [p.kind for p in ledger.problems] == ["corrupt segment"]
    assert {g.table for g in ledger.gaps} == {"requests"}
    assert ledger.tables["pages"].num_rows == 9


def test_a_changed_removed_or_moved_manifest_line_breaks_the_chain(tmp_path):
    sealed(tmp_path)
    path = manifest_path(tmp_path, "decode-0")
    lines = path.read_text().splitlines(keepends=True)
    changed = json.loads(lines[1])
    changed["rows"] += 1
    for damaged in (
        [lines[0], json.dumps(changed, sort_keys=True) + "\n", *lines[2:]],
        [lines[0], *lines[2:]],
        lines[::-1],
    ):
        path.write_text("".join(damaged))
        assert any(p.severity == "broken" for p in read_ledger(tmp_path).problems)


def test_a_removed_manifest_tail_leaves_orphans_and_an_open_end(tmp_path):
    sealed(tmp_path)
    path = manifest_path(tmp_path, "decode-0")
    path.write_text(path.read_text().splitlines(keepends=True)[0])
    ledger = read_ledger(tmp_path)
    assert {p.kind for p in ledger.problems} == {"orphan"}
    assert ledger.tables["pages"].num_rows == 0
    assert {(g.table, g.pool) for g in ledger.gaps} >= {("pages", "kv"), ("requests", None), ("gauges", "index")}


def test_a_vanished_epoch_is_told(tmp_path):
    rec = recorder(tmp_path)
    busy_life(rec, 1)
    rec.close()
    second = recorder(tmp_path)
    busy_life(second, 1)
    second.flush()
    second._stream.close()
    next((tmp_path / "wal").glob("*.wal")).unlink()
    ledger = read_ledger(tmp_path)
    assert [p.kind for p in ledger.problems] == ["missing epoch"]
    assert {(g.epoch, g.after_seq, g.before_seq) for g in ledger.gaps} == {(2, 0, None)}


def test_duplicates_are_one_row_and_contradictions_are_broken(tmp_path):
    rec = recorder(tmp_path)
    busy_life(rec, 2)
    rec.flush()
    stream = next((tmp_path / "wal").glob("*.wal"))
    kept = stream.read_bytes()
    rec.close()
    whole = {n: t.num_rows for n, t in read_ledger(tmp_path).tables.items()}
    stream.write_bytes(kept)  # as after a crash between the manifest line and the removal of the stream
    ledger = read_ledger(tmp_path)
    assert {n: t.num_rows for n, t in ledger.tables.items()} == whole
    assert ledger.problems == () and ledger.gaps == ()
    other = tmp_path / "other"
    different = recorder(other)
    different.record("requests", "receive", req=99, rid="someone else")
    different.flush()
    stream.write_bytes(next((other / "wal").glob("*.wal")).read_bytes())
    assert [p.severity for p in read_ledger(tmp_path).problems] == ["broken"]
