"""The laws of the contract on whole ledgers: lost rows, shifted clocks, duplicates, compaction, both engines."""

from __future__ import annotations

import hashlib
import shutil
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "console"))
from ledger_surgery import Surgery, assert_loss_only_unsettles
from scripted_ledger import ACME, BRIO, Scene, incident_scene, late_write, ordinary, short_handoff

from engine.ledger.manifest import append_lines, manifest_path, read_manifest
from engine.ledger.reader import read_ledger
from engine.ledger.schema import TABLES
from forensics.foreign_reads import foreign_reads

WORKERS = ("gateway-0", "prefill-0", "decode-0")


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("laws") / "ledger"
    incident_scene(directory).close()
    return directory


def verdicts(directory: Path, engine: str = "replay") -> dict[str, dict]:
    return {row["rid"]: row for row in foreign_reads(read_ledger(directory), engine=engine).responses.to_pylist()}


def rewrite(directory: Path, worker: str, change) -> None:
    """Rewrite a worker's segments row by row (None drops a row) under a manifest that fits them."""
    path = manifest_path(directory, worker)
    lines = list(read_manifest(path).lines)
    path.unlink()
    again = []
    for line in lines:
        file = directory / line.path
        table = pq.read_table(file, partitioning=None)
        rows = [changed for row in table.to_pylist() if (changed := change(line.table, row)) is not None]
        pq.write_table(pa.Table.from_pylist(rows, table.schema), file, write_page_checksum=True)
        again.append(line.__class__(**{**vars(line), "sha256": hashlib.sha256(file.read_bytes()).hexdigest()}))
    append_lines(directory, worker, again)


def test_the_scene_holds_both_faults_proved(sealed: Path):
    found = {rid: (r["verdict"], r["mechanism"]) for rid, r in verdicts(sealed, "both").items()}
    assert ("contaminated", "M1") in found.values() and ("contaminated", "M3") in found.values()
    assert sum(verdict == "clean" for verdict, _ in found.values()) >= 2


def test_a_lost_row_moves_verdicts_to_unknown_only(sealed: Path):
    assert all(row["verdict"] != "exposed" for row in verdicts(sealed).values())  # for those the law has an exception
    assert assert_loss_only_unsettles(read_ledger(sealed)) > 0


def test_rows_lost_from_files_are_the_gaps_of_rows_taken_from_what_was_read(sealed: Path, tmp_path: Path):
    surgery = Surgery(read_ledger(sealed))
    for worker, table, seq in [*surgery.places()][::10]:
        copy = Path(shutil.copytree(sealed, tmp_path / f"{worker}-{seq}"))
        rewrite(copy, worker, lambda name, row, t=table, s=seq: None if (name, row["seq"]) == (t, s) else row)
        left, read = surgery.without((worker, table, seq)), read_ledger(copy)
        assert read.gaps
        assert set(read.gaps) == set(left.gaps)
        assert all(read.tables[name].equals(left.tables[name]) for name in TABLES)


def test_a_lost_worker_leaves_nothing_clean_that_it_served(sealed: Path, tmp_path: Path):
    whole = verdicts(sealed)
    for worker in ("prefill-0", "decode-0"):
        copy = Path(shutil.copytree(sealed, tmp_path / worker))
        for path in (*copy.rglob(f"*worker={worker}"), *copy.glob(f"*/{worker}*")):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        now = verdicts(copy, "both")
        for rid, before in whole.items():
            if before["status"] == "200":
                assert now[rid]["verdict"] == "unknown", (worker, now[rid])


@pytest.mark.parametrize("worker", ["prefill-0", "decode-0"])
@pytest.mark.parametrize("seconds", [-5, 5])
def test_shifted_clocks_move_no_proved_verdict(sealed: Path, tmp_path: Path, worker: str, seconds: int):
    from datetime import timedelta

    shift = timedelta(seconds=seconds)

    def moved(_, row):
        times = {k: row[k] + shift for k in ("t", "t_end", "last_token", "deadline") if row.get(k) is not None}
        return row | times

    whole = verdicts(sealed)
    copy = Path(shutil.copytree(sealed, tmp_path / "copy"))
    rewrite(copy, worker, moved)
    now = verdicts(copy, "both")
    assert now.keys() == whole.keys()
    for rid, before in whole.items():
        if before["proof"] == "proved":
            assert (now[rid]["verdict"], now[rid]["donors"], now[rid]["pages"]) == (
                before["verdict"], before["donors"], before["pages"],
            )  # fmt: skip
        else:
            assert now[rid]["verdict"] in (before["verdict"], "unknown")


def test_duplicates_and_file_order_move_nothing(sealed: Path, tmp_path: Path):
    copy = Path(shutil.copytree(sealed, tmp_path / "copy"))
    # Every segment listed twice, the second time in reverse: the same rows under another file order.
    for worker in WORKERS:
        lines = list(read_manifest(manifest_path(copy, worker)).lines)
        append_lines(copy, worker, lines[::-1])
    one, other = foreign_reads(read_ledger(sealed)), foreign_reads(read_ledger(copy))
    assert one.findings.equals(other.findings) and one.responses.equals(other.responses)


def test_compaction_moves_nothing(tmp_path: Path):
    """The same scene read from open streams and from sealed segments."""
    scene = incident_scene(tmp_path / "ledger")
    scene.flush()
    live = foreign_reads(read_ledger(tmp_path / "ledger"))
    scene.close()
    sealed = foreign_reads(read_ledger(tmp_path / "ledger"))
    assert [r["verdict"] for r in live.responses.to_pylist()] == [r["verdict"] for r in sealed.responses.to_pylist()]
    assert live.findings.equals(sealed.findings)


def test_each_fault_alone(tmp_path: Path):
    for fault, mechanism in ((short_handoff, "M1"), (late_write, "M3")):
        scene = Scene(tmp_path / mechanism)
        ordinary(scene, "before", ACME, 1, 6)
        if fault is short_handoff:
            short_handoff(scene, "victim", BRIO, 1, 6)
        else:
            late_write(scene, "donor", "victim", (ACME, BRIO), 30)
        scene.close()
        found = verdicts(tmp_path / mechanism, "both")
        assert found["victim"]["verdict"] == "contaminated" and found["victim"]["mechanism"] == mechanism
        assert found["victim"]["donors"] == (["before"] if mechanism == "M1" else ["donor"])
        assert found["before"]["verdict"] == "clean"
