"""Of a worker that others name and that left no file nothing is known: neither what it wrote nor what it read."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from ledger_surgery import Surgery, responses
from site_ledger import Handoff, Side, Site

from engine.ledger.manifest import append_lines, manifest_path, read_manifest
from engine.ledger.reader import Ledger, read_ledger
from forensics.results import EXIT_UNKNOWN, exit_code

WRITER = "prefill-1"


def late_write(directory: Path, *, names_writers: bool = True, restarted: bool = False) -> None:
    """`donor` is given up, and what WRITER sends it late comes to pages that are `victim`'s by then."""
    site = Site(directory, "gateway-0", "prefill-0", "decode-0", WRITER)
    record = site.decode.rec.record

    def silent(table: str, op: str, **columns: Any) -> int:
        if op == "grant" and not names_writers:
            columns.pop("writers")
        return record(table, op, **columns)

    site.decode.rec.record = silent  # type: ignore[method-assign]
    donor = Handoff(site, "donor", {"kv": [1, 2]}, {"kv": [21, 22]}, tenant="t-donor", src=WRITER)
    donor.grant()
    donor.compute()
    donor.abort()
    victim = Handoff(site, "victim", {"kv": [1, 2]}, {"kv": [11, 12]}, tenant="t-victim")
    victim.grant()
    victim.compute()
    victim.send()
    victim.ack()
    victim.free_source()
    victim.commit()
    site.decode.run()
    site.beat()
    donor.send()
    donor.ack()
    donor.free_source()
    site.beat()
    site.decode.run()
    victim.finish(2)
    if restarted:
        site[WRITER].rec.close()
        site.sides[WRITER] = Side(site, WRITER, 3)
        site[WRITER].pool("kv")
    site.close()
    assert verdict(read_ledger(directory)) == "contaminated"


def lose(directory: Path, worker: str, epoch: int | None = None) -> None:
    """Every trace in files of a worker, or of one epoch of it and its counter."""
    for path in directory.rglob(f"worker={worker}/*.parquet"):
        if epoch is None or path.name.startswith(f"{epoch}-"):
            path.unlink()
    (directory / "epochs" / worker).unlink()
    path = manifest_path(directory, worker)
    kept = [line for line in read_manifest(path).lines if epoch is not None and line.epoch != epoch]
    path.unlink()
    if kept:
        append_lines(directory, worker, kept)


def verdict(ledger: Ledger) -> str:
    """The victim's, which must not be exit code 0 where it is not known."""
    reads, found = responses(ledger, "both")
    said: str = found["victim"]["verdict"]
    assert said != "unknown" or exit_code(ledger, reads, False) == EXIT_UNKNOWN
    return said


@pytest.mark.parametrize("names_writers", [True, False])
def test_a_writer_that_left_no_file_may_have_written(tmp_path: Path, names_writers: bool) -> None:
    late_write(tmp_path / "ledger", names_writers=names_writers)
    lose(tmp_path / "ledger", WRITER)
    ledger = read_ledger(tmp_path / "ledger")
    assert verdict(ledger) == "unknown"
    surgery = Surgery(ledger)
    (grant, *_) = [place for place in surgery.places() if surgery.row(place)["op"] == "grant"]
    assert verdict(surgery.without(grant)) == "unknown"


def test_readers_that_left_no_file_may_have_read_anything(tmp_path: Path) -> None:
    late_write(tmp_path / "ledger")
    for worker in ("decode-0", "gateway-0"):
        lose(tmp_path / "ledger", worker)
    assert verdict(read_ledger(tmp_path / "ledger")) == "unknown"


def test_an_epoch_that_left_no_file_is_not_its_successor(tmp_path: Path) -> None:
    late_write(tmp_path / "ledger", restarted=True)
    without_beats = Path(shutil.copytree(tmp_path / "ledger", tmp_path / "copy"))
    lose(tmp_path / "ledger", WRITER, epoch=1)
    assert verdict(read_ledger(tmp_path / "ledger")) == "unknown"
    lose(without_beats, WRITER, epoch=2)  # the last one is not told by any that is there, but by heartbeats
    assert verdict(read_ledger(without_beats)) == "unknown"
    assert [problem.kind for problem in read_ledger(without_beats).problems] == ["missing epoch"]
