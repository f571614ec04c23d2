"""docs/detectors.md is what the engine measures, and log mode changes nothing that it measures."""

from __future__ import annotations

import pytest
from detector_matrix import PAGE, SEEDS, measure, page

from engine.defences import DETECTORS


def test_the_page_is_what_the_command_writes():
    assert PAGE.read_text() == page(), "run `make detectors`"


@pytest.mark.parametrize(
    ("fault", "defence"),
    [("late-write", "deferred-release"), ("double-free", "owner-free"), ("shifted-pages", "page-tag")],
)
def test_a_defence_alone_sees_what_it_sees_among_all(fault: str, defence: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(SEEDS, fault, SEEDS[fault][:1])
    detector = DETECTORS[defence]
    assert measure(fault, "log", defence)[detector] == measure(fault)[detector]
