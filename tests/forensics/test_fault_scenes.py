"""Every scene of every fault class: both engines, the literal specification, the expected verdicts, and rows lost one by one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from all_scenes import SCENES
from depth import THOROUGH
from ledger_surgery import assert_loss_only_unsettles, responses
from literal_verdict import Literal
from merged_evidence import merged

from engine.ledger.reader import Ledger
from forensics import replay, sql_engine
from forensics.evidence import prepare

SceneLedger = Callable[[str], Ledger]


@pytest.mark.parametrize("name", SCENES)
def test_the_record_is_whole(name: str, scene_ledger: SceneLedger) -> None:
    ledger = scene_ledger(name)
    assert ledger.gaps == () and ledger.problems == ()


@pytest.mark.parametrize("name", SCENES)
def test_verdicts(name: str, scene_ledger: SceneLedger) -> None:
    _, found = responses(scene_ledger(name))
    assert {rid: (row["verdict"], row["mechanism"]) for rid, row in found.items()} == SCENES[name].expected


@pytest.mark.parametrize("name", SCENES)
def test_the_replay_says_what_the_specification_says(name: str, scene_ledger: SceneLedger) -> None:
    evidence = prepare(scene_ledger(name))
    assert replay.run(evidence).to_pylist() == Literal(evidence).run()


def test_both_engines_agree(scene_ledger: SceneLedger) -> None:
    evidence = merged(prepare(scene_ledger(name)) for name in SCENES)
    assert sql_engine.run(evidence, threads=1).equals(replay.run(evidence))


@pytest.mark.parametrize("name", SCENES)
def test_loss_only_unsettles(name: str, scene_ledger: SceneLedger) -> None:
    assert_loss_only_unsettles(scene_ledger(name), None if THOROUGH else name)
