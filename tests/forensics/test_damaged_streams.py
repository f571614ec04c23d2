"""Damage to the stream of a worker that lives on is loss, not the open end of a record that goes on."""

from __future__ import annotations

from pathlib import Path

from ledger_surgery import responses
from site_ledger import Site

from engine.ledger.reader import read_ledger
from forensics.results import EXIT_FOUND, EXIT_UNKNOWN, exit_code


def test_what_a_living_worker_wrote_behind_damage_is_lost(tmp_path: Path) -> None:
    site = Site(tmp_path / "ledger", "decode-0")
    decode, stream = site.decode, tmp_path / "ledger" / "wal" / "decode-0-1.wal"
    other = decode.receive("other", "t-other")
    theirs = decode.fill("kv", other, [1])
    victim = decode.receive("victim", "t-victim")
    mine = decode.fill("kv", victim, [2], pos=0)
    decode.pages("bind", "kv", victim, mine, [2], pos=0, tokens=1)
    decode.run()
    decode.rec.flush()
    hole = stream.stat().st_size + 40
    decode.pages("bind", "kv", victim, theirs, [1], pos=1)
    decode.run()
    decode.run()
    decode.end(victim, 3)
    decode.end(other, 0)
    decode.rec.flush()
    whole = read_ledger(tmp_path / "ledger")
    reads, before = responses(whole, "both")
    assert before["victim"]["verdict"] == "contaminated" and exit_code(whole, reads, False) == EXIT_FOUND

    with stream.open("r+b") as file:
        file.seek(hole)
        (byte,) = file.read(1)
        file.seek(hole)
        file.write(bytes([byte ^ 1]))
    decode.receive("third")
    decode.rec.flush()
    damaged = read_ledger(tmp_path / "ledger")
    assert [writer.state for writer in damaged.writers] == ["dead"]
    assert {gap.reason for gap in damaged.gaps} == {"damaged stream"}
    reads, after = responses(damaged, "both")
    assert {row["verdict"] for row in after.values()} == {"unknown"}
    assert exit_code(damaged, reads, False) == EXIT_UNKNOWN


def test_a_file_that_does_not_hold_leaves_no_exit_code_of_0(tmp_path: Path) -> None:
    site = Site(tmp_path / "ledger", "decode-0")
    site.decode.end(site.decode.receive("one"))
    site.close()
    (tmp_path / "ledger" / "wal" / "decode-0-1.torn").write_bytes(b"")
    ledger = read_ledger(tmp_path / "ledger")
    reads, _ = responses(ledger)
    assert {row["verdict"] for row in reads.responses.to_pylist()} == {"clean"} and reads.unattributed == 0
    assert exit_code(ledger, reads, False) == EXIT_UNKNOWN
