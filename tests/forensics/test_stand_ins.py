"""Pages judged by class are judged as they would be one by one: on every scene and small sample, and with rows changed.

A failing example is a list of seeds; the changes that a seed makes are those of `disturbed`.
"""

from __future__ import annotations

import os
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import scenes_cache
import scenes_handoff
import scenes_identity
import scenes_reuse
from ledger_surgery import Surgery

from engine.ledger.reader import Ledger, read_ledger
from engine.ledger.refs import expand_pages
from forensics import replay, sql_engine
from forensics.evidence import prepare
from forensics.life_table import LifeTable
from forensics.lives import Life, lives_of_pages
from forensics.rows import as_ints, worker_rows

SCENES = {n: s for m in (scenes_handoff, scenes_reuse, scenes_cache, scenes_identity) for n, s in m.SCENES.items()}
SAMPLES = Path(__file__).parents[2] / "sample_logs"
NAMES = [*SCENES, *sorted(path.name for path in (SAMPLES / "classes").iterdir()), "gappy", "prefix-cross-tenant"]
SEEDS = int(os.environ.get("KVWITNESS_SEEDS", "3"))
"""Changed ledgers per ledger."""


@pytest.fixture(scope="module")
def ledgers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ledger]:
    place = tmp_path_factory.mktemp("scenes")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)  # nothing here is meant to outlive the machine
        found = {name: one.ledger(place / name) for name, one in SCENES.items()}
    for name in set(NAMES) - set(SCENES):
        folder = SAMPLES / "classes" / name if (SAMPLES / "classes" / name).exists() else SAMPLES / name
        found[name] = read_ledger(folder / "ledger")
    return found


def assert_alike(ledger: Ledger, what: object) -> int:
    """Both ways of preparing a ledger lead to one result. Returns how many fewer pages were judged."""
    by_class, by_page = prepare(ledger), prepare(ledger, page_by_page=True)
    one, other = replay.run(by_class).to_pylist(), replay.run(by_page).to_pylist()
    assert one == other, what
    return len(by_page.members) - len(by_class.members)


@pytest.mark.parametrize("name", NAMES)
def test_by_class_is_page_by_page(name: str, ledgers: dict[str, Ledger]) -> None:
    assert_alike(ledgers[name], name)
    evidence = prepare(ledgers[name], page_by_page=True)
    assert sql_engine.run(evidence, threads=1).equals(sql_engine.run(prepare(ledgers[name]), threads=1))


def test_most_pages_of_an_ordinary_ledger_are_judged_with_others(ledgers: dict[str, Ledger]) -> None:
    evidence = prepare(ledgers["m01-short-handoff"])
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
def test_by_class_is_page_by_page_whatever_the_rows_say(name: str, ledgers: dict[str, Ledger]) -> None:
    for seed in range(SEEDS):
        ledger, done = disturbed(ledgers[name], seed)
        assert_alike(ledger, (name, seed, done))


@pytest.mark.parametrize("name", NAMES)
def test_lives_in_bulk_are_lives_row_by_row(name: str, ledgers: dict[str, Ledger]) -> None:
    for ledger in (ledgers[name], *(disturbed(ledgers[name], seed)[0] for seed in range(SEEDS))):
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
