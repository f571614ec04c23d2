"""Two engines, one specification: the SQL and the replay give the same table for every evidence, to the last row and order.

A failing example is a list of seeds; hypothesis cuts it down to the one that matters.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from dense_evidence import dense_evidence
from evidence_builder import evidence_of
from hypothesis import given, settings
from hypothesis import strategies as st
from merged_evidence import merged
from random_evidence import random_evidence

from forensics import replay, sql_engine
from forensics.evidence import EVIDENCE_SCHEMAS, Evidence

Draw = Callable[[int], Evidence]
seeds = st.integers(0, 1 << 40)


def differences(one: pa.Table, other: pa.Table) -> list[str]:
    """Rows that only one engine has; a difference in order or type where there are none."""
    left, right = ([str(row) for row in table.to_pylist()] for table in (one, other))
    found = [f"sql only: {row}" for row in left if row not in right]
    found += [f"replay only: {row}" for row in right if row not in left]
    return found or ([] if one.equals(other) else ["the rows are the same, their order, number or types are not"])


def compared(evidence: Evidence) -> list[str]:
    return differences(sql_engine.run(evidence, threads=1), replay.run(evidence))


@pytest.fixture(scope="module")
def many() -> Evidence:
    return merged(
        draw(seed) for draw, count in ((random_evidence, 450), (dense_evidence, 600)) for seed in range(count)
    )


@pytest.fixture(scope="module")
def judged(many: Evidence) -> list[dict[str, Any]]:
    return sql_engine.run(many, threads=1).to_pylist()


def test_engines_agree_on_many_evidences_at_once(many: Evidence) -> None:
    assert compared(many) == []


@pytest.mark.parametrize("draw", [random_evidence, dense_evidence])
def test_engines_agree_on_one_evidence(draw: Draw) -> None:
    @settings(derandomize=True, deadline=None, max_examples=8, print_blob=True)
    @given(st.lists(seeds, min_size=1, max_size=30))
    def agree(drawn: list[int]) -> None:
        assert compared(merged(draw(seed) for seed in drawn)) == []

    agree()


def test_engines_agree_on_nothing() -> None:
    nothing = evidence_of({name: [] for name in EVIDENCE_SCHEMAS})
    assert compared(nothing) == []


def test_parts_of_one_evidence_do_not_touch_each_other() -> None:
    parts = [draw(seed) for seed in range(3) for draw in (random_evidence, dense_evidence)]
    whole = [str(row) for row in sql_engine.run(merged(parts), threads=1).to_pylist()]
    alone = []
    for number, part in enumerate(parts):
        for row in sql_engine.run(merged([part]), threads=1).to_pylist():
            for column in ("rid", "donor_rid"):
                if row[column] is not None:
                    row[column] = re.sub(r"^0\.", f"{number}.", row[column]).replace("-0/0/", f"-0/{number}/")
            alone.append(str(row | {"epoch": number}))
    assert sorted(whole) == sorted(alone)


def test_the_draws_reach_every_kind_of_finding(judged: list[dict[str, Any]]) -> None:
    assert {row["kind"] for row in judged} == {"foreign", "unknown", "corrupt", "exposed", "clean"}
    foreign = [row for row in judged if row["kind"] == "foreign"]
    assert {row["mechanism"] for row in foreign} == {
        "M1", "M2", "M3", "M4", "M5", "M6", "M7", "M8", "M11", "M12", "M13", "M14", "mechanism unknown",
    }  # fmt: skip
    assert {(row["proof"], row["derived"]) for row in foreign} == {
        (p, d) for p in ("proved", "inferred") for d in (True, False)
    }
    assert {row["delivered"] for row in foreign} == {"yes", "no", "unknown"}
    exposed = {row["mechanism"] for row in judged if row["kind"] == "exposed"}
    assert exposed >= {"M5", "M7", "M8", "M12", "M13", "P0", "mechanism unknown"}
    assert {row["reason"] for row in judged if row["kind"] == "unknown"} == {
        "missing mover", "rows lost", "own rows lost", "owner lost", "source unknown", "transfer chain too long",
        "undecided order", "undecided source", "page geometry differs", "two writers",
    }  # fmt: skip


def test_a_difference_is_seen() -> None:
    """The comparison itself: one changed value, one row less, one swap."""
    table = replay.run(merged(random_evidence(seed) for seed in range(4)))
    changed = table.set_column(table.schema.get_field_index("pages"), "pages", pa.array([9] * len(table), pa.int64()))
    assert differences(table, changed)
    assert differences(table, table.slice(1))
    assert differences(table, table.take([1, 0, *range(2, len(table))]))
