"""Every scene of every fault class: both engines, the literal specification, the expected verdicts, and each row lost in turn."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import scenes_cache
import scenes_handoff
import scenes_identity
import scenes_passes
import scenes_reuse
from fault_scenes import Scenes
from ledger_surgery import assert_loss_only_unsettles, responses
from literal_verdict import Literal
from merged_evidence import merged

from engine.ledger.reader import Ledger
from forensics import replay, sql_engine
from forensics.evidence import prepare

MODULES = (scenes_handoff, scenes_reuse, scenes_cache, scenes_identity, scenes_passes)
SCENES: Scenes = {name: one for module in MODULES for name, one in module.SCENES.items()}
assert len(SCENES) == sum(len(module.SCENES) for module in MODULES)


@pytest.fixture(scope="module")
def ledgers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ledger]:
    place = tmp_path_factory.mktemp("scenes")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)  # nothing here is meant to outlive the machine
        return {name: one.ledger(Path(place) / name) for name, one in SCENES.items()}


@pytest.mark.parametrize("name", SCENES)
def test_the_record_is_whole(name: str, ledgers: dict[str, Ledger]) -> None:
    assert ledgers[name].gaps == () and ledgers[name].problems == ()


@pytest.mark.parametrize("name", SCENES)
def test_verdicts(name: str, ledgers: dict[str, Ledger]) -> None:
    _, found = responses(ledgers[name])
    assert {rid: (row["verdict"], row["mechanism"]) for rid, row in found.items()} == SCENES[name].expected


@pytest.mark.parametrize("name", SCENES)
def test_the_replay_says_what_the_specification_says(name: str, ledgers: dict[str, Ledger]) -> None:
    evidence = prepare(ledgers[name])
    assert replay.run(evidence).to_pylist() == Literal(evidence).run()


def test_both_engines_agree(ledgers: dict[str, Ledger]) -> None:
    evidence = merged(prepare(ledger) for ledger in ledgers.values())
    assert sql_engine.run(evidence, threads=1).equals(replay.run(evidence))


@pytest.mark.parametrize("name", SCENES)
def test_loss_only_unsettles(name: str, ledgers: dict[str, Ledger]) -> None:
    assert_loss_only_unsettles(ledgers[name])
