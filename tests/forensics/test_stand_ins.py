"""Pages judged by class are judged as they would be one by one: on every scene and small sample, and with rows changed.

A failing example is a list of seeds; the changes that a seed makes are those of `disturbed`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from all_scenes import SCENES
from depth import THOROUGH
from ledger_surgery import Surgery
from merged_evidence import merged

from engine.ledger.reader import Ledger, read_ledger
from engine.ledger.refs import expand_pages
from forensics import replay, sql_engine
from forensics.evidence import prepare
from forensics.life_table import LifeTable
from forensics.lives import Life, lives_of_pages
from forensics.rows import as_ints, worker_rows

SAMPLES = Path(__file__).parents[2] / "sample_logs"
NAMES = [*SCENES, *sorted(path.name for path in (SAMPLES / "classes").iterdir()), "gappy", "prefix-cross-tenant"]
RESTARTED = "gappy"
"""Has workers of several lives, by which `merged` tells ledgers apart."""
SEEDS = 20 if THOROUGH else 2
"""Changed ledgers per ledger."""

LedgerOf = Callable[[str], Ledger]


@pytest.fixture(scope="session")
def ledger_of(scene_ledger: LedgerOf) -> LedgerOf:
    """The ledger of a scene or of a small sample, by name."""

    @cache
    def of_sample(name: str) -> Ledger:
        folder = SAMPLES / "classes" / name if (SAMPLES / "classes" / name).exists() else SAMPLES / name
        return read_ledger(folder / "ledger")

    return lambda name: scene_ledger(name) if name in SCENES else of_sample(name)


def assert_alike(ledger: Ledger, what: object) -> int:
    """Both ways of preparing a ledger lead to one result. Returns how many fewer pages were judged."""
    by_class, by_page = prepare(ledger), prepare(ledger, page_by_page=True)
    one, other = replay.run(by_class).to_pylist(), replay.run(by_page).to_pylist()
    assert one == other, what
    return len(by_page.members) - len(by_class.members)


@pytest.mark.parametrize("name", NAMES)
def test_by_class_is_page_by_page(name: str, ledger_of: LedgerOf) -> None:
    assert_alike(ledger_of(name), name)


def test_by_class_is_page_by_page_in_the_other_engine_too(ledger_of: LedgerOf) -> None:
    def found(page_by_page: bool) -> list[dict[str, Any]]:
        evidence = merged(prepare(ledger_of(name), page_by_page=page_by_page) for name in NAMES if name != RESTARTED)
        alone = prepare(ledger_of(RESTARTED), page_by_page=page_by_page)
        return [row for each in (evidence, alone) for row in sql_engine.run(each, threads=1).to_pylist()]

    assert found(False) == found(True)


def test_most_pages_of_an_ordinary_ledger_are_judged_with_others(ledger_of: LedgerOf) -> None:
    evidence = prepare(ledger_of("m01-short-handoff"))
    shown = [len(numbers) for numbers in evidence.members["numbers"].to_pylist()]
    assert sum(shown) > 3 * len(shown)


def disturbed(ledger: Ledger, seed: int) -> tuple[Ledger, list[str]]:
    """A ledger with a few rows lost, or with another row's pages, tag or time, or with a part of their pages."""
    source = random.Random(seed)
    tables, done = dict(ledger.tables), []
    tables["pages"] = expand_pages(tables["pages"])
    for _ in range(source.randint(1, 4)):
        name = source.choice(["pages", "pages", "pages", "transfers", "cache"])
        rows = tables[name].to_pylist()
        if len(rows) < 2:
            continue
        one, other = source.sample(rows, 2)
        columns = [
            c for c in ("pages", "tag", "dst_pages", "dst_tag", "src_pages", "src_tag", "tok_off", "req") if c in one
        ]
        column = source.choice(columns)
        if column.endswith("pages") and one[column] and source.random() < 0.4:
            one[column] = source.choice([one[column][: len(one[column]) // 2], [*one[column][1:], one[column][0]]])
            if column == "dst_pages" and one["src_pages"] and source.random() < 0.5:
                one["src_pages"] = one["src_pages"][: len(one["dst_pages"])]
        else:
            one[column] = other[column]
        done.append(f"{name} {one['worker']} {one['seq']}: {column} = {one[column]}")
        tables[name] = pa.Table.from_pylist(rows, tables[name].schema)
    changed = replace(ledger, tables=tables)
    if source.random() < 0.4 and all(state.epoch == 1 for state in ledger.writers) and not ledger.gaps:
        surgery = Surgery(changed)
        lost = source.sample(list(surgery.places()), source.randint(1, 3))
        return surgery.without(*lost), [*done, f"lost {lost}"]
    return changed, done


@pytest.mark.parametrize("name", NAMES)
def test_by_class_is_page_by_page_whatever_the_rows_say(name: str, ledger_of: LedgerOf) -> None:
    for seed in range(SEEDS):
        ledger, done = disturbed(ledger_of(name), seed)
        assert_alike(ledger, (name, seed, done))


@pytest.mark.parametrize("name", NAMES)
def test_lives_in_bulk_are_lives_row_by_row(name: str, ledger_of: LedgerOf) -> None:
    for ledger in (ledger_of(name), *(disturbed(ledger_of(name), seed)[0] for seed in range(SEEDS))):
        workers = worker_rows(ledger)
        bulk: dict[Any, Life] = {}
        for lives in LifeTable(workers).of_place.values():
            for row in range(len(lives.columns.page)):
                life = lives.life(row)
                bulk[life.tag, life.page] = life
        expected: dict[Any, Life] = {}
        for worker in workers.values():
            for pool in {row["pool"] for row in worker.pages}:
                lists = [as_ints(row["pages"]) for row in worker.pages if row["pool"] == pool]
                expected |= lives_of_pages(worker, pool, np.unique(np.concatenate(lists)))
        assert bulk == expected
