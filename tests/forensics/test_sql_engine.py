"""The SQL engine is shut in: no file, no network, no configuration, nothing spliced; and the catalogue says what it runs."""

from __future__ import annotations

import re
from pathlib import Path

import duckdb
import pytest
from random_evidence import random_evidence
from sql_cases import Scene

from forensics import catalogue, sql_engine
from forensics.catalogue import QueryError, Step, load_queries
from forensics.verdict import FINDING_COLUMNS


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_csv('{path}')",
        "SELECT * FROM '{path}'",
        "COPY requests TO '{path}.out'",
        "ATTACH '{path}.db'",
        "EXPORT DATABASE '{path}.dump'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access = true",
        "SET threads = 1",
        "SELECT * FROM table_of_python",
    ],
)
def test_no_statement_reaches_out(sql: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table_of_python = Scene().build().requests  # a replacement scan would find it in this frame
    assert table_of_python.num_rows == 6
    path = tmp_path / "a.csv"
    path.write_text("a\n1\n")
    hostile = (Step("hostile", "", sql.format(path=path)), Step("end", "", "SELECT 1"))
    monkeypatch.setattr(sql_engine, "query", lambda: type("Hostile", (), {"steps": hostile}))
    with pytest.raises(duckdb.Error):
        sql_engine.run(Scene().build())
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.csv"]


def test_names_that_are_sql_stay_names() -> None:
    scene = Scene()
    hostile = "x'); DROP TABLE requests; --"
    rq = scene.request(hostile, tenant=hostile)
    scene.runs(rq, (22, 25))
    scene.bobs(4, 5)
    scene.read(scene.page, rq, 7, 20)
    rows = sql_engine.run(scene.build()).to_pylist()
    assert [(row["rid"], row["tenant"], row["kind"]) for row in rows] == [(hostile, hostile, "foreign")]


def test_too_little_memory_is_an_error_that_says_so_and_nothing_is_spilled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(duckdb.OutOfMemoryException):
        sql_engine.run(random_evidence(1), memory_limit="1MB")
    assert not list(tmp_path.iterdir())


def test_threads_change_nothing() -> None:
    evidence = random_evidence(3)
    assert sql_engine.run(evidence, threads=1).equals(sql_engine.run(evidence, threads=4))


ASKED_FOR = {
    "foreign-reads", "contaminated-responses", "donors", "tenants-to-notify", "exposure", "page-life", "request-life",
    "room-life", "transfer-mismatch", "open-grants", "late-writes", "early-reads", "source-reuse", "double-owners",
    "use-after-free", "leaks", "held-capacity", "drain-outcomes", "cache-key-audit", "cross-tenant-hits",
    "identity-collisions", "geometry", "component-coverage", "fast-prefill", "ttft-by-cache", "gate-violations",
    "status-consistency", "damage-over-time", "exploitation-signs", "coverage", "gaps",
}  # fmt: skip
"""What an incident commander, a privacy officer and an engineer ask in one hour."""


def test_the_catalogue_names_every_query_and_its_columns() -> None:
    queries = {query.name: query for query in load_queries()}
    assert set(queries) >= ASKED_FOR
    assert list(queries["foreign-reads"].columns) == FINDING_COLUMNS.names
    assert all(query.question.endswith("?") and query.title and query.since for query in queries.values())


def test_the_published_text_holds_every_step_that_runs() -> None:
    query = sql_engine.query()
    assert query.steps[-1].name == "findings"
    assert all(step.sql in query.text for step in query.steps)
    assert [step.name for step in query.steps] == re.findall(r"^-- step: (\w+)", query.text, re.MULTILINE)
    assert {step.repeat for step in query.steps} == {"", "each level", "until stable"}


def test_what_a_part_makes_is_a_step_of_its_own_that_queries_share() -> None:
    fast, times = (query for query in load_queries() if query.name in ("fast-prefill", "prefill-times"))
    assert [step.name for step in (*fast.steps, *times.steps)] == [
        "asked_for",
        "fast_prefill",
        "asked_for",
        "prefill_times",
    ]
    assert times.steps[0] == fast.steps[0]


def test_the_sql_keeps_to_what_ports() -> None:
    code = "\n".join(line.split("--", 1)[0] for line in sql_engine.query().text.splitlines()).upper()
    for word in (
        r"\bQUALIFY\b",
        r"\bASOF\b",
        r"\bANTI\b",
        r"//",
        r"\bUBIGINT\b",
        r"\bHUGEINT\b",
        r"IGNORE NULLS",
        r"::",
    ):
        assert not re.search(word, code), word


def test_every_step_says_why_it_is_there() -> None:
    text = sql_engine.query().text
    assert all(re.match(r"-- \S", after.split("\n", 2)[1]) for after in text.split("\n-- step: ")[1:])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SELECT 1;\n", "no front matter"),
        ("-- ---\n-- title: A: b\n-- ---\nSELECT 1", "no YAML"),
        ("-- ---\n-- title: A\n-- ---\nSELECT 1", "lacks question, since"),
        ("-- ---\n-- title: A\n-- question: b\n-- since: c\n-- ---\n", "needs maps"),
        (
            "-- ---\n-- title: A\n-- question: b\n-- since: c\n-- columns: {}\n-- parameters: {}\n-- parts: [d]\n-- ---\n",
            "no file for part d",
        ),
    ],
)  # fmt: skip
def test_a_query_that_does_not_say_what_it_must_is_refused(text: str, said: str) -> None:
    with pytest.raises(QueryError, match=said):
        catalogue._library((("a", text),))
