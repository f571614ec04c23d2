"""A slice of the campaign (`make campaign`): the same checks on a few fixed seeds."""

from __future__ import annotations

from pathlib import Path

import pytest
from run_campaign import REPRODUCE, judge
from scenario_draw import FAULTS, draw

SEEDS = (
    *range(24),
    33,
    101,
    125,
    165,
    212,
    248,
    258,
    285,
    301,
    698,
    962,
    979,
    570,
    633,
    645,
    980,
    1025,
    1000,
    1622,
    55,
    159,
    831,
    1167,
    1331,
    1676,
    1743,
)
"""The first ones, and some that failed once, each in another way."""


@pytest.mark.parametrize("seed", SEEDS)
def test_verdicts_equal_the_physical_truth(seed: int, tmp_path: Path):
    judged = judge(seed, tmp_path)
    assert not judged.failures, f"{judged.drawn}: {REPRODUCE.format(seed=seed)}"


def test_a_seed_gives_the_same_run_for_ever():
    assert draw(5).text == draw(5).text != draw(6).text


def test_every_fault_is_drawn_alone_and_in_pairs():
    drawn = [draw(seed).faults for seed in range(400)]
    assert {(fault,) for fault in FAULTS} <= set(drawn)
    assert {fault for faults in drawn if len(faults) == 2 for fault in faults} == set(FAULTS)
