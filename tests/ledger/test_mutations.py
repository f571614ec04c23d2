"""Files that were tampered with, or that claim to be what they are not: each is refused or told before any row of it is used."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import ipc

from engine.ledger import bounded
from engine.ledger.bounded import TooLarge, read_batch, read_segment
from engine.ledger.reader import read_ledger

SAMPLE = Path(__file__).parents[2] / "sample_logs" / "classes" / "m03-late-write" / "ledger"
SEED = 40


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    return Path(shutil.copytree(SAMPLE, tmp_path / "ledger"))


def segments(ledger: Path) -> list[Path]:
    return sorted(ledger.rglob("*.parquet"))


def cut(data: bytes, at: float) -> bytes:
    return data[: int(len(data) * at)]


def flipped(data: bytes, at: float) -> bytes:
    place = int(len(data) * at)
    return data[:place] + bytes([data[place] ^ 0x10]) + data[place + 1 :]


MUTATIONS = (
    [(f"cut at {at:.0%}", lambda data, at=at: cut(data, at)) for at in np.linspace(0, 0.99, 12)]
    + [(f"bit at {at:.0%}", lambda data, at=at: flipped(data, at)) for at in np.linspace(0, 0.999, 20)]
    + [
        ("empty", lambda data: b""),
        ("zeros", lambda data: bytes(len(data))),
        ("twice", lambda data: data + data),
        ("backwards", lambda data: data[::-1]),
        ("a tail more", lambda data: data + b"PAR1"),
        ("text", lambda data: b"these are no rows\n" * 100),
        ("a footer alone", lambda data: data[-200:]),
        ("no magic", lambda data: data[4:]),
    ]
)


@pytest.mark.parametrize(("name", "mutate"), MUTATIONS, ids=[name for name, _ in MUTATIONS])
def test_a_mutated_segment_is_told_and_none_of_its_rows_used(ledger: Path, name: str, mutate):
    rng = np.random.default_rng(SEED)
    victim = segments(ledger)[int(rng.integers(len(segments(ledger))))]
    before = read_ledger(ledger)
    table = victim.relative_to(ledger).parts[0]
    rows = pq.ParquetFile(victim).metadata.num_rows
    victim.write_bytes(mutate(victim.read_bytes()))
    after = read_ledger(ledger)
    assert [problem.kind for problem in after.problems] == ["corrupt segment"]
    assert str(victim) in after.problems[0].where
    assert len(after.tables[table]) == len(before.tables[table]) - rows
    assert after.gaps


def relisted(ledger: Path, victim: Path, data: bytes, rows: int) -> None:
    """Put `data` in place of a segment and vouch for it in the manifest, as who tampers with both would."""
    victim.write_bytes(data)
    name = str(victim.relative_to(ledger))
    for manifest in (ledger / "manifest").glob("*.jsonl"):
        lines = []
        for line in map(json.loads, manifest.read_text().splitlines()):
            if line["path"] == name:
                line["sha256"], line["rows"] = hashlib.sha256(data).hexdigest(), rows
            lines.append(line)
        manifest.write_text("".join(json.dumps(line) + "\n" for line in lines))


def large_texts(columns: pa.Schema) -> tuple[bytes, int]:
    """A file of a few MB whose texts are 50 GB: one text of 5 MB, named by 10,000 rows."""
    rows = 10_000
    text = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array(["x" * 5_000_000]))
    arrays = [
        text if pa.types.is_string(field.type) and field.name == "status" else pa.nulls(rows, field.type)
        for field in columns
    ]
    sink = io.BytesIO()
    table = pa.table(dict(zip(columns.names, arrays, strict=True)))
    pq.write_table(
        table, sink, compression="none", write_page_checksum=True, dictionary_pagesize_limit=1 << 30, store_schema=False
    )
    return sink.getvalue(), rows


def test_a_file_of_5_mb_that_holds_50_gb_is_refused():
    schema = pa.schema([("seq", pa.int64()), ("status", pa.string())])
    data, _ = large_texts(schema)
    assert 4_000_000 < len(data) < 6_000_000
    with pytest.raises(TooLarge, match="50,000,000,000 bytes"):
        read_segment(data)


def test_such_a_file_in_a_ledger_is_told(ledger: Path):
    victim = next(path for path in segments(ledger) if path.relative_to(ledger).parts[0] == "requests")
    data, rows = large_texts(pq.read_schema(victim))
    relisted(ledger, victim, data, rows)
    after = read_ledger(ledger)
    assert any("its texts are 50,000,000,000 bytes" in problem.what for problem in after.problems)


def test_more_values_than_fit_are_refused_by_what_the_footer_says(monkeypatch):
    sink = io.BytesIO()
    pq.write_table(pa.table({"seq": np.zeros(1_000_000, np.int64)}), sink)
    monkeypatch.setattr(bounded, "MOST_BYTES", 1_000_000)
    with pytest.raises(TooLarge, match="it claims 8,000,000 bytes"):
        read_segment(sink.getvalue())


def test_texts_come_back_as_they_were():
    table = pa.table({"op": ["a", None, "b", "a"], "n": [1, 2, None, 4], "writers": [["x"], None, [], ["y", "z"]]})
    sink = io.BytesIO()
    pq.write_table(table, sink, write_page_checksum=True)
    assert read_segment(sink.getvalue()).equals(table)


def test_a_compressed_batch_in_a_stream_is_refused():
    batch = pa.record_batch({"seq": np.zeros(100_000, np.int64)})
    for compression in (None, "zstd", "lz4"):
        sink = io.BytesIO()
        with ipc.new_stream(sink, batch.schema, options=ipc.IpcWriteOptions(compression=compression)) as writer:
            writer.write_batch(batch)
        if compression is None:
            assert read_batch(sink.getvalue()).equals(batch)
        else:
            with pytest.raises(TooLarge, match="compressed"):
                read_batch(sink.getvalue())


def superscript(ledger: Path) -> None:
    (ledger / "epochs" / "decode-0").write_text("²\n", encoding="utf-8")


def directory_for_an_epoch(ledger: Path) -> None:
    (ledger / "epochs" / "decode-9").mkdir()


def nested(ledger: Path) -> None:
    path = ledger / "manifest" / "decode-0.jsonl"
    path.write_text(path.read_text() + "[" * 100_000 + "\n")


def beyond_a_seq(ledger: Path) -> None:
    path = ledger / "manifest" / "decode-0.jsonl"
    lines = path.read_text().splitlines()
    first = json.loads(lines[0])
    first["chains"] = dict.fromkeys(first["chains"], 10**30)
    path.write_text("\n".join([json.dumps(first), *lines[1:]]) + "\n")


def superscript_stream(ledger: Path) -> None:
    (ledger / "wal").mkdir(exist_ok=True)
    (ledger / "wal" / "x-².wal").write_bytes(b"no stream")


@pytest.mark.parametrize("change", [superscript, directory_for_an_epoch, nested, beyond_a_seq, superscript_stream])
def test_a_file_beside_the_segments_that_is_none_never_stops_a_reading(ledger: Path, change):
    whole = read_ledger(ledger)
    change(ledger)
    read = read_ledger(ledger)
    assert change in (superscript, directory_for_an_epoch) or read.problems
    assert read.tables["requests"].num_rows <= whole.tables["requests"].num_rows
