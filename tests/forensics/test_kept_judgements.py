"""A judgement is kept between commands, and given out for the very rows and rules that it was made of alone."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner
from ledger_surgery import Surgery

import forensics.ask as ask_module
import forensics.kept_judgements as kept_module
from engine.ledger.reader import Ledger, read_ledger
from engine.ledger.recorder import Recorder
from forensics.cli import cli
from forensics.foreign_reads import EnginesDisagree, ForeignReads, foreign_reads
from forensics.kept_judgements import KeptJudgements, fingerprint, user_cache

LATE = Path(__file__).parents[2] / "sample_logs/classes/m03-late-write/ledger"


class Judging:
    """Counts how often a ledger is judged anew."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.times = directory, 0

    def __call__(self, ledger: Ledger, engine: str = "replay") -> ForeignReads:
        def anew() -> ForeignReads:
            self.times += 1
            return foreign_reads(ledger, engine="replay")

        return KeptJudgements(self.directory).judge(ledger, engine, anew)

    def files(self) -> list[Path]:
        return sorted(self.directory.iterdir())


@pytest.fixture
def judging(tmp_path):
    return Judging(tmp_path / "cache")


def test_the_same_rows_are_judged_once_and_with_the_same_result(judging):
    first, again = judging(read_ledger(LATE)), judging(read_ledger(LATE))
    assert judging.times == 1
    assert again.findings.equals(first.findings) and again.responses.equals(first.responses)
    assert (again.counts, again.unattributed) == (first.counts, first.unattributed)
    assert [type(verdict) for verdict in again.counts] == [type(verdict) for verdict in first.counts]
    (kept,) = judging.files()
    assert (kept.stat().st_mode & 0o777, judging.directory.stat().st_mode & 0o777) == (0o600, 0o700)


def test_a_ledger_of_which_anything_differs_is_judged_anew(judging):
    ledger = read_ledger(LATE)
    surgery = Surgery(ledger)
    for number, place in enumerate(list(surgery.places())[::40]):
        judging(surgery.without(place))
        assert judging.times == number + 1
    rows = ledger.tables["requests"]
    tokens = rows["output_tokens"].to_pylist()
    at = next(i for i, value in enumerate(tokens) if value)
    tokens[at] += 1
    changed = rows.set_column(
        rows.column_names.index("output_tokens"), "output_tokens", pa.array(tokens, rows["output_tokens"].type)
    )
    other = Ledger(ledger.path, ledger.tables | {"requests": changed}, ledger.writers, ledger.gaps, ledger.problems)
    assert fingerprint(other) != fingerprint(ledger)


def test_another_engine_and_other_rules_judge_anew(judging, monkeypatch):
    ledger = read_ledger(LATE)
    judging(ledger, "replay")
    judging(ledger, "duckdb")
    assert judging.times == 2
    monkeypatch.setattr(kept_module, "RULES", "other rules")
    judging(ledger, "replay")
    assert judging.times == 3
    assert len(judging.files()) == 2  # the text on disk is not what judged: nothing of it is kept


def test_what_both_engines_agreed_on_is_the_judgement_of_each(judging):
    ledger = read_ledger(LATE)
    for engine in ("both", "duckdb", "replay"):
        judging(ledger, engine)
    assert judging.times == 1


@pytest.mark.parametrize("damage", [b"", b"{}\n", None, b"\xff" * 100])
def test_a_kept_judgement_that_does_not_hold_is_made_anew(judging, damage):
    first = judging(read_ledger(LATE))
    (kept,) = judging.files()
    whole = kept.read_bytes()
    kept.write_bytes(whole[:-20] + bytes(20) if damage is None else damage)
    assert judging(read_ledger(LATE)).responses.equals(first.responses)
    assert judging.times == 2
    assert kept.read_bytes() == whole


def test_what_is_still_written_is_not_kept(judging, tmp_path):
    rec = Recorder(
        tmp_path / "ledger", "decode-0", ordinal=1, now_us=lambda: 1_790_000_000_000_000, digest_key=b"kept", threaded=False
    )  # fmt: skip
    rec.record("workers", "start", role="decode", ordinal=1)
    rec.flush()
    for _ in range(2):
        judging(read_ledger(tmp_path / "ledger"))
    assert judging.times == 2
    assert not judging.directory.exists()
    rec.close()
    for _ in range(2):
        judging(read_ledger(tmp_path / "ledger"))
    assert judging.times == 3


def test_nothing_is_kept_beside_the_evidence_or_where_nothing_can_be(tmp_path):
    ledger = Path(shutil.copytree(LATE, tmp_path / "ledger"))
    before = sorted(ledger.rglob("*"))
    for place in (ledger / "cache", tmp_path / "file" / "cache"):
        (tmp_path / "file").touch()
        judging = Judging(place)
        for _ in range(2):
            judging(read_ledger(ledger))
        assert judging.times == 2
    assert sorted(ledger.rglob("*")) == before


def test_the_one_not_asked_for_the_longest_goes_first(judging, monkeypatch):
    monkeypatch.setattr(kept_module, "MOST", 2)
    ledger = read_ledger(LATE)
    for age, engine in enumerate(("duckdb", "replay")):
        judging(ledger, engine)
        os.utime(judging.directory / f"{fingerprint(ledger)}-{engine}.judgement", (age, age))
    judging(ledger, "duckdb")
    judging(ledger, "both")
    assert judging.times == 3
    assert {path.stem for path in judging.files()} == {
        f"{fingerprint(ledger)}-{engine}" for engine in ("duckdb", "both")
    }


def test_commands_of_one_ledger_judge_it_once_unless_they_are_asked_to(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def run(*arguments: str) -> tuple[int, str]:
        done = CliRunner().invoke(cli, [*arguments, "--ledger", str(LATE)])
        return done.exit_code, done.output

    commands = (("query", "contaminated-responses"), ("query", "foreign-reads"), ("explain", "victim"))
    first = [run(*command, "--anew") for command in commands]
    assert not (tmp_path / "kvwitness").exists()
    run(*commands[0])

    def disagree(*_, **__):
        raise EnginesDisagree("judged again")

    monkeypatch.setattr(ask_module, "foreign_reads", disagree)
    assert [run(*command) for command in commands] == first
    assert [run(*command, "--anew")[0] for command in commands] == [3, 3, 3]


def test_where_it_is_kept():
    assert user_cache({"XDG_CACHE_HOME": "/c"}) == Path("/c/kvwitness")
    assert user_cache({"XDG_CACHE_HOME": "relative", "HOME": "/h"}) == Path("/h/.cache/kvwitness")
