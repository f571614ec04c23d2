"""The commands round the library: explain, diff, parameters, limits, provenance, and what is said of wrong usage."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from forensics.catalogue import load_queries
from forensics.cli import cli
from forensics.library_page import markdown_page
from forensics.pseudonyms import NAMED

SAMPLES = Path(__file__).parents[2] / "sample_logs"
LATE, LEAK, CLEAN = (
    str(SAMPLES / "classes" / name / "ledger") for name in ("m03-late-write", "m09-leak", "m10-slow-drain")
)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, list(arguments))


def test_explain_leads_in_with_the_verdict_and_marks_the_row():
    done = run("explain", "victim", "--ledger", LATE, "--engine", "duckdb")
    assert done.exit_code == 1
    assert done.stderr.startswith(
        "victim is contaminated (proved), by M3, content of donor in 14 pages, from step 29 to 41"
    )
    assert [line.split()[1] for line in done.stdout.splitlines()[1:] if ">>" in line] == [">>"]
    told = json.loads(run("explain", "victim", "--ledger", LATE, "--engine", "duckdb", "--format", "json").stdout)
    assert told["response"]["donors"] == ["donor"]
    assert [row["op"] for row in told["rows"] if row["mark"] == ">>"] == ["done"]


def test_explain_of_a_clean_response_and_of_none():
    done = run("explain", "after", "--ledger", LATE, "--engine", "duckdb")
    assert (done.exit_code, done.stderr.splitlines()[0]) == (0, "after is clean (proved)")
    done = run("explain", "nobody", "--ledger", LATE)
    assert "no response 'nobody'" in done.output
    assert done.exit_code != 0


def test_every_result_carries_where_it_comes_from():
    told = json.loads(run("query", "leaks", "--ledger", LEAK, "-p", "after=2s", "--format", "json").stdout)
    assert (told["query"], told["query_version"], told["parameters"]) == ("leaks", 1, {"after": "2s"})
    assert len(told["sql_sha256"]) == 64 and told["schema_version"] == 1
    assert told["files"] == {"read": len(list(Path(LEAK).rglob("*.parquet")))}
    assert set(told["manifest_roots"]) == {"decode-0", "gateway", "prefill-0"}
    assert (told["gaps"], told["problems"], told["rows_counted"]) == (0, [], 1)


def test_a_file_that_does_not_hold_is_counted(tmp_path: Path):
    import shutil

    ledger = Path(shutil.copytree(LEAK, tmp_path / "ledger"))
    segment = next((ledger / "gauges").rglob("*decode-0/*.parquet"), None) or next(
        (ledger / "gauges").rglob("*.parquet")
    )
    segment.write_bytes(segment.read_bytes()[:-10])
    done = run("query", "coverage", "--ledger", str(ledger), "--format", "json")
    told = json.loads(done.stdout)
    assert told["files"]["corrupt"] == 1
    assert done.exit_code == 2


def test_two_results_are_compared(tmp_path: Path):
    one, other = tmp_path / "one.json", tmp_path / "other.json"
    run("query", "leaks", "--ledger", LEAK, "--format", "json", "-o", str(one))
    run("query", "leaks", "--ledger", CLEAN, "--format", "json", "-o", str(other))
    same = run("diff", str(one), str(one))
    assert (same.exit_code, same.stdout) == (0, "")
    done = run("diff", str(one), str(other))
    assert done.exit_code == 1
    assert done.stdout.startswith("- {") and '"rid": "leaks"' in done.stdout
    assert "manifest_roots" in done.stderr
    run("query", "coverage", "--ledger", LEAK, "--format", "json", "-o", str(other))
    done = run("diff", str(one), str(other))
    assert "results of leaks and of coverage" in done.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["query", "leaks", "-p", "x=1"], "leaks has no parameter x; it has: after"),
        (["query", "leaks", "-p", "after"], "write NAME=VALUE"),
        (["query", "leaks", "--from", "2026-01-01"], "leaks has no parameter from"),
        (["query", "page-life", "-p", "worker=decode-0"], "page-life needs page"),
        (["query", "page-life", "-p", "worker=decode-0", "-p", "page=one"], "page='one' is no integer; write it as 12"),
        (["query", "damage-over-time", "-p", "bucket=soon"], "bucket='soon' is no duration; write it as 1h30m"),
        (["query", "leeks"], "did you mean leaks"),
    ],
)
def test_wrong_parameters_are_refused_with_an_example(arguments: list[str], words: str):
    done = run(*arguments, "--ledger", LEAK)
    assert done.exit_code != 0
    assert words in done.output


def test_a_value_is_bound_and_never_spliced():
    done = run("query", "request-life", "--ledger", LEAK, "-p", "rid=x' OR 1=1 --", "--format", "json")
    assert json.loads(done.stdout)["rows"] == []


@pytest.mark.parametrize(
    ("limit", "words"), [("--timeout=0.005", "took longer than 0.005 s"), ("--memory=1MB", "needs more than 1MB")]
)
def test_a_query_that_takes_too_much_is_stopped(limit: str, words: str):
    storm = str(SAMPLES / "abort-storm" / "ledger")
    done = run("query", "incidents", "--ledger", storm, "--engine", "duckdb", limit)
    assert done.exit_code == 3
    assert words in done.output


def test_the_page_of_the_library_is_made_from_it():
    page = (SAMPLES.parent / "docs" / "query-library.md").read_text()
    assert page == markdown_page(), "python -m forensics.library_page > docs/query-library.md"


def test_a_case_hides_who_is_who_and_its_key_reveals_it(tmp_path: Path):
    key, other = tmp_path / "case.key", tmp_path / "other.key"
    key.write_text("0123456789abcdef0123456789abcdef\n")
    other.write_text("another key of another case, long\n")
    asked = ("query", "contaminated-responses", "--ledger", LATE, "--engine", "duckdb", "--format", "json")
    plain, covered = (json.loads(run(*asked, *more).stdout)["rows"][0] for more in ((), ("--case-key", str(key))))
    assert (plain["rid"], plain["donors"]) == ("victim", ["donor"])
    assert (
        covered["rid"].startswith("q-") and covered["tenant"].startswith("c-") and covered["tenant"] != plain["tenant"]
    )
    assert covered["pages"] == plain["pages"]
    again = json.loads(run(*asked, "--case-key", str(other)).stdout)["rows"][0]
    assert again["rid"] != covered["rid"]
    names = [covered["rid"], covered["donors"][0], covered["tenant"]]
    done = run("reveal", *names, "--ledger", LATE, "--case-key", str(key))
    assert [line.split()[1] for line in done.stdout.splitlines()] == ["victim", "donor", plain["tenant"]]
    assert run("reveal", *names, "--ledger", LATE, "--case-key", str(other)).exit_code == 2
    told = run("explain", covered["rid"], "--ledger", LATE, "--engine", "duckdb", "--case-key", str(key))
    assert told.exit_code == 1
    assert not {"victim", "donor"} & set(told.output.replace(",", " ").split()) - {"donor"}  # `donor` is a role, too
    assert "contaminated (proved)" in told.stderr


def test_a_key_that_keeps_nothing_is_refused(tmp_path: Path):
    (tmp_path / "short").write_text("abc")
    done = run("query", "leaks", "--ledger", LEAK, "--case-key", str(tmp_path / "short"))
    assert "too short for a case key" in done.output
    assert done.exit_code != 0


def test_every_column_that_names_somebody_is_covered():
    for query in load_queries():
        for name, column in query.columns.items():
            names_somebody = "pseudonym" in column.meaning or name.endswith(("rid", "rids", "tenant"))
            assert not names_somebody or name in NAMED, (query.name, name)
