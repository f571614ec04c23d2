"""Reads that are judged together come to what each comes to by itself, and there are such reads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scenes_cache
import scenes_handoff
import scenes_identity
import scenes_reuse
from fault_scenes import Scene

from forensics import replay, replay_alike
from forensics.evidence import prepare
from forensics.replay_facts import Facts
from forensics.replay_ordinary import Timeline
from forensics.rows import Ints

SCENES = {n: s for m in (scenes_handoff, scenes_reuse, scenes_cache, scenes_identity) for n, s in m.SCENES.items()}


@pytest.mark.parametrize("scene", SCENES.values(), ids=SCENES)
def test_together_as_one_by_one(scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evidence = prepare(scene.ledger(tmp_path / "ledger"), page_by_page=True)
    together = replay.run(evidence)
    monkeypatch.setattr(replay_alike, "_alike", lambda facts, timeline, where: np.arange(len(where)))
    assert together.equals(replay.run(evidence))


def test_pages_that_one_donor_left_are_judged_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evidence = prepare(SCENES["m1-short"].ledger(tmp_path / "ledger"), page_by_page=True)
    groups: list[Ints] = []
    alike = replay_alike._alike

    def told(facts: Facts, timeline: Timeline, where: Ints) -> Ints:
        groups.append(alike(facts, timeline, where))
        return groups[-1]

    monkeypatch.setattr(replay_alike, "_alike", told)
    replay.run(evidence)
    assert len(np.unique(groups[0])) < len(groups[0])
