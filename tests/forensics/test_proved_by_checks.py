"""Landings that a failed tag check places: the only one that brought its tag, and no pass that its request sat out."""

from __future__ import annotations

from typing import Any

import pytest

from forensics.content import ContentEvent, proved_by_checks, run_of
from forensics.order import INF
from forensics.rows import WorkerRows

AT = ("decode-0", 1)
OURS, THEIRS = 1, 2


def worker(*requests: dict[str, Any]) -> WorkerRows:
    """Request 7 binds page 3 at seq 10; passes 1 to 4 end at 20, 30, 40 and 50; pass 3 finds another's tag."""
    found = WorkerRows(AT)
    found.pages = [{"op": "bind", "req": 7, "seq": 10}]
    found.requests = list(requests)
    found.steps = [{"step": n, "n": 1, "since_seq": 10 * n + 9, "seq": 10 * n + 10} for n in range(1, 5)]
    found.checks = [{"op": "mismatch", "req": 7, "pool": "kv", "page": 3, "step": 3, "expected": OURS, "found": THEIRS}]
    return found


def landing(lo: int = 5, hi: int = INF, tag: int = THEIRS) -> ContentEvent:
    return ContentEvent((AT, "kv", 3), "landing", 0, 16, lo, hi, tag=tag)


def placed(at: WorkerRows, *events: ContentEvent) -> list[tuple[int, int]]:
    return [(run.event.lo, run.event.hi) for run in proved_by_checks(at, [run_of(event) for event in events])]


def test_it_stands_between_the_last_pass_that_held_and_the_one_that_failed() -> None:
    assert placed(worker(), landing()) == [(30, 39)]
    assert placed(worker(), landing(tag=OURS)) == [(5, INF)]


def test_of_two_that_brought_the_tag_neither_is_placed() -> None:
    assert placed(worker(), landing(), landing(lo=7)) == [(5, INF), (7, INF)]


@pytest.mark.parametrize(("resumed", "lo"), [(15, 30), (35, 5)])
def test_passes_before_its_request_was_resumed_held_nothing(resumed: int, lo: int) -> None:
    assert placed(worker({"op": "resume", "req": 7, "seq": resumed}), landing()) == [(lo, 39)]
    assert placed(worker({"op": "resume", "req": 8, "seq": resumed}), landing()) == [(30, 39)]
